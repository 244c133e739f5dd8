"""DataFrames that are appended to tables. What cannot succeed commits nothing and loses nothing."""

import datetime as dt
import json
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import liquidspark
from liquidlog.data.runs import runs_in
from liquidlog.errors import (
    CommitConflictError,
    ExecutorError,
    LiquidlogError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.spec.arrow import CHAR_VARCHAR, delta_schema
from liquidlog.spec.schema import StructType, parse_schema, schema_json
from liquidlog.table import Table
from liquidspark import ExecutorOptions, append, frames, overwrite, read

pytestmark = pytest.mark.spark

SHUFFLED = ExecutorOptions(single_task_bytes=0, slice_bytes=1 << 13, sample_rows=1 << 12)
PLAIN_SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int32()), ("s", pa.string())])
TYPED = [
    ("b", "byte", "cast(id % 100 as tinyint)"),
    ("sh", "short", "cast(id as smallint)"),
    ("i", "integer", "cast(id as int)"),
    ("f", "float", "cast(id / 3 as float)"),
    ("d", "double", "IF(id % 7 = 0, double('NaN'), IF(id % 5 = 0, -0.0D, id / 3))"),
    ("dec", "decimal(12,3)", "cast(id / 8 as decimal(12,3))"),
    (
        "wide",
        "decimal(38,10)",
        "cast(concat(id, '000000000000000000.0000000007') as decimal(38,10))",
    ),
    ("day", "date", "date_add(date'1582-10-20', cast(id as int))"),
    ("at", "timestamp", "timestamp_micros(id * 1000003 - 99999999999)"),
    ("ntz", "timestamp_ntz", "make_timestamp_ntz(1900, 1, 1, 0, 0, 0) + make_dt_interval(id)"),
    ("s", "string", "IF(id % 3 = 0, NULL, concat('\u00e9', char(0), id))"),
    ("bin", "binary", "unhex(hex(id))"),
    ("yes", "boolean", "id % 2 = 0"),
    ("v", "variant", "parse_json(concat('{\"a\":', id, '}'))"),
]
"""Columns of every type: name, type in the protocol, and an expression of `id`."""


def table_of(path: Path, schema: pa.Schema | StructType = PLAIN_SCHEMA, **given: Any) -> Table:
    return Table.create(path / "t", schema=schema, **({"cluster_by": ["id", "k"]} | given))


def typed_table(path: Path) -> Table:
    """A table of `id` and the columns of TYPED."""
    fields = ",".join(
        f'{{"name":"{name}","type":"{kind}","nullable":true,"metadata":{{}}}}'
        for name, kind, _ in (("id", "long", ""), *TYPED)
    )
    schema = parse_schema(f'{{"type":"struct","fields":[{fields}]}}', where="a test")
    features = {"delta.feature.timestampNtz": "supported", "delta.feature.variantType": "supported"}
    return table_of(path, schema, cluster_by=["id", "at"], properties=features)


def typed_frame(spark: SparkSession) -> DataFrame:
    """300 rows for it."""
    return spark.range(0, 300, 1, 2).selectExpr(
        "id", *(f"{expression} AS {name}" for name, _, expression in TYPED)
    )


def nested_schema() -> StructType:
    texts = pa.list_(pa.field("element", pa.string()))
    struct = pa.struct([("a", pa.int64()), ("b", texts), ("late", pa.date32())])
    mapped = pa.map_(pa.string(), pa.struct([("x", pa.int32())]))
    return delta_schema(pa.schema([("id", pa.int64()), ("st", struct), ("m", mapped)]))


def rows_of(table: Table) -> list[dict[str, Any]]:
    """Return the live rows of a table without deletion vectors, in any order."""
    paths = [Path(table.uri) / path for path in table.files()["path"].to_pylist()]
    found = [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]
    return sorted(found, key=repr)


def data_files(table: Table) -> set[str]:
    return {path.name for path in Path(table.uri).glob("*.parquet")}


def require_untouched(table: Table, version: int) -> None:
    """Nothing was committed, and no file is left."""
    assert table.snapshot().version == version
    assert data_files(table) == set(table.files()["path"].to_pylist())
    assert runs_in(table.uri) == ()


def numbers(spark: SparkSession, count: int, *, start: int = 0) -> DataFrame:
    return spark.range(start, start + count, 1, 4).selectExpr(
        "id", "cast(id * 7919 % 1000 as int) AS k", "concat('row ', id) AS s"
    )


def filled(table: Table, count: int, *, start: int = 0) -> Table:
    """Append to the table, without Spark, rows that `numbers` has."""
    table.append(pa.Table.from_pylist(expected(count, start=start), schema=PLAIN_SCHEMA))
    return table


def expected(count: int, *, start: int = 0) -> list[dict[str, Any]]:
    rows = [{"id": i, "k": i * 7919 % 1000, "s": f"row {i}"} for i in range(start, start + count)]
    return sorted(rows, key=repr)


def char_table(path: Path) -> Table:
    """A table whose texts of char(4) are stored as they were given: a, ab, null and abcd."""
    kinds = {"c": "char(4)", "st": "struct<c:char(4),n:int>", "m": "map<char(4),array<char(4)>>"}
    rows = pa.schema({
        "id": pa.int64(),
        "c": pa.string(),
        "st": pa.struct({"c": pa.string(), "n": pa.int32()}),
        "m": pa.map_(pa.string(), pa.list_(pa.string())),
        "v": pa.string(),
    })  # fmt: skip
    fields = json.loads(schema_json(delta_schema(rows)))["fields"]
    for field in fields:
        field["metadata"] = {CHAR_VARCHAR: kinds[field["name"]]} if field["name"] in kinds else {}
    text = json.dumps({"type": "struct", "fields": fields})
    table = table_of(path, parse_schema(text, where="a test"), cluster_by=["id"])
    texts = enumerate(["a", "ab", None, "abcd"])
    found = [
        {"id": i, "c": c, "st": c and {"c": c, "n": 1}, "m": [(c or "", [c])], "v": c}
        for i, c in texts
    ]
    table.append(pa.Table.from_pylist(found, schema=rows))
    return table


CHAR_TRUTH = {
    "c = 'a'": [0],
    "c = 'a   '": [0],
    "c IN ('a', 'ab  ')": [0, 1],
    "c LIKE 'a'": [],
    "length(c) = 4": [0, 1, 3],
    "c = v": [3],
    # Spark 3.5 compares with both ends, and pads them.
    "c BETWEEN 'a' AND 'ab'": [0] if pyspark.__version__ >= "4" else [0, 1],
    "st.c = 'ab  '": [1],
    "m['a   '][0] = 'a   '": [0],
}
"""Of which rows of `char_table` conditions are true, as Spark says of its own tables."""


MICROSECOND = dt.timedelta(microseconds=1)


@pytest.mark.sparks
@pytest.mark.parametrize(
    "given",
    [{}, {"options": SHUFFLED, "max_file_size": "16KiB"}, {"cluster": False}],
    ids=["whole", "shuffled", "plain"],
)
def test_appends_hold_their_rows(
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
def test_spark_reads_ancient_dates_as_written(spark: SparkSession, tmp_path: Path) -> None:
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


def test_a_clustered_append_is_a_cube_of_narrow_files(spark: SparkSession, tmp_path: Path) -> None:
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


def test_skewed_and_empty_partitions_are_sampled(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    frame = numbers(spark, 30_000).where("id < 14000 OR id > 29900")
    append(frame, table, options=SHUFFLED, max_file_size="16KiB")
    counts = table.files()["num_records"].to_pylist()
    assert sum(counts) == 14_099
    assert max(counts) < 3 * min(counts)


@pytest.mark.parametrize("given", [{"options": SHUFFLED}, {"cluster": False}], ids=str)
def test_every_type_arrives(spark: SparkSession, tmp_path: Path, given: dict[str, Any]) -> None:
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
    again = read(spark, table)
    assert [one.dataType for one in again.schema] == [one.dataType for one in frame.schema]
    kept = ["id", *texts, "hex(bin) h", "to_json(v) j", "double('-0.0') <=> d z"]
    assert frame.selectExpr(*kept).exceptAll(again.selectExpr(*kept)).isEmpty()


@pytest.mark.sparks
def test_structs_are_matched_by_name_or_filled_up(spark: SparkSession, tmp_path: Path) -> None:
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
    found = {row.id: row for row in read(spark, table).collect()}
    assert (found[1].st, found[0].st.b, found[2].m["k2"].x) == (None, ["u", None], 2)


def test_missing_columns_are_null_and_types_are_widened(
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
        given: dict[str, Any] = ({}, {"options": SHUFFLED}, {"cluster": False})[number % 3]
        with pytest.raises(ExecutorError) as caught:
            append(spark.range(0, 5, 1, 1).selectExpr(*expressions), table, **given)
        assert sentence in caught.value.message
        assert caught.value.message.endswith("nothing was committed")
        assert "\n" not in caught.value.message
        require_untouched(table, 2)
    with pytest.raises(SchemaMismatchError, match="id is missing, and must not be null"):
        append(spark.range(2).selectExpr("id AS g"), table)
    strict = table_of(tmp_path / "strict", with_fields(), cluster_by=["g"])
    with pytest.raises(ExecutorError, match="id must not be null, 1 rows are"):
        append(spark.range(5).selectExpr("IF(id = 3, NULL, id) AS id"), strict)
    require_untouched(strict, 0)


@pytest.mark.sparks
def test_a_frame_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    frame = numbers(spark, 4000).selectExpr(
        "id", "k", "IF(id = 3999, raise_error('the source broke'), s) AS s"
    )
    for given in ({"options": SHUFFLED}, {"cluster": False}):
        with pytest.raises(ExecutorError, match="the source broke") as caught:
            append(frame, table, **given)
        assert "nothing was committed" in caught.value.message
        require_untouched(table, 0)


def test_no_rows_make_no_commit(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    done = append(numbers(spark, 10).where("id < 0"), table)
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
    write_frame = frames.write_frame

    def slow(*given: Any, **named: Any) -> Any:
        result = write_frame(*given, **named)
        monkeypatch.setattr(frames, "write_frame", write_frame)
        append(numbers(spark, 10), table.uri, txn=("job", 1))
        return result

    monkeypatch.setattr(frames, "write_frame", slow)
    done = append(numbers(spark, 10), table, txn=("job", 1))
    assert (done.version, done.skipped) == (1, True)
    assert len(rows_of(table)) == 10
    require_untouched(table, 1)


def test_tables_without_columns_take_plain_appends(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path, cluster_by=None)
    with pytest.raises(UsageError, match="no clustering columns"):
        append(numbers(spark, 10), table)
    append(numbers(spark, 10), table, cluster=False, max_file_size="1KiB")
    assert rows_of(table) == expected(10)
    with pytest.raises(UsageError, match="txn"):
        append(numbers(spark, 10), table, cluster=False, txn="job")  # type: ignore[arg-type]


# DataFrames that are put in place of rows.


@pytest.mark.sparks
def test_overwriting_replaces_the_rows_of_a_condition(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    for start in (0, 1000, 2000):
        filled(table, 1000, start=start)
    done = overwrite(numbers(spark, 5, start=1100), table, where="id >= 1000 AND id < 2000")
    assert (done.version, done.replaced_files, done.rows) == (4, 1, 5)
    kept = [*expected(1000), *expected(5, start=1100), *expected(1000, start=2000)]
    assert rows_of(table) == sorted(kept, key=repr)
    done = overwrite(numbers(spark, 0), table, where="id < 500 OR id IS NULL")
    assert (done.replaced_files, done.rows) == (1, 500)
    assert len(rows_of(table)) == 1505
    done = overwrite(numbers(spark, 7), table, where="true")
    assert rows_of(table) == expected(7)


def test_rows_of_unknown_truth_stay(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    frame = spark.range(10).selectExpr(
        "IF(id = 3, NULL, id) AS id", "cast(id AS int) AS k", "'' AS s"
    )
    append(frame, table)
    overwrite(frame.limit(0), table, where="id >= 0")
    assert [(row["id"], row["k"]) for row in rows_of(table)] == [(None, 3)]


def test_conditions_see_texts_of_char_columns_padded_and_rows_stay_as_they_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = char_table(tmp_path)
    overwrite(read(spark, table).limit(0), table, where="c LIKE 'a' OR st.c = 'ab  '")
    assert {row["id"]: row["c"] for row in rows_of(table)} == {0: "a", 2: None, 3: "abcd"}
    overwrite(read(spark, table).limit(0), table, where="length(c) = 4 AND c <> 'abcd'")
    assert {row["id"]: row["c"] for row in rows_of(table)} == {2: None, 3: "abcd"}


def test_rows_that_come_are_judged_as_they_are_read(spark: SparkSession, tmp_path: Path) -> None:
    table = char_table(tmp_path)
    rows = spark.sql("SELECT 4L id, 'ab' c, 'ab' v")
    with pytest.raises(ExecutorError, match="is not true of 1 of 1 rows"):
        overwrite(rows, table, where="c = v")
    assert overwrite(rows, table, where="length(c) = 4").rows == 2


def test_rows_beside_the_condition_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = filled(table_of(tmp_path), 100)
    with pytest.raises(ExecutorError, match="the condition of the replaced rows"):
        overwrite(numbers(spark, 20), table, where="id < 10")
    for where in ("id < current_timestamp()", "nothing = 1", "id <"):
        with pytest.raises(UsageError):
            overwrite(numbers(spark, 5), table, where=where)
    require_untouched(table, 1)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("delta.appendOnly", UnsupportedFeatureError),
        ("delta.enableChangeDataFeed", UsageError),
        ("delta.enableRowTracking", UsageError),
    ],
)
def test_what_the_table_forbids_is_refused(
    spark: SparkSession, tmp_path: Path, name: str, error: type[LiquidlogError]
) -> None:
    table = filled(table_of(tmp_path, properties={name: "true"}), 100)
    with pytest.raises(error):
        overwrite(numbers(spark, 5), table, where="id < 10")
    require_untouched(table, 1)
    if error is UsageError:
        assert overwrite(numbers(spark, 5), table, where="id < 1000").version == 2
        assert rows_of(table) == expected(5)


def test_rows_that_come_while_others_are_replaced_are_a_conflict(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(table_of(tmp_path), 10)
    write_frame = frames.write_frame

    def slow(*given: Any, **named: Any) -> Any:
        result = write_frame(*given, **named)
        filled(Table.open(table.uri), 10, start=first)
        return result

    monkeypatch.setattr(frames, "write_frame", slow)
    first = 5
    with pytest.raises(CommitConflictError, match="were added that may have rows"):
        overwrite(numbers(spark, 5), table, where="id < 10")
    require_untouched(table, 2)
    first = 100
    overwrite(numbers(spark, 5), table, where="id < 50")
    assert rows_of(table) == sorted([*expected(5), *expected(10, start=100)], key=repr)


# Rows of tables as DataFrames: `liquidspark.read`.


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.collect())


@pytest.mark.sparks
def test_texts_of_char_columns_are_padded_as_spark_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = char_table(tmp_path)
    frames = {
        **{(where, "asked"): read(spark, table, where=where) for where in CHAR_TRUTH},
        **{(where, "filtered"): read(spark, table).where(where) for where in CHAR_TRUTH},
    }
    told = [frame.selectExpr(f"{n} AS n", "id") for n, frame in enumerate(frames.values())]
    rows = reduce(DataFrame.union, told).collect()
    found = [sorted(row.id for row in rows if row.n == n) for n in range(len(frames))]
    assert dict(zip(frames, found, strict=True)) == {case: CHAR_TRUTH[case[0]] for case in frames}
    first = read(spark, table, where="id = 0").collect()[0]
    padded = "a   "
    assert (first.c, first.st.c, first.m, first.v) == (padded, padded, {padded: [padded]}, "a")


@pytest.mark.sparks
def test_a_table_is_read_at_a_version_by_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path)
    assert read(spark, table).collect() == []
    for start in (0, 1000, 2000):
        filled(table, 1000, start=start)
    first = read(spark, table.uri)
    overwrite(numbers(spark, 7), table, where="true")
    assert first.count() == 3000  # a DataFrame is of one version
    assert read(spark, table).count() == 7
    assert ids(read(spark, table, version=1)) == list(range(1000))
    opened = Table.open(table.uri, version=2)
    assert read(spark, opened).count() == 2000
    found = read(spark, opened, columns=["s", "id"], where="id >= 1990")
    assert (found.columns, ids(found)) == (["s", "id"], list(range(1990, 2000)))
    with pytest.raises(UsageError, match="no, which the table lacks; it has id, k, s"):
        read(spark, table, columns="no")
    with pytest.raises(UsageError, match="columns names s, twice"):
        read(spark, table, columns=["s", "s"])
    with pytest.raises(UsageError, match="no"):
        read(spark, table, where="no = 1")


def test_files_without_asked_rows_are_not_opened(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of(tmp_path, cluster_by=["id"])
    for start in (0, 1000, 2000):
        filled(table, 1000, start=start)
    found = read(spark, table, where="id BETWEEN 1200 AND 1300 AND s LIKE 'row%'")
    wanted = table.scan("id = 1250").files["path"].to_pylist()
    for path in set(table.files()["path"].to_pylist()) - set(wanted):
        (Path(table.uri) / path).unlink()  # what is opened must be there
    assert ids(found) == list(range(1200, 1301))
    with pytest.raises(PySparkException):
        read(spark, table).collect()


@pytest.mark.sparks
def test_a_table_is_not_taken_for_a_small_one_in_joins(spark: SparkSession, tmp_path: Path) -> None:
    """Spark takes rows of Python functions to be as small as what goes into these."""
    table = filled(table_of(tmp_path, cluster_by=["id"]), 1000)
    rows = read(spark, table)

    def planned(frame: DataFrame) -> str:
        return str(rows.join(frame, "id")._jdf.queryExecution().executedPlan().toString())

    assert "BroadcastHashJoin" not in planned(rows.select("id"))
    assert "BuildRight" in planned(spark.range(10))


def test_parts_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from liquidspark import frames as reading

    table = filled(table_of(tmp_path, cluster_by=["id"]), 20_000)
    monkeypatch.setattr(reading, "_TASK_BYTES", 1 << 13)
    monkeypatch.setattr(reading, "_MOST_TASK_BYTES", 1 << 13)
    found = read(spark, table, columns="id")
    assert found.rdd.getNumPartitions() > 4
    assert ids(found) == list(range(20_000))


def test_who_registers_the_former_format_is_told_what_to_use() -> None:
    with pytest.raises(UsageError, match=r"liquidspark\.read, write with liquidspark\.append"):
        from liquidspark import register  # noqa: F401
    assert "register" not in dir(liquidspark)
