"""Data files as we write them, read by Delta Spark's vectorised reader and by its row-based one."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.spec.arguments import CODEC_NAMES, CODEC_PROPERTY
from liquidlog.table import Table
from support.arrow_executor import execute

pytestmark = pytest.mark.reference

VECTORISED = "spark.sql.parquet.enableVectorizedReader"


UNSIGNED = {pa.uint8(): "short", pa.uint16(): "integer", pa.uint32(): "long"}
UNSIGNED |= {pa.uint64(): "decimal(20,0)"}


@contextmanager
def reader(spark: Any, *, vectorised: bool) -> Iterator[None]:
    spark.conf.set(VECTORISED, str(vectorised).lower())
    try:
        yield
    finally:
        spark.conf.unset(VECTORISED)


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_every_codec_is_read(spark: Any, tmp_path: Path, codec: str) -> None:
    rows = pa.table({"a": range(5000), "b": [f"text {row % 40}" for row in range(5000)]})
    path = str(tmp_path / "t")
    table = Table.create(path, schema=rows.schema, properties={CODEC_PROPERTY: codec})
    table.append(rows)
    for vectorised in (True, False):
        with reader(spark, vectorised=vectorised):
            found = spark.sql(f"select a, b from delta.`{path}` order by a").collect()
        assert [row.asDict() for row in found] == rows.to_pylist()


@pytest.mark.parametrize(("kind", "wanted"), UNSIGNED.items(), ids=str)
def test_unsigned_integers_stay_what_the_engine_reads(
    spark: Any, tmp_path: Path, kind: pa.DataType, wanted: str
) -> None:
    """A table over files with unsigned integers holds, rewritten, what it held before."""
    path, bits = tmp_path / "t", kind.bit_width
    numbers = [0, 1, (1 << (bits - 1)) - 1, 1 << (bits - 1), (1 << bits) - 1, None]
    inside = pa.StructArray.from_arrays(
        [pa.array(numbers, kind), pa.array([[n] for n in numbers], pa.list_(kind))], ["x", "l"]
    )
    data = pa.table({"x": pa.array(numbers, kind), "s": inside})
    path.mkdir()
    for name, use_dictionary in (("encoded", True), ("plain", False)):
        pq.write_table(data, path / f"{name}.parquet", use_dictionary=use_dictionary)
    spark.sql(f"convert to delta parquet.`{path}`")
    before = readings(spark, path)
    table = Table.open(str(path))
    assert json.loads(table.snapshot().metadata.schema_string)["fields"][0]["type"] == wanted
    table.cluster_by(["x"])
    plan = table.plan(full=True)
    assert len(plan.groups[0].inputs) == 2
    table.commit(plan, execute(plan))
    expected = sorted(repr({"x": n, "s": {"x": n, "l": [n]}}) for n in numbers * 2)
    for found in (*before, *readings(spark, path)):
        assert found == expected


def readings(spark: Any, path: Path) -> list[list[str]]:
    """Return the rows as both readers of the engine read them, as text, sorted."""
    found = []
    for vectorised in (True, False):
        with reader(spark, vectorised=vectorised):
            rows = spark.sql(f"select x, s from delta.`{path}`").collect()
        found.append(sorted(repr(numeric(row.asDict(recursive=True))) for row in rows))
    return found


def numeric(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with decimals as the integers that they are."""
    inside = row["s"]
    return {
        "x": whole(row["x"]),
        "s": {"x": whole(inside["x"]), "l": [whole(n) for n in inside["l"]]},
    }


def whole(number: Any) -> int | None:
    return None if number is None else int(number)
