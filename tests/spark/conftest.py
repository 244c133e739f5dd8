import os
import shutil
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from liquidlog.local import LocalExecutor
from liquidspark.session import open_session
from support.spark_servers import cluster, connect_server, require_connect


@pytest.fixture(scope="session", autouse=True)
def _java() -> None:
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        pytest.skip("Spark needs Java 17 or newer, and this machine has none")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = {"spark.master": "local[2,2]", "spark.sql.shuffle.partitions": "2"}
    with open_session({**settings, "spark.driver.memory": "1g"}) as session:
        yield session


@pytest.fixture(scope="session")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


@pytest.fixture(scope="session")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Spark Connect server."""
    require_connect()
    with connect_server(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture(scope="session")
def executor() -> Iterator[LocalExecutor]:
    """The executor `local`, whose files Spark's are compared with."""
    with LocalExecutor({}) as started:
        yield started
