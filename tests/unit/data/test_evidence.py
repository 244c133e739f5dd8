"""A footer is held against what a result claims: rows, and bounds of every type that has them."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.data.evidence import footer_problems
from liquidlog.data.writer import DataFileWriter
from liquidlog.plan import WriterOptions, WrittenFile
from liquidlog.spec.schema import parse_schema
from support.plans import schema_json_of

UTC = dt.UTC
VALUES = {
    "byte": pa.array([-128, 127, None], pa.int8()),
    "short": pa.array([-5, 6, None], pa.int16()),
    "integer": pa.array([-5, 6, None], pa.int32()),
    "long": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
    "float": pa.array([0.1, float("nan"), None], pa.float32()),
    "double": pa.array([-0.0, float("inf"), None], pa.float64()),
    "string": pa.array(["a" * 50, "\U0001f600" * 50, None]),
    "date": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "timestamp": pa.array(
        [dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(2024, 1, 1, 0, 0, 0, 999999, UTC), None],
        pa.timestamp("us", "UTC"),
    ),
    "timestamp_ntz": pa.array(
        [dt.datetime(1900, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999), None],  # noqa: DTZ001
        pa.timestamp("us"),
    ),
    "decimal(38,10)": pa.array(
        [Decimal("-1234567890123456789012345678.0123456789"), Decimal("0E-10"), None],
        pa.decimal128(38, 10),
    ),
    "decimal(9,2)": pa.array([Decimal("-1.10"), Decimal("1.10"), None], pa.decimal128(9, 2)),
    "boolean": pa.array([True, False, None]),
    "binary": pa.array([b"\xff", b"\x00", None]),
}


def written(path: Path, kind: str) -> WrittenFile:
    schema = parse_schema(schema_json_of({"c": kind}), where="test")
    options = WriterOptions(indexed=(("c",),))
    with DataFileWriter(str(path / "f"), schema=schema, options=options) as writer:
        writer.write(pa.table({"c": VALUES[kind]}))
        return writer.finish("f")


@pytest.mark.parametrize("kind", VALUES)
def test_what_our_writer_claims_is_what_its_footer_says(tmp_path: Path, kind: str) -> None:
    schema = parse_schema(schema_json_of({"c": kind}), where="test")
    file = written(tmp_path, kind)
    assert footer_problems(str(tmp_path / "f"), file, schema) == ()


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        ("byte", ("-127", "127")),
        ("long", ("-9223372036854775807", "9223372036854775807")),
        ("integer", ("-5", "5")),
        ("string", ('"b"', '"zzzzz"')),
        ("date", ('"0001-01-02"', '"9999-12-31"')),
        ("timestamp", ('"0001-01-01T00:00:00.000Z"', '"2023-01-01T00:00:00.000Z"')),
        ("decimal(9,2)", ("-1.10", "1.09")),
        ("double", ("1.0", '"Infinity"')),
    ],
)
def test_a_bound_that_leaves_a_value_out_is_named(
    tmp_path: Path, kind: str, bounds: tuple[str, str]
) -> None:
    schema = parse_schema(schema_json_of({"c": kind}), where="test")
    written(tmp_path, kind)
    low, high = bounds
    stats = f'{{"numRecords":3,"minValues":{{"c":{low}}},"maxValues":{{"c":{high}}}}}'
    lie = WrittenFile(path="f", size_bytes=1, modification_time_ms=0, num_records=3, stats=stats)
    (problem,) = footer_problems(str(tmp_path / "f"), lie, schema)
    assert "leaves out values" in problem
