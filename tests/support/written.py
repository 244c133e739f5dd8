"""Tables that DataFrames are written to, and what is in them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import DataFrame, SparkSession

from liquidlog import Table
from liquidlog.data.runs import runs_in
from liquidlog.spec.actions import DeletionVector
from liquidlog.spec.arrow import CHAR_VARCHAR, delta_schema
from liquidlog.spec.schema import StructType, parse_schema, schema_json
from liquidspark import ExecutorOptions
from support.deleted import commit_vectors

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

NOWHERE = {
    "unknown type": ("z", "x"),
    "no name": ("u", "x"),
    "no text": ("p", "file:///%ff"),
    "another storage": ("p", "s3://bucket/vector.bin"),
}
"""Storage types and paths of deletion vectors that are no place of a file."""


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
    texts, whole = pa.list_(pa.field("element", pa.string())), pa.int32()
    struct = pa.struct([("a", pa.int64()), ("b", texts), ("late", pa.date32())])
    return delta_schema(
        pa.schema(
            [
                ("id", pa.int64()),
                ("st", struct),
                ("m", pa.map_(pa.string(), pa.struct([("x", whole)]))),
            ]
        )
    )


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


def table_with_lost_vector(directory: Path, nowhere: str) -> tuple[Table, str]:
    """A table of one file, whose deletion vector is `nowhere`; and the path of the file."""
    table = filled(table_of(directory, properties={"delta.enableDeletionVectors": "true"}), 100)
    (path,) = table.snapshot().paths().to_pylist()
    kind, place = NOWHERE[nowhere]
    vector = DeletionVector(
        storage_type=kind, path_or_inline_dv=place, offset=1, size_in_bytes=34, cardinality=1
    )
    commit_vectors(Path(table.uri), {path: vector})
    return table, path


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
