"""Sessions of the reference engine."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


@contextmanager
def with_settings(
    spark: Any, settings: Mapping[str, str], *, restored: Iterable[str] = ()
) -> Iterator[None]:
    """Give a session settings, and afterwards those back that it had, `restored` ones too."""
    before = {name: spark.conf.get(name, None) for name in (*settings, *restored)}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)
