"""OPTIMIZE of a table in an object store: workers read and write through fsspec."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import duckdb
import fsspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import liquidspark
from liquidlog.cli.main import cli, run
from liquidlog.errors import ExecutorError
from liquidlog.plan import encode_plan
from liquidlog.storage.unity import ADDRESSES, TOKEN_FILE, TOKENS
from liquidlog.table import Table
from support.emulators import SENTINEL, Emulator, Tokens
from support.unity import imitation, vend_from

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("s", pa.string())])
ROWS = 6000


@pytest.fixture
def table(s3: Emulator) -> Table:
    made = Table.create(
        s3.new_table(), schema=SCHEMA, cluster_by=["x", "y"], storage_options=s3.options
    )
    for start in range(0, ROWS, 2000):
        numbers = range(start, start + 2000)
        made.append(
            pa.table(
                {
                    "x": [n * 7919 % 1000 for n in numbers],
                    "y": [n * 104729 % 1000 for n in numbers],
                    "s": [f"row {n}" for n in numbers],
                },
                schema=SCHEMA,
            )
        )
    return made


def _rows(table: Table, s3: Emulator) -> list[tuple[object, ...]]:
    theirs = DeltaTable(table.uri, storage_options=dict(s3.options))
    return sorted(duckdb.from_arrow(pa.table(theirs.scan())).fetchall())


def _names(table: Table, s3: Emulator) -> set[str]:
    client = fsspec.filesystem(
        "s3",
        key="test",
        secret="test",  # noqa: S106
        endpoint_url=s3.options["AWS_ENDPOINT_URL"],
        use_listings_cache=False,
    )
    found = client.find(table.uri)
    return {name.rpartition("/")[2] for name in found if "_delta_log" not in name}


def test_optimize_on_the_command_line(
    spark: SparkSession, table: Table, s3: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark
    before, rows = set(table.files()["path"].to_pylist()), _rows(table, s3)
    options = [
        word
        for name, value in s3.options.items()
        for word in ("--storage-option", f"{name}={value}")
    ]
    words = ["optimize", table.uri, "--max-file-size", "4000", "--json", *options]
    assert run(cli, words) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["rows_verified"] == ROWS
    assert SENTINEL not in printed.out + printed.err
    live = set(table.files()["path"].to_pylist())
    assert len(live) > 1
    assert not live & before
    assert _rows(table, s3) == rows
    # Nothing is left but the files of both versions: no run marker, no probe, no upload.
    assert _names(table, s3) == live | before
    health = table.health()
    assert (health.total_file_count, health.unclustered_file_count) == (len(live), 0)


def test_an_append_whose_workers_lack_an_option_is_refused_before_any_work(
    spark: SparkSession, table: Table, s3: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {name: value for name, value in s3.options.items() if "key" in name.lower()}
    assert len(secrets) == 2
    for name, value in secrets.items():
        monkeypatch.setenv(name.upper(), value)  # for this process: workers began before
    rest = {name: value for name, value in s3.options.items() if name not in secrets}
    before, version = _names(table, s3), table.snapshot().version
    opened = Table.open(table.uri, storage_options=rest)
    with pytest.raises(ExecutorError, match=r"the worker on \S+ cannot") as caught:
        liquidspark.append(spark.range(10).selectExpr("id x", "id y", "'new' s"), opened)
    assert SENTINEL not in caught.value.message
    assert "\n" not in caught.value.message
    assert (_names(table, s3), table.snapshot().version) == (before, version)


# Credentials that expire again and again while it runs.

KEYS = pa.schema([("x", pa.int64()), ("y", pa.int64())])
GROUP_ROWS = 2000
SHUFFLED = liquidspark.ExecutorOptions(single_task_bytes=1)


@pytest.fixture
def new_table(s3: Emulator) -> Callable[[int], str]:
    def make(appends: int) -> str:
        made = Table.create(
            s3.new_table(), schema=KEYS, cluster_by=["x", "y"], storage_options=s3.direct_options
        )
        for start in range(appends):
            numbers = range(start * GROUP_ROWS, (start + 1) * GROUP_ROWS)
            columns = ([n * factor % 1000 for n in numbers] for factor in (7919, 104729))
            made.append(pa.table(dict(zip(KEYS.names, columns, strict=True)), schema=KEYS))
        return made.uri

    return make


def test_a_run_outlives_its_tokens(
    spark: SparkSession, s3: Emulator, new_table: Callable[[int], str]
) -> None:
    uri = new_table(6)
    tokens = Tokens(s3, lambda _: 80)
    table = Table.open(uri, storage_options=tokens)
    plan = table.plan(max_file_size=4_000)
    s3.proxy.requests.clear()
    groups = liquidspark.execute_groups(spark, plan, options=SHUFFLED, storage_options=tokens)
    report = table.commit_each(plan, groups)
    report.require_success()
    assert report.rows_verified == 6 * GROUP_ROWS
    assert tokens.given > 3
    assert len(s3.proxy.requests) > 80, "no token is good for the whole run"


def test_a_job_whose_token_expires_begins_again_with_another(
    spark: SparkSession, s3: Emulator, new_table: Callable[[int], str]
) -> None:
    uri = new_table(3)
    plan = Table.open(uri, storage_options=s3.direct_options).plan(max_file_size=4_000)
    # Token 0 is for the probe, 1 for the first job, 3 for the job that begins again.
    tokens = Tokens(s3, lambda number: 2 if number in {1, 3} else 10_000)
    result = liquidspark.execute(spark, plan, storage_options=tokens)
    assert sum(group.rows_written for group in result.groups) == 3 * GROUP_ROWS
    assert tokens.refused
    table = Table.open(uri, storage_options=s3.direct_options)
    table.commit_each(plan, result.groups).require_success()


def test_what_stays_refused_fails_its_group_and_leaves_nothing(
    spark: SparkSession, s3: Emulator, new_table: Callable[[int], str]
) -> None:
    uri = new_table(2)
    table = Table.open(uri, storage_options=s3.direct_options)
    plan = table.plan()
    broken = plan.groups[0].inputs[0].path
    tokens = Tokens(s3, lambda _: 10_000)
    allowed = s3.proxy.refuse
    s3.proxy.refuse = lambda r: (
        403
        if r.method == "GET" and broken in r.target and "list-type" not in r.target
        else allowed(r)
    )
    with pytest.raises(ExecutorError) as failure:
        liquidspark.execute(spark, plan, storage_options=tokens)
    assert "S3ntinel" not in str(failure.value)
    s3.proxy.clear()
    assert list(table.orphans(older_than="0s")) == []
    assert sum(table.files()["num_records"].to_pylist()) == 2 * GROUP_ROWS


def test_a_managed_rewrite_outlives_what_its_catalog_vends(
    spark: SparkSession, s3: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*ADDRESSES, *TOKENS, TOKEN_FILE, *(n for n in os.environ if n.startswith("AWS_"))):
        monkeypatch.delenv(name, raising=False)
    fields = [
        {"name": name, "type": "long", "nullable": True, "metadata": {}} for name in KEYS.names
    ]
    with imitation(tmp_path) as catalog:
        monkeypatch.setenv(ADDRESSES[0], catalog.url)
        tokens = Tokens(s3, lambda _: 40)
        public = vend_from(catalog, s3, tokens)
        catalog.create("t", fields, KEYS.names)
        table = Table("unity://unity.default.t", storage_options=public)
        for start in range(4):
            numbers = range(start * GROUP_ROWS, (start + 1) * GROUP_ROWS)
            columns = ([n * factor % 1000 for n in numbers] for factor in (7919, 104729))
            table.append(pa.table(dict(zip(KEYS.names, columns, strict=True)), schema=KEYS))
        plan = table.plan(max_file_size=4_000, min_cube_size=1, target_cube_size=1)
        assert len(plan.groups) == 4
        given, sent = tokens.given, len(s3.proxy.requests)
        groups = liquidspark.execute_groups(spark, plan, options=SHUFFLED, storage_options=public)
        report = table.commit_each(plan, groups)
        report.require_success()
        assert report.rows_verified == 4 * GROUP_ROWS
        assert tokens.given - given > 3
        assert len(s3.proxy.requests) - sent > 120, "three tokens expire meanwhile"
        document = encode_plan(plan)
        assert b"S3ntinel" not in document
        assert b"unity://unity.default.t" in document
