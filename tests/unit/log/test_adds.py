"""Adds of a checkpoint, read from its columns."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.log.checkpoints import read_adds

FIELDS = [("path",), ("stats_parsed", "minValues", "d"), ("stats_parsed", "minValues", "i")]


@pytest.mark.parametrize(
    ("footer", "known"),
    [
        ({"org.apache.spark.version": "3.4.0", "org.apache.spark.legacyDateTime": ""}, False),
        ({"org.apache.spark.version": "2.4.8"}, False),
        ({"org.apache.spark.version": "3.4.0"}, True),
        ({}, True),
    ],
)
def test_a_bound_that_another_calendar_may_have_moved_is_unknown(
    footer: dict[str, str], *, known: bool
) -> None:
    days = pa.array([-150_000, 0], pa.int32()).cast(pa.date32())
    ends = pa.StructArray.from_arrays([days, pa.array([1, 2])], names=["d", "i"])
    statistics = pa.StructArray.from_arrays([ends], names=["minValues"])
    adds = pa.StructArray.from_arrays([pa.array(["a", "b"]), statistics], ["path", "stats_parsed"])
    written = io.BytesIO()
    pq.write_table(pa.table({"add": adds}).replace_schema_metadata(footer), written)

    def lows(found: pa.StructArray) -> list[Any]:
        return [row["stats_parsed"]["minValues"] for row in found.to_pylist()]

    (rows,) = read_adds(lambda: io.BytesIO(written.getvalue()), FIELDS, lows)
    assert [row["i"] for row in rows] == [1, 2]
    assert [row["d"] is not None for row in rows] == [known, True]
