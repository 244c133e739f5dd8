"""OPTIMIZE of a table in an object store: workers read and write through fsspec."""

import json

import duckdb
import fsspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import liquidspark
from liquidlog.cli.main import cli, run
from liquidlog.errors import ExecutorError
from liquidlog.table import Table
from support.emulators import SENTINEL, Emulator

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


def test_a_shuffled_group_and_a_plan_without_secrets(
    spark: SparkSession, table: Table, s3: Emulator
) -> None:
    rows = _rows(table, s3)
    plan = table.plan(max_file_size=4_000)
    options = liquidspark.ExecutorOptions(single_task_bytes=1)
    groups = list(
        liquidspark.execute_groups(spark, plan, options=options, storage_options=s3.options)
    )
    assert SENTINEL not in repr(groups)
    report = table.commit_each(plan, groups)
    report.require_success()
    assert report.rows_verified == ROWS
    assert _rows(table, s3) == rows


def test_a_failed_group_leaves_nothing(spark: SparkSession, table: Table, s3: Emulator) -> None:
    plan = table.plan(max_file_size=4_000)
    before = _names(table, s3)
    broken = plan.groups[0].inputs[0].path
    s3.proxy.refuse = lambda r: 403 if r.method == "GET" and broken in r.target else None
    with pytest.raises(ExecutorError) as failure:
        liquidspark.execute(spark, plan, storage_options=s3.options)
    assert SENTINEL not in str(failure.value)
    s3.proxy.clear()
    assert _names(table, s3) == before


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
