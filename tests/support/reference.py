"""Sessions of the reference engine."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "2g",
}


def open_reference(jars: str, *, quiet: bool = False) -> SparkSession:
    """Return a session with Delta Spark, whose jars are in the directory `jars`."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    found = ",".join(str(path) for path in sorted(Path(jars).glob("*.jar")))
    settings = {**SETTINGS, "spark.jars": found}
    if quiet:
        settings |= {"spark.log.level": "OFF", "spark.ui.showConsoleProgress": "false"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
