"""README's Python runs as printed."""

import re
import runpy
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from liquidlog import Table
from support.repository import text

pytestmark = pytest.mark.spark

ROWS = 5000


def test_quickstart_clusters_a_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", text("README.md"), re.MULTILINE | re.DOTALL)
    days = [date(1995, 1, 1) + timedelta(days=row * 7919 % 365) for row in range(ROWS)]
    rows = pa.table({"l_shipdate": days, "l_partkey": [row * 104729 % 997 for row in range(ROWS)]})
    monkeypatch.chdir(tmp_path)
    table = Table.create("path/to/table", schema=rows.schema)
    table.append([rows, rows])

    Path("quickstart.py").write_text(code, encoding="utf-8")
    runpy.run_path("quickstart.py", {"spark": spark})

    assert table.detail()["clusteringColumns"] == ["l_shipdate", "l_partkey"]
    assert table.detail()["numRecords"] == 2 * ROWS
    assert table.cubes()["state"].to_pylist() == ["partial"]
