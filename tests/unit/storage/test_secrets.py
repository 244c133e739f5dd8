"""No secret of the storage options ever reaches a message, a repr or a document."""

import asyncio
import base64
import json
import logging
import pickle
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from liquidlog.cli.main import cli, run
from liquidlog.errors import LiquidlogError, UsageError
from liquidlog.log.history import require_agreement
from liquidlog.log.loader import open_store
from liquidlog.plan import encode_plan
from liquidlog.storage.addresses import StorageOptions, redacted
from liquidlog.table import Table
from support.emulators import SENTINEL, Emulator, proxy_of

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
        "the server did not accept env456",
    ],
)
def test_what_clients_say_is_redacted(text: str) -> None:
    environment = {"AZURE_STORAGE_SAS_TOKEN": "?sig=env456&sv=2026-02-06"}
    shown = redacted(text, StorageOptions.of(OPTIONS), environment)
    assert not {SENTINEL, "0123abcd", "abcd1234", "env456"} & set(shown.replace("=", " ").split())
    assert SENTINEL not in shown
    assert "***" in shown


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
    s3: Emulator, name: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    options = {**s3.options, "aws_session_token": SENTINEL}
    table = Table.create(
        s3.new_table(), schema=pa.schema([("x", pa.int64())]), storage_options=options
    )
    # Reads are tried again after a 503, which takes its time; puts are not.
    s3.proxy.refuse = lambda r: status if status != 503 or r.method == "PUT" else None
    with (
        caplog.at_level(logging.WARNING),
        caplog.at_level(logging.DEBUG, logger="liquidlog"),
        pytest.raises(LiquidlogError) as failure,
    ):
        FAILING[name](table, s3)
    assert "with StorageOptions(AWS_ENDPOINT_URL, " in caplog.text or name != "open"
    shown = [*traceback.format_exception(failure.value), str(failure.value.document())]
    assert SENTINEL not in "".join([*shown, caplog.text, repr(failure.value)])


KEY = base64.b64encode(SENTINEL.encode()).decode()
SIGNATURE = "S3cretOfTheToken%2Babc%3D"
RSA = rsa.generate_private_key(65537, 2048).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
)
BROKEN = f"-----BEGIN PRIVATE KEY-----\n{SENTINEL}\n-----END PRIVATE KEY-----\n"
AZURE = {
    "azure_storage_account_name": "account",
    "azure_allow_http": "true",
    "azure_storage_endpoint": "SERVER/account",
}


def account(private: str) -> dict[str, str]:
    key = {"type": "service_account", "private_key_id": "0123", "private_key": private}
    key |= {"client_email": "a@p.example", "token_uri": "SERVER/token"}
    server = {"google_base_url": "SERVER", "allow_http": "true"}
    return {"google_service_account_key": json.dumps(key), **server}


CLOUDS = {
    "az key": ({**AZURE, "azure_storage_account_key": KEY}, KEY),
    "az broken key": ({**AZURE, "azure_storage_account_key": SENTINEL}, SENTINEL),
    "az token": ({**AZURE, "azure_storage_sas_token": f"sv=1&sig={SIGNATURE}"}, SIGNATURE[:16]),
    "gs account": (account(RSA.decode()), RSA.decode().splitlines()[1]),
    "gs broken account": (account(BROKEN), SENTINEL),
}
"""Options that try an address which lets nobody in, and what must not be seen of them."""


def options_at(cloud: str, server: str) -> dict[str, str]:
    return {name: text.replace("SERVER", server) for name, text in CLOUDS[cloud][0].items()}


@pytest.mark.parametrize("cloud", CLOUDS)
def test_no_cloud_lets_a_secret_out_when_it_lets_nobody_in(
    cloud: str,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pause = asyncio.sleep
    # Clients, and we, back off where a key cannot even be used.
    monkeypatch.setattr(asyncio, "sleep", lambda *_: pause(0))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with (
        proxy_of("http://127.0.0.1:9") as proxy,
        caplog.at_level(logging.INFO),
        caplog.at_level(logging.DEBUG, logger="liquidlog"),
    ):
        proxy.refuse = lambda _: 403
        uri, options = f"{cloud[:2]}://container/table", options_at(cloud, proxy.url)
        shown = []
        for act in (Table.open, partial(Table.create, schema=ROWS.schema)):
            with pytest.raises(LiquidlogError) as failure:
                act(uri, storage_options=options)
            shown += [*traceback.format_exception(failure.value), repr(failure.value)]
            shown.append(str(failure.value.document()))
        words = [f"--storage-option={name}={value}" for name, value in options.items()]
        assert run(cli, ["detail", uri, *words, "--json", "-vv"]) != 0
    printed = capsys.readouterr()
    everything = "".join([*shown, caplog.text, printed.out, printed.err])
    assert CLOUDS[cloud][1] not in everything


def test_a_key_that_signs_nothing_is_refused_before_any_request() -> None:
    with proxy_of("http://127.0.0.1:9") as proxy:
        uri, options = "az://container/table", options_at("az broken key", proxy.url)
        with pytest.raises(UsageError) as caught:
            Table.open(uri, storage_options=options)
        assert caught.value.fields["options"] == ["azure_storage_account_key"]
        options["azure_storage_account_key"] = f"{KEY}\n"
        assert open_store(uri, options).uri == uri
        assert proxy.requests == []


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
    wrong = StorageOptions.of({**s3.options, "aws_region": SENTINEL, "aws_endpoint": SENTINEL})
    with pytest.raises(LiquidlogError) as failure:  # of delta-rs, which reads the log again
        require_agreement(replace(table.snapshot(), version=7), wrong)
    assert SENTINEL not in "".join([*texts, *traceback.format_exception(failure.value)])
    assert "aws_" not in encode_plan(table.plan()).decode()
