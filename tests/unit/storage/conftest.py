from collections.abc import Iterator

import pytest

from support import emulators
from support.emulators import Emulator
from support.playground import Playground, memory_playground

KINDS = {"azure": emulators.azure, "gcs": emulators.gcs}
EMULATED = [
    "s3",
    pytest.param("azure", marks=pytest.mark.emulator),
    pytest.param("gcs", marks=pytest.mark.emulator),
]


def _server(kind: str) -> Iterator[Emulator]:
    with KINDS[kind]() as emulator:
        yield emulator


@pytest.fixture(scope="session")
def azure_emulator() -> Iterator[Emulator]:
    yield from _server("azure")


@pytest.fixture(scope="session")
def gcs_emulator() -> Iterator[Emulator]:
    yield from _server("gcs")


@pytest.fixture(params=EMULATED)
def emulator(request: pytest.FixtureRequest) -> Iterator[Emulator]:
    running: Emulator = request.getfixturevalue(f"{request.param}_emulator")
    running.proxy.clear()
    yield running
    running.proxy.clear()


@pytest.fixture
def memory_ground() -> Iterator[Playground]:
    with memory_playground() as ground:
        yield ground
