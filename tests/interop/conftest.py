"""Delta Spark, from the jars that LIQUID_REFERENCE_JARS names."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

JARS = os.environ.get("LIQUID_REFERENCE_JARS")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    if not JARS:
        pytest.skip("LIQUID_REFERENCE_JARS does not name a directory with Delta Spark's jars")
    from support.spark_servers import open_reference

    session = open_reference(JARS)
    yield session
    session.stop()
