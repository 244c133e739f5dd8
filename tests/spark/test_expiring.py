"""OPTIMIZE of a table whose credentials expire again and again while it runs."""

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import liquidspark
from liquidlog.errors import ExecutorError
from liquidlog.table import Table
from support.emulators import Emulator, Tokens

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64())])
GROUP_ROWS = 2000
SHUFFLED = liquidspark.ExecutorOptions(single_task_bytes=1)
WHOLE = liquidspark.ExecutorOptions()


@pytest.fixture
def new_table(s3: Emulator) -> Callable[[int], str]:
    def make(appends: int) -> str:
        made = Table.create(
            s3.new_table(), schema=SCHEMA, cluster_by=["x", "y"], storage_options=s3.direct_options
        )
        for start in range(appends):
            numbers = range(start * GROUP_ROWS, (start + 1) * GROUP_ROWS)
            columns = ([n * factor % 1000 for n in numbers] for factor in (7919, 104729))
            made.append(pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA))
        return made.uri

    return make


def _rows(uri: str, s3: Emulator) -> int:
    return int(
        sum(Table.open(uri, storage_options=s3.direct_options).files()["num_records"].to_pylist())
    )


@pytest.mark.parametrize("options", [WHOLE, SHUFFLED])
def test_a_run_outlives_its_tokens(
    spark: SparkSession,
    s3: Emulator,
    new_table: Callable[[int], str],
    options: liquidspark.ExecutorOptions,
) -> None:
    uri = new_table(6)
    tokens = Tokens(s3, lambda _: 80)
    table = Table.open(uri, storage_options=tokens)
    plan = table.plan(max_file_size=4_000)
    s3.proxy.requests.clear()
    groups = liquidspark.execute_groups(spark, plan, options=options, storage_options=tokens)
    report = table.commit_each(plan, groups)
    report.require_success()
    assert report.rows_verified == 6 * GROUP_ROWS
    assert tokens.given > 3
    assert len(s3.proxy.requests) > 80, "no token is good for the whole run"


@pytest.mark.parametrize("options", [WHOLE, SHUFFLED])
def test_a_job_whose_token_expires_begins_again_with_another(
    spark: SparkSession,
    s3: Emulator,
    new_table: Callable[[int], str],
    options: liquidspark.ExecutorOptions,
) -> None:
    uri = new_table(3)
    plan = Table.open(uri, storage_options=s3.direct_options).plan(max_file_size=4_000)
    # Token 0 is for the probe, 1 for the first job, 3 for the job that begins again.
    tokens = Tokens(s3, lambda number: 2 if number in {1, 3} else 10_000)
    result = liquidspark.execute(spark, plan, options=options, storage_options=tokens)
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
    assert _rows(uri, s3) == 2 * GROUP_ROWS
