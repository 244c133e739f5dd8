"""Delta Spark with the catalog's connector, and we, in turns on one managed table."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.storage.unity import ADDRESSES, TOKEN_FILE, TOKENS
from liquidlog.table import Table
from support.spark_servers import SETTINGS
from support.unity import SERVER, Catalog, real_server

pytestmark = pytest.mark.reference

ADDRESS = "unity://unity.default.t"
PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]")
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
print("{}", flush=True)
for line in sys.stdin:
    try:
        found = {"rows": [list(row) for row in spark.sql(json.loads(line)).collect()]}
    except Exception as error:
        found = {"error": str(error)}
    print(json.dumps(found, default=str), flush=True)
"""


class Spark:
    """A process with a session of Delta Spark whose catalog `unity` is the server."""

    def __init__(self, catalog: Catalog, jars: list[Path]) -> None:
        found = ",".join(map(str, jars))
        settings = {**SETTINGS, "spark.jars": found, "spark.ui.showConsoleProgress": "false"}
        settings["spark.driver.extraClassPath"] = found.replace(",", ":")
        for name in ("spark_catalog", "unity"):
            settings[f"spark.sql.catalog.{name}"] = "io.unitycatalog.spark.UCSingleCatalog"
            settings[f"spark.sql.catalog.{name}.uri"] = catalog.url
            settings[f"spark.sql.catalog.{name}.token"] = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, statement: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(statement) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def sql(self, statement: str) -> list[list[Any]]:
        found = self.ask(statement)
        assert "error" not in found, (statement, found)
        rows: list[list[Any]] = found["rows"]
        return rows


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    if not os.environ.get(SERVER):
        pytest.skip(f"{SERVER} does not name a directory with Unity Catalog's server")
    for name in (*ADDRESSES, *TOKENS, TOKEN_FILE):
        monkeypatch.delenv(name, raising=False)
    with real_server(tmp_path) as found:
        monkeypatch.setenv(ADDRESSES[0], found.url)
        yield found


@pytest.fixture
def delta_spark(catalog: Catalog) -> Iterator[Spark]:
    jars = os.environ.get("LIQUID_REFERENCE_JARS")
    if not jars:
        pytest.skip("LIQUID_REFERENCE_JARS does not name a directory with Delta Spark's jars")
    connector = sorted((Path(os.environ[SERVER]) / "connector").rglob("*.jar"))
    engine = [one for one in sorted(Path(jars).glob("*.jar")) if "unitycatalog-" not in one.name]
    spark = Spark(catalog, [*engine, *connector])
    try:
        yield spark
    finally:
        spark.process.kill()
        spark.process.communicate()


def rows(first: int, last: int) -> pa.Table:
    ids = range(first, last)
    types = pa.schema([("id", pa.int64()), ("k", pa.int32()), ("v", pa.string())])
    columns = [[*ids], [n % 7 for n in ids], [f"v{n}" for n in ids]]
    return pa.table(columns, schema=types)


def test_delta_spark_and_we_go_on_from_each_other(  # noqa: PLR0915  one table's course
    catalog: Catalog, delta_spark: Spark
) -> None:
    def seen() -> list[Any]:
        found = delta_spark.sql("SELECT count(*), sum(id), count(DISTINCT v) FROM unity.default.t")
        return found[0]

    def expected(*numbers: int) -> list[int]:
        return [len(numbers), sum(numbers), len(numbers)]

    delta_spark.sql(
        "CREATE TABLE unity.default.t (id BIGINT, k INT, v STRING) USING delta CLUSTER BY (k)"
        " TBLPROPERTIES ('delta.feature.catalogManaged'='supported')"
    )
    insert = (
        'INSERT INTO unity.default.t SELECT id, cast(id % 7 as int), concat("v", id) FROM range'
    )
    for first in (0, 100, 200):
        delta_spark.sql(f"{insert}({first}, {first + 100})")
    table = Table(ADDRESS)
    assert len(table.files()) >= 3
    table.append(rows(300, 400))
    assert seen() == expected(*range(400))
    assert table.optimize(executor="local").versions
    assert seen() == expected(*range(400))
    delta_spark.sql(f"{insert}(400, 500)")
    delta_spark.sql("DELETE FROM unity.default.t WHERE id < 10")
    delta_spark.sql("ALTER TABLE unity.default.t CLUSTER BY (id)")
    assert table.detail()["clusteringColumns"] == ["id"]
    assert table.optimize(executor="local", full=True).versions
    assert seen() == expected(*range(10, 500))
    delta_spark.sql("ALTER TABLE unity.default.t ADD COLUMN (w INT)")
    table.cluster_by(["k", "id"])
    table.set_properties({"owner.team": "logs"})
    told = dict(delta_spark.sql("SHOW TBLPROPERTIES unity.default.t"))
    assert told["owner.team"] == "logs"
    delta_spark.sql(
        'INSERT INTO unity.default.t SELECT id, 1, concat("v", id), 1 FROM range(500, 520)'
    )
    assert seen() == expected(*range(10, 520))
    (detail,) = delta_spark.sql("DESCRIBE DETAIL unity.default.t")
    assert "['k', 'id']" in str(detail)
    catalog.permitted = None
    blocked = delta_spark.ask("OPTIMIZE unity.default.t")
    assert "blocked" in blocked["error"]
    assert Table(ADDRESS).history()[0]["version"] == catalog.load("t")["latest-table-version"]
    # Time travel to before and after both engines' rewrites.
    assert len(Table(ADDRESS, version=3).files()) >= 3
    assert seen() == expected(*range(10, 520))
