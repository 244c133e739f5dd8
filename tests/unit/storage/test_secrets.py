"""No secret of the storage options ever reaches a message, a repr or a document."""

import logging
import pickle
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.cli.common import run
from liquidlog.cli.main import cli
from liquidlog.errors import LiquidlogError
from liquidlog.log.second_opinion import require_agreement
from liquidlog.log.stores import open_store
from liquidlog.plan import encode_plan
from liquidlog.storage.options import StorageOptions, redacted
from liquidlog.table import Table
from support.emulators import SENTINEL, Emulator
from support.plans import schema_json_of

OPTIONS = {"aws_secret_access_key": SENTINEL, "aws_region": "here"}
ROWS = pa.table({"x": [1, 2, 3]})


def test_options_show_their_names_only() -> None:
    options = StorageOptions.of(OPTIONS)
    for shown in (repr(options), str(options), f"{options}"):
        assert SENTINEL not in shown
        assert "aws_secret_access_key" in shown
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301  our own bytes


@pytest.mark.parametrize(
    "text",
    [
        f"signature of {SENTINEL} is wrong",
        f"GET https://a/b?sv=1&sig={SENTINEL}&x=1",
        "https://a/b?X-Amz-Signature=0123abcd",
        "AccountName=a;AccountKey=abcd1234+/==;",
    ],
)
def test_what_clients_say_is_redacted(text: str) -> None:
    shown = redacted(text, StorageOptions.of(OPTIONS), {"AZURE_STORAGE_SAS_TOKEN": "?sig=env456"})
    assert not {SENTINEL, "0123abcd", "abcd1234", "env456"} & set(shown.replace("=", " ").split())
    assert SENTINEL not in shown
    assert "***" in shown


def test_parts_of_a_sas_token_are_secret_too() -> None:
    options = StorageOptions.of({"azure_storage_sas_token": "sv=2024-01-01&sig=Tm90aGluZw%3D"})
    assert "Tm90aGluZw" not in redacted("bad Tm90aGluZw%3D here", options, {})


FAILING: dict[str, Callable[[Table, Emulator], Any]] = {
    "snapshot": lambda t, _: t.snapshot(),
    "append": lambda t, _: t.append(ROWS),
    "cluster by": lambda t, _: t.cluster_by(["x"]),
    "history": lambda t, _: t.history(),
    "open": lambda t, e: Table.open(t.uri + "/none", storage_options=e.options),
    "append file": lambda t, _: t.append(f"{t.uri}/none.parquet"),
}


@pytest.mark.parametrize(
    ("name", "status"), [*((name, 403) for name in FAILING), ("snapshot", 400), ("cluster by", 503)]
)
def test_no_error_shows_the_secret(
    s3: Emulator,
    name: str,
    status: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = {**s3.options, "aws_session_token": SENTINEL}
    table = Table.create(
        s3.new_table(), schema=pa.schema([("x", pa.int64())]), storage_options=options
    )
    # Reads are tried again after a 503, which takes its time; puts are not.
    s3.proxy.refuse = lambda r: status if status != 503 or r.method == "PUT" else None
    with caplog.at_level(logging.WARNING), pytest.raises(LiquidlogError) as failure:
        FAILING[name](table, s3)
    shown = [*traceback.format_exception(failure.value), str(failure.value.document())]
    assert SENTINEL not in "".join([*shown, caplog.text, repr(failure.value)])


def test_the_second_opinion_shows_no_secret(s3: Emulator) -> None:
    table = Table.create(
        s3.new_table(), schema=pa.schema([("x", pa.int64())]), storage_options=s3.options
    )
    snapshot = table.snapshot()
    wrong = StorageOptions.of({**s3.options, "aws_region": SENTINEL, "aws_endpoint": SENTINEL})
    with pytest.raises(LiquidlogError) as failure:
        require_agreement(replace(snapshot, version=7), wrong)
    assert SENTINEL not in "".join(traceback.format_exception(failure.value))


def test_no_document_holds_the_secret(s3: Emulator) -> None:
    table = Table.create(
        s3.new_table(),
        schema=pa.schema([("x", pa.int64())]),
        cluster_by=["x"],
        storage_options=s3.options,
    )
    table.append(ROWS)
    table.append(ROWS)
    store = open_store(table.uri, s3.options)
    listed = store.list_log()
    assert listed
    texts = [encode_plan(table.plan()).decode(), repr(store.storage), repr(table.snapshot())]
    texts += [str(store.read_log(file.name)) for file in listed]
    assert SENTINEL not in "".join(texts)
    assert "aws_" not in encode_plan(table.plan()).decode()


@pytest.mark.parametrize("words", [["--json"], []])
def test_the_command_line_does_not_repeat_a_malformed_option(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, ["detail", "s3://b/t", "--storage-option", SENTINEL.rstrip("="), *words]) == 2
    printed = capsys.readouterr()
    assert SENTINEL.rstrip("=") not in printed.out + printed.err


def test_work_for_the_workers_shows_no_secret() -> None:
    from liquidlog.plan import WriterOptions
    from liquidspark.source import GroupWork

    work = GroupWork(
        directory="s3://b/t",
        inputs=(),
        paths=(),
        vector_paths=(),
        outputs=1,
        schema_string=schema_json_of({"x": "long"}),
        columns=(),
        curve=None,
        writer_options=WriterOptions(indexed=()),
        token="0123456789ab",  # noqa: S106  names files
        slice_bytes=1,
        storage=StorageOptions.of(OPTIONS),
    )
    assert SENTINEL not in repr(work)
    assert pickle.loads(pickle.dumps(work)).storage.given() == OPTIONS  # noqa: S301
