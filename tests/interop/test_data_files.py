"""Data files as we write them, read by Delta Spark's vectorised reader and by its row-based one."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.spec.codecs import CODEC_NAMES, CODEC_PROPERTY
from liquidlog.table import Table

pytestmark = pytest.mark.reference

VECTORISED = "spark.sql.parquet.enableVectorizedReader"


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_every_codec_is_read(spark: Any, tmp_path: Path, codec: str) -> None:
    rows = pa.table({"a": range(5000), "b": [f"text {row % 40}" for row in range(5000)]})
    path = str(tmp_path / "t")
    table = Table.create(path, schema=rows.schema, properties={CODEC_PROPERTY: codec})
    table.append(rows)
    for vectorised in ("true", "false"):
        spark.conf.set(VECTORISED, vectorised)
        found = spark.sql(f"select a, b from delta.`{path}` order by a").collect()
        assert [row.asDict() for row in found] == rows.to_pylist()
    spark.conf.unset(VECTORISED)
