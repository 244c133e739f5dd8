"""The data source "liquid": DataFrames appended by it, tables read by it."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from liquidlog import Table
from liquidlog.data.runs import Run, runs_in
from liquidlog.errors import CorruptLogError, UsageError
from liquidlog.spec.schema import parse_schema
from liquidspark import append, read, register
from liquidspark.settings import settings_applied
from support.written import (
    NOWHERE,
    TYPED,
    data_files,
    expected,
    nested_schema,
    numbers,
    require_untouched,
    rows_of,
    table_of,
    table_with_lost_vector,
    typed_frame,
    typed_table,
)

pytestmark = pytest.mark.spark


@pytest.fixture
def source(spark: SparkSession) -> SparkSession:
    if spark.version.startswith("3."):
        pytest.skip("this Spark has no data sources in Python")
    register(spark)
    return spark


def save(frame: DataFrame, table: Table, mode: str = "append", **options: Any) -> None:
    frame.write.format("liquid").mode(mode).options(**options).save(table.uri)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.collect())


@pytest.mark.sparks
def test_older_versions_are_told_what_to_use(spark: SparkSession, tmp_path: Path) -> None:
    if not spark.version.startswith("3."):
        pytest.skip("this Spark has data sources in Python")
    with pytest.raises(UsageError, match=r"PySpark 4\.0 or newer"):
        register(spark)
    with pytest.raises(UsageError, match=r"PySpark 4\.0 or newer"):
        read(spark, table_of(tmp_path))


@pytest.mark.sparks
@pytest.mark.parametrize(
    "given", [{}, {"cluster": True, "maxFileSize": "1MiB"}], ids=["plain", "sorted"]
)
def test_an_append_is_one_commit_with_the_rows(
    source: SparkSession, tmp_path: Path, given: dict[str, Any]
) -> None:
    table = table_of(tmp_path)
    save(numbers(source, 5000), table, **given)
    assert table.update().version == 1
    assert rows_of(table) == expected(5000)
    assert runs_in(table.uri) == ()
    assert data_files(table) == set(table.files()["path"].to_pylist())
    assert not table.cubes().num_rows  # the next OPTIMIZE takes what tasks sorted by themselves
    assert table.files().num_rows == 4
    save(numbers(source, 100), table, "overwrite")
    assert rows_of(table) == expected(100)
    history = table.history(1)[0]
    assert history["operationParameters"]["mode"] == "Overwrite"


def test_a_transaction_is_committed_once(source: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    for _ in range(2):
        save(numbers(source, 10), table, txnAppId="job", txnVersion=3)
    assert (table.update().version, table.transaction("job")) == (1, 3)
    assert rows_of(table) == expected(10)


def test_columns_are_matched_widened_added_or_null(source: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path, nested_schema(), cluster_by=["id"])
    frame = source.range(2).selectExpr(
        "map('k', named_struct('x', cast(id as int))) AS m",
        "IF(id = 1, NULL, named_struct('B', array('u', NULL), 'a', id)) AS ST",
        "cast(id as int) AS id",
        "'new' AS late",
    )
    save(frame, table, mergeSchema=True)
    assert rows_of(table) == [
        {
            "id": 0,
            "st": {"a": 0, "b": ["u", None], "late": None},
            "m": [("k", {"x": 0})],
            "late": "new",
        },
        {"id": 1, "st": None, "m": [("k", {"x": 1})], "late": "new"},
    ]
    found = {row.id: row for row in read(source, table).collect()}
    assert (found[1].st, found[0].st.b, found[0].m["k"].x) == (None, ["u", None], 0)


@pytest.mark.parametrize(
    ("expressions", "options", "said"),
    [
        (["id AS k"], {}, "column k is long, the table's is integer"),
        (["id"], {"clusters": "true"}, "did you mean cluster"),
        (["id"], {"cluster": "yes"}, "cluster is true or false, not 'yes'"),
        (["id"], {"txnAppId": "a"}, "given together"),
        (["id"], {"versionAsOf": "0"}, "writing has no option"),
        (["id"], {"storage.nothing": "x"}, "option"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(
    source: SparkSession,
    tmp_path: Path,
    expressions: list[str],
    options: dict[str, Any],
    said: str,
) -> None:
    table = table_of(tmp_path)
    with pytest.raises(PySparkException, match=said):
        save(source.range(3).selectExpr(*expressions), table, **options)
    require_untouched(table, 0)


def test_what_only_sql_can_evaluate_is_refused(source: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path, properties={"delta.constraints.few": "id < 5"})
    with pytest.raises(PySparkException, match=r"the CHECK constraint few .* liquidspark.append"):
        save(source.range(3), table)
    require_untouched(table, 0)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_rows_that_fail_leave_nothing(source: SparkSession, tmp_path: Path, mode: str) -> None:
    table = table_of(tmp_path)
    append(numbers(source, 10), table)
    failing = numbers(source, 5000).selectExpr("IF(id = 4000, raise_error('no'), id) AS id")
    with pytest.raises(PySparkException):
        save(failing, table, mode)
    require_untouched(table, 1)
    assert rows_of(table) == expected(10)


def test_values_that_do_not_fit_leave_nothing(source: SparkSession, tmp_path: Path) -> None:
    schema = parse_schema(
        '{"type":"struct","fields":[{"name":"id","type":"long","nullable":false,"metadata":{}},'
        '{"name":"s","type":"string","nullable":true,'
        '"metadata":{"__CHAR_VARCHAR_TYPE_STRING":"varchar(3)"}}]}',
        where="a test",
    )
    table = table_of(tmp_path, schema, cluster_by=["id"])
    for expressions, said in (
        (["id", "'long' AS s"], "longer than varchar"),
        (["nullif(id, 1) AS id"], "must not be null"),
    ):
        with pytest.raises(PySparkException, match=said):
            save(source.range(3).selectExpr(*expressions), table)
    require_untouched(table, 0)


def test_a_conflict_leaves_nothing(
    source: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table changes while rows are on their way: the commit, then the abort, run on it."""
    from liquidspark.receiving import RowsWriter, table_writer
    from liquidspark.source_options import write_options

    table = table_of(tmp_path)
    frame = numbers(source, 10)
    writer = table_writer(write_options({"path": table.uri}), frame.schema, overwrite=True)
    assert isinstance(writer, RowsWriter)
    monkeypatch.setattr("liquidspark.receiving.prepare_worker", lambda: None)
    done = writer.write(iter(frame.toArrow().to_batches()))
    append(frame, table)
    with pytest.raises(Exception, match="file"):
        writer.commit([done])
    writer.abort([done])
    require_untouched(table, 1)


def test_an_abort_keeps_what_may_be_committed(source: SparkSession, tmp_path: Path) -> None:
    from liquidspark.receiving import RowsWriter, table_writer
    from liquidspark.source_options import write_options

    table = table_of(tmp_path)
    frame = numbers(source, 10)
    writer = table_writer(write_options({"path": table.uri}), frame.schema, overwrite=False)
    assert isinstance(writer, RowsWriter)
    done = writer.write(iter(frame.toArrow().to_batches()))
    result = writer._result([done])
    from liquidlog.plan import files_digest

    run = Run(table.uri, result.run)
    run.finish(files_digest(result.outputs), keep={one.path for one in result.outputs})
    writer.abort([done])  # as if the answer to the commit had been lost
    table.commit_write(writer.plan, result)
    assert rows_of(table) == expected(10)


@pytest.mark.sparks
@pytest.mark.parametrize("cluster", ["true", "false"])
def test_every_type_is_read_exactly(source: SparkSession, tmp_path: Path, cluster: str) -> None:
    table, frame = typed_table(tmp_path), typed_frame(source)
    save(frame, table, cluster=cluster)
    kept = [f"cast({name} as string) {name}" for name, _, _ in TYPED if name != "v"]
    kept = ["id", *kept, "hex(bin) h", "to_json(v) j", "double('-0.0') <=> d z"]
    found = read(source, table)
    assert [one.dataType for one in found.schema] == [one.dataType for one in frame.schema]
    wanted, found = frame.selectExpr(*kept), found.selectExpr(*kept)
    assert found.count() == 1500
    assert wanted.exceptAll(found).isEmpty()


def test_a_table_is_read_at_a_version_and_only_the_columns_asked_for(
    source: SparkSession, tmp_path: Path
) -> None:
    table = table_of(tmp_path)
    for start in (0, 1000, 2000):
        append(numbers(source, 1000, start=start), table)
    first = source.read.format("liquid").load(table.uri)
    assert first.count() == 3000
    save(numbers(source, 7), table, "overwrite")
    assert first.count() == 3000  # a DataFrame is of one version
    assert read(source, table).count() == 7
    assert ids(read(source, table, version=1)) == list(range(1000))
    opened = Table.open(table.uri, version=2)
    assert read(source, opened).count() == 2000
    found = read(source, opened, columns=["s", "id"], where="id >= 1990")
    assert (found.columns, ids(found)) == (["s", "id"], list(range(1990, 2000)))
    given = source.read.schema("k INT").format("liquid").load(table.uri)
    assert sorted(row.k for row in given.collect()) == sorted(i * 7919 % 1000 for i in range(7))
    with pytest.raises(PySparkException, match="column k is integer, not string"):
        source.read.schema("k STRING").format("liquid").load(table.uri).collect()
    with pytest.raises(PySparkException, match="which the table lacks"):
        source.read.format("liquid").option("columns", "no").load(table.uri)
    with pytest.raises(UsageError, match="no"):
        read(source, table, where="no = 1")


def test_files_without_rows_that_are_asked_for_are_not_opened(
    source: SparkSession, tmp_path: Path
) -> None:
    table = table_of(tmp_path, cluster_by=["id"])
    for start in (0, 1000, 2000):
        append(numbers(source, 1000, start=start), table)
    found = read(source, table, where="id BETWEEN 1200 AND 1300 AND s LIKE 'row%'")
    wanted = table.scan_files("id = 1250")["path"].to_pylist()
    for path in set(table.files()["path"].to_pylist()) - set(wanted):
        (Path(table.uri) / path).unlink()  # what is opened must be there
    assert ids(found) == list(range(1200, 1301))
    with pytest.raises(PySparkException):
        read(source, table).collect()


@pytest.mark.sparks
def test_queries_of_one_dataframe_do_not_share_their_filters(
    source: SparkSession, tmp_path: Path
) -> None:
    """Spark shares what a source says of pushed filters among queries: none may be pushed."""
    table = table_of(tmp_path, cluster_by=["id"])
    for start in (0, 1000):
        append(numbers(source, 1000, start=start), table)
    with settings_applied(source, {"spark.sql.python.filterPushdown.enabled": "true"}):
        found = read(source, table)
        both = found.where("id = 5").union(found.where("id = 1005"))
        assert ids(both) == [5, 1005]
        assert (found.where("id = 5").count(), found.count()) == (1, 2000)


@pytest.mark.parametrize("nowhere", NOWHERE)
def test_deletion_vectors_that_are_nowhere_are_named(
    source: SparkSession, tmp_path: Path, nowhere: str
) -> None:
    from liquidspark.reading import TableReader

    table, path = table_with_lost_vector(source, tmp_path, nowhere)
    with pytest.raises(CorruptLogError, match=path):
        TableReader(table, numbers(source, 1).schema, None).partitions()


def test_large_files_are_read_in_parts(
    source: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from liquidspark import reading

    table = table_of(tmp_path, cluster_by=["id"])
    append(numbers(source, 20_000), table)
    monkeypatch.setattr(reading, "_TASK_BYTES", 1 << 13)
    monkeypatch.setattr(reading, "_MOST_TASK_BYTES", 1 << 13)
    found = reading.TableReader(table, numbers(source, 1).schema, None)
    partitions = found.partitions()
    assert len(partitions) > 4
    batches = [batch for one in partitions for batch in found.read(one)]
    assert sorted(i for batch in batches for i in batch.column("id").to_pylist()) == list(
        range(20_000)
    )
