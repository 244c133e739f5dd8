"""The policies of docs/how-to/object-stores.md allow the requests that we send, and no others."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote_plus, urlsplit

import pyarrow as pa
import pytest

from liquidlog.table import Table
from support.emulators import Emulator, Request
from support.examples import blocks
from support.repository import text

ROWS = pa.table({"day": list(range(1000)), "customer": [n * 7 % 100 for n in range(1000)]})
UNSEEN = {"s3:AbortMultipartUpload"}
"""Needed only where an upload of more than 16 MiB fails."""


def allowed(title: str) -> set[str]:
    """Return the actions of the policy with this title on the page."""
    page = text("docs/how-to/object-stores.md")
    (policy,) = [json.loads(block.code) for block in blocks(page) if block.title == title]
    statements = policy["Statement"]
    return {action for one in statements for action in _list(one["Action"])}


def _list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def action(request: Request) -> str:
    """Return the permission that S3 asks of a request.

    Source: AWS, required permissions for Amazon S3 API operations.
    """
    is_list = request.method == "GET" and "list-type=" in request.target
    return {
        "GET": "s3:ListBucket" if is_list else "s3:GetObject",
        "HEAD": "s3:GetObject",
        "PUT": "s3:PutObject",
        "POST": "s3:PutObject",
        "DELETE": "s3:DeleteObject",
    }[request.method]


def asked(table: Table, s3: Emulator, work: Callable[[], Any]) -> set[str]:
    """Return the actions of the requests of some work, all of which are below the table."""
    s3.proxy.clear()
    work()
    _, _, key = urlsplit(table.uri).path.partition("/")
    assert [one for one in s3.proxy.requests if f"{key}/" not in unquote_plus(one.target)] == []
    return set(map(action, s3.proxy.requests))


@pytest.fixture
def table(s3: Emulator) -> Table:
    # Not "a table": delta-rs escapes a space twice in one request.
    address = s3.new_table().replace("a table", "t")
    made = Table.create(address, schema=ROWS.schema, cluster_by="day", storage_options=s3.options)
    for _ in range(3):
        made.append(ROWS)
    return made


def test_verbs_that_write_nothing_need_to_list_and_get(s3: Emulator, table: Table) -> None:
    opened = Table.open(table.uri, storage_options=s3.options)
    plan = opened.plan()
    assert plan.groups
    reading = (
        lambda: Table.open(table.uri, storage_options=s3.options).health(),
        opened.plan,
        lambda: opened.predict(plan),
        opened.judge,
        opened.doctor,
        lambda: opened.scan("day = 5"),
    )
    assert set[str]().union(*(asked(table, s3, work) for work in reading)) == allowed("read.json")


def test_verbs_that_write_need_to_put_and_delete_too(s3: Emulator, table: Table) -> None:
    writing = (
        lambda: table.append(ROWS),
        lambda: table.optimize(executor="local"),
        table.checkpoint,
        lambda: table.vacuum(retain="0s", allow_short_retention=True),
    )
    needed = set[str]().union(*(asked(table, s3, work) for work in writing))
    assert needed == allowed("write.json") - UNSEEN
