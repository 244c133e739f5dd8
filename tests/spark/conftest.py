import os
import shutil
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from liquidspark.session import open_session


@pytest.fixture(scope="session", autouse=True)
def _java() -> None:
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or newer, and this machine has none")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with open_session({"spark.master": "local[2,4]", "spark.driver.memory": "1g"}) as session:
        yield session
