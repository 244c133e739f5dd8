"""Delta Spark, from the jars that LIQUID_REFERENCE_JARS names."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

JARS = os.environ.get("LIQUID_REFERENCE_JARS")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    if not JARS:
        pytest.skip("LIQUID_REFERENCE_JARS does not name a directory with Delta Spark's jars")
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars = ",".join(str(path) for path in sorted(Path(JARS).glob("*.jar")))
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    yield session
    session.stop()
