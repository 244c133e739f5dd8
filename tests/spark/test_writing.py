"""DataFrames that are appended to tables. What cannot succeed commits nothing and loses nothing."""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from liquidlog import Table
from liquidlog.data.runs import runs_in
from liquidlog.errors import CommitConflictError, ExecutorError, SchemaMismatchError, UsageError
from liquidlog.spec.schema import StructType, parse_schema
from liquidspark import append, overwrite, writing
from support.spark_servers import interpreter
from support.written import (
    SHUFFLED,
    TYPED,
    data_files,
    expected,
    nested_schema,
    numbers,
    require_untouched,
    rows_of,
    table_of,
    typed_frame,
    typed_table,
)

MICROSECOND = dt.timedelta(microseconds=1)

pytestmark = pytest.mark.spark


@pytest.mark.sparks
@pytest.mark.parametrize(
    "given",
    [{}, {"options": SHUFFLED, "max_file_size": "16KiB"}, {"cluster": False}],
    ids=["whole", "shuffled", "plain"],
)
def test_an_append_holds_the_rows_of_the_frame(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any]
) -> None:
    table = table_of(tmp_path)
    done = append(numbers(spark, 5000), table, **given)
    assert (done.version, done.rows, done.skipped) == (1, 5000, False)
    assert done.files == table.files().num_rows
    assert rows_of(table) == expected(5000)
    assert runs_in(table.uri) == ()
    assert data_files(table) == set(table.files()["path"].to_pylist())


@pytest.mark.sparks
def test_spark_reads_ancient_dates_as_they_were_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema([("d", pa.date32()), ("t", pa.timestamp("us", "UTC")), ("i", pa.int64())])
    table = table_of(tmp_path, schema, cluster_by=["d"])
    texts = [("0001-01-01", "0001-01-02 03:04:05.678901"), ("1582-10-04", "1899-12-31 00:00:00")]
    values = ", ".join(f"('{day}', TIMESTAMP'{time} UTC')" for day, time in texts)
    frame = spark.sql(f"SELECT cast(d AS date) d, t, 1L AS i FROM VALUES {values} AS v(d, t)")
    append(frame, table)
    append(frame, table, cluster=False)
    days = [dt.date.fromisoformat(day) for day, _ in texts]
    times = [dt.datetime.fromisoformat(f"{time}+00:00") for _, time in texts]
    table.append(pa.table([days, times, [1, 1]], schema=schema))
    micros = [(time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // MICROSECOND for time in times]
    wanted = sorted(3 * list(zip([day for day, _ in texts], micros, strict=True)))

    def require_read() -> None:
        files = [f"{tmp_path}/t/{path}" for path in table.files()["path"].to_pylist()]
        for mode in ("EXCEPTION", "LEGACY"):
            read = spark.read.option("datetimeRebaseMode", mode).parquet(*files)
            rows = read.selectExpr("cast(d AS string) d", "unix_micros(t) t").collect()
            assert sorted(map(tuple, rows)) == wanted

    require_read()
    table.optimize(full=True, executor="local")
    require_read()


@pytest.mark.sparks
def test_an_append_is_blind_only_if_its_plan_shows_that_it_reads_nothing_of_the_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_of(tmp_path)

    def appended(frame: DataFrame, **given: Any) -> bool:
        append(frame, table, cluster=False, **given)
        return bool(table.history(1)[0]["isBlindAppend"])

    made = numbers(spark, 3)
    assert appended(made)
    assert not appended(made, blind=False)
    files = [f"{table.uri}/{path}" for path in table.files()["path"].to_pylist()]
    own = spark.read.parquet(*files)
    assert not appended(own)
    assert not appended(made.join(own.select("id"), "id"))
    assert not appended(made.where(f"id IN (SELECT id FROM parquet.`{files[0]}`)"))
    assert not appended(made.where(f"id <= (SELECT max(id) FROM parquet.`{files[0]}`)"))
    assert not appended(own.persist())
    assert not appended(spark.createDataFrame(own.toPandas(), own.schema))
    assert appended(spark.createDataFrame(own.toPandas(), own.schema), blind=True)
    (tmp_path / "link").symlink_to(table.uri)
    assert not appended(spark.read.parquet(f"{tmp_path}/link/*.parquet"))
    made.write.parquet(f"{tmp_path}/elsewhere")
    assert appended(spark.read.parquet(f"{tmp_path}/elsewhere"))


def test_a_clustered_append_is_one_partial_cube_with_narrow_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_of(tmp_path)
    append(numbers(spark, 20_000), table, options=SHUFFLED, max_file_size="16KiB")
    (cube,) = table.cubes().to_pylist()
    assert (cube["state"], cube["zorder_by"], cube["provider"]) == (
        "partial", '["id","k"]', "liquid",
    )  # fmt: skip
    assert cube["files"] >= 4
    assert len(table.scan("id = 77").files) <= cube["files"] / 2
    assert len(table.scan("k = 77").files) < cube["files"]
    assert table.health().unclustered_file_count == 0
    plan = table.plan(min_cube_size="1GiB")
    assert not plan.groups  # a lone partial cube is left alone
    append(numbers(spark, 100), table)
    assert {len(group.inputs) for group in table.plan().groups} == {cube["files"] + 1}


def test_the_same_frame_gives_the_same_files(spark: SparkSession, tmp_path: Path) -> None:
    stats = []
    for name in ("a", "b"):
        table = table_of(tmp_path / name)
        append(numbers(spark, 9000), table, options=SHUFFLED, max_file_size="16KiB")
        stats.append(sorted(table.files()["size_bytes"].to_pylist()))
    assert stats[0] == stats[1]


def test_skewed_and_empty_partitions_are_sampled_evenly(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_of(tmp_path)
    frame = numbers(spark, 30_000).where("id < 14000 OR id > 29900")
    append(frame, table, options=SHUFFLED, max_file_size="16KiB")
    counts = table.files()["num_records"].to_pylist()
    assert sum(counts) == 14_099
    assert max(counts) < 3 * min(counts)


@pytest.mark.parametrize("given", [{}, {"options": SHUFFLED}, {"cluster": False}], ids=str)
def test_every_type_arrives_exactly(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any]
) -> None:
    table, frame = typed_table(tmp_path), typed_frame(spark)
    append(frame, table, **given)
    paths = [str(Path(table.uri) / path) for path in table.files()["path"].to_pylist()]
    plain = [name for name, _, _ in TYPED if name != "v"]
    back = spark.read.parquet(*paths)
    texts = [f"cast({name} as string) {name}" for name in plain]
    kept = [*texts, "hex(to_json(v)) v"]
    stored = [*texts, "hex(to_json(v)) v"] if dict(back.dtypes)["v"] == "variant" else texts
    wanted = frame.selectExpr("id", *(kept if len(stored) == len(kept) else texts))
    found = back.selectExpr("id", *stored)
    assert wanted.exceptAll(found).isEmpty()
    assert found.count() == 300


@pytest.mark.sparks
def test_structs_are_matched_by_name_and_what_they_lack_is_null(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_of(tmp_path, nested_schema(), cluster_by=["id"])
    frame = spark.range(3).selectExpr(
        "map(concat('k', id), named_struct('x', cast(id as int))) AS m",
        "IF(id = 1, NULL, named_struct('B', array('u', NULL), 'a', id)) AS ST",
        "id",
    )
    append(frame, table)
    assert rows_of(table) == [
        {"id": 0, "st": {"a": 0, "b": ["u", None], "late": None}, "m": [("k0", {"x": 0})]},
        {"id": 1, "st": None, "m": [("k1", {"x": 1})]},
        {"id": 2, "st": {"a": 2, "b": ["u", None], "late": None}, "m": [("k2", {"x": 2})]},
    ]
    overwrite(frame.where("id = 2"), table, where="id > 1")
    assert [row["id"] for row in rows_of(table)] == [0, 1, 2]


def test_missing_columns_are_null_and_narrow_types_become_wide(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_of(tmp_path)
    append(spark.range(2).selectExpr("cast(id as int) AS ID"), table)
    assert rows_of(table) == [{"id": i, "k": None, "s": None} for i in range(2)]


def test_another_schema_is_refused_with_every_problem(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    with pytest.raises(SchemaMismatchError) as caught:
        append(spark.range(2).selectExpr("id", "id AS k", "id AS ID", "interval 1 day AS s"), table)
    assert len(caught.value.problems) == 4
    require_untouched(table, 0)


def test_merge_schema_adds_columns_that_can_be_null(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path, properties={"delta.columnMapping.mode": "name"})
    append(numbers(spark, 3), table)
    frame = numbers(spark, 2, start=3).selectExpr(
        "*", "named_struct('z', id) AS extra", "date'2024-01-01' AS day"
    )
    assert append(frame, table, merge_schema=True).version == 2
    schema = table.snapshot().schema
    assert [field.name for field in schema.fields] == ["id", "k", "s", "extra", "day"]
    assert all(field.nullable for field in schema.fields)
    assert table.snapshot().metadata.configuration["delta.columnMapping.maxColumnId"] == "6"
    append(numbers(spark, 2, start=9), table)
    assert table.health().total_file_count == 3
    with pytest.raises(SchemaMismatchError):
        append(
            spark.range(1).selectExpr("id", "timestamp_ntz'2024-01-01' n"), table, merge_schema=True
        )
    require_untouched(table, 3)


def with_fields(**metadata: str) -> StructType:
    """Return the schema (id long not null, g long, c string) with metadata of fields, as JSON."""
    kinds = {"id": ("long", "false"), "g": ("long", "true"), "c": ("string", "true")}
    fields = ",".join(
        f'{{"name":"{name}","type":"{kind}","nullable":{nullable},'
        f'"metadata":{metadata.get(name, "{}")}}}'
        for name, (kind, nullable) in kinds.items()
    )
    return parse_schema(f'{{"type":"struct","fields":[{fields}]}}', where="a test")


def test_rules_of_the_table_hold_for_every_row(spark: SparkSession, tmp_path: Path) -> None:
    schema = with_fields(
        g='{"delta.generationExpression":"id * 2"}',
        c='{"__CHAR_VARCHAR_TYPE_STRING":"varchar(5)","delta.invariants":'
        '"{\\"expression\\":{\\"expression\\":\\"c <> \'no\'\\"}}"}',
    )
    properties = {
        "delta.constraints.small": "id < 1000",
        "delta.feature.generatedColumns": "supported",
    }
    table = table_of(tmp_path, schema, cluster_by=["id"], properties=properties)
    append(spark.range(5).selectExpr("id", "'yes' AS c"), table)
    append(spark.range(5, 7).selectExpr("id", "id * 2 AS g", "'' AS c"), table)
    assert [row["g"] for row in rows_of(table)] == [0, 2, 4, 6, 8, 10, 12]
    wrong = {
        "longer than varchar(5)": ["id", "'longer' AS c"],
        "the CHECK constraint small (id < 1000)": ["id + 999 AS id", "'yes' AS c"],
        "the generating expression id * 2 of g": ["id", "id AS g", "'yes' AS c"],
        "the invariant c <> 'no' of c": ["id", "'no' AS c"],
        "is not true of 5 of 5": ["id", "cast(NULL AS string) AS c"],
        "small (id < 1000) is not true of 1 of 5": ["IF(id = 3, 1003, id) AS id", "'' AS c"],
    }
    for number, (sentence, expressions) in enumerate(wrong.items()):
        # Rows are checked by the same tasks in all three ways.
        for given in ({}, {"options": SHUFFLED}, {"cluster": False})[number % 3 :: 3]:
            with pytest.raises(ExecutorError) as caught:
                append(spark.range(0, 5, 1, 1).selectExpr(*expressions), table, **given)
            assert sentence in caught.value.message
            assert caught.value.message.endswith("nothing was committed")
            assert "\n" not in caught.value.message
            require_untouched(table, 2)


def test_columns_that_must_not_be_null_are_not(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path, with_fields(), cluster_by=["g"])
    with pytest.raises(SchemaMismatchError, match="id is missing, and must not be null"):
        append(spark.range(2).selectExpr("id AS g"), table)
    for given in ({}, {"options": SHUFFLED}, {"cluster": False}):
        with pytest.raises(ExecutorError, match="id must not be null, 1 rows are"):
            append(spark.range(5).selectExpr("IF(id = 3, NULL, id) AS id"), table, **given)
        require_untouched(table, 0)


@pytest.mark.sparks
def test_a_frame_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    frame = numbers(spark, 4000).selectExpr(
        "id", "k", "IF(id = 3999, raise_error('the source broke'), s) AS s"
    )
    for given in ({}, {"options": SHUFFLED}, {"cluster": False}):
        with pytest.raises(ExecutorError, match="the source broke") as caught:
            append(frame, table, **given)
        assert "nothing was committed" in caught.value.message
        require_untouched(table, 0)


def test_no_rows_make_no_commit(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    for cluster in (True, False):
        done = append(numbers(spark, 10).where("id < 0"), table, cluster=cluster)
        assert (done.version, done.files, done.rows) == (0, 0, 0)
    require_untouched(table, 0)


def test_a_transaction_is_committed_once(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    assert append(numbers(spark, 10), table, txn=("job", 1)).version == 1
    again = append(numbers(spark, 10), table.uri, txn=("job", 1))
    assert (again.version, again.skipped) == (1, True)
    assert append(numbers(spark, 10), table, txn=("job", 2)).version == 2
    assert append(numbers(spark, 10), table, txn=("other", 1)).version == 3
    assert table.opened.last_transaction("job") == 2
    assert len(rows_of(table)) == 30


def test_a_transaction_that_lands_meanwhile_is_not_committed_twice(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(tmp_path)
    write_frame = writing.write_frame

    def slow(*given: Any, **named: Any) -> Any:
        result = write_frame(*given, **named)
        monkeypatch.setattr(writing, "write_frame", write_frame)
        append(numbers(spark, 10), table.uri, txn=("job", 1))
        return result

    monkeypatch.setattr(writing, "write_frame", slow)
    done = append(numbers(spark, 10), table, txn=("job", 1))
    assert (done.version, done.skipped) == (1, True)
    assert len(rows_of(table)) == 10
    require_untouched(table, 1)


def test_a_change_of_the_table_is_a_conflict(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(tmp_path)
    write_frame = writing.write_frame

    def slow(*given: Any, **named: Any) -> Any:
        result = write_frame(*given, **named)
        Table.open(table.uri).cluster_by(["k"])
        return result

    monkeypatch.setattr(writing, "write_frame", slow)
    with pytest.raises(CommitConflictError):
        append(numbers(spark, 10), table)
    require_untouched(table, 1)


def test_row_ids_and_in_commit_timestamps_are_kept_up(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        properties={"delta.enableRowTracking": "true", "delta.enableInCommitTimestamps": "true"},
    )
    append(numbers(spark, 10), table)
    append(numbers(spark, 10), table, cluster=False)
    files = table.snapshot().files
    ends = sorted(
        zip(files["base_row_id"].to_pylist(), files["num_records"].to_pylist(), strict=True)
    )
    position = 0
    for first, count in ends:
        assert first == position
        position += count
    assert position == 20


def test_a_table_without_clustering_columns_takes_plain_appends(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = table_of(tmp_path, cluster_by=None)
    with pytest.raises(UsageError, match="no clustering columns"):
        append(numbers(spark, 10), table)
    append(numbers(spark, 10), table, cluster=False, max_file_size="1KiB")
    assert rows_of(table) == expected(10)
    with pytest.raises(UsageError, match="txn"):
        append(numbers(spark, 10), table, cluster=False, txn="job")  # type: ignore[arg-type]


def test_workers_that_lack_the_package_are_refused_before_any_work(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(tmp_path)
    bare = interpreter(tmp_path / "bare", packages=None, options="-S -P")
    with monkeypatch.context() as patched:
        patched.setattr(spark.sparkContext, "pythonExec", bare)
        with pytest.raises(ExecutorError, match="the workers cannot import pyarrow") as caught:
            append(numbers(spark, 10), table)
    assert "\n" not in caught.value.message
    require_untouched(table, 0)
