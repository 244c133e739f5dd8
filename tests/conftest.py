from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from support import emulators
from support.effort import effort, is_long
from support.emulators import Emulator

# Timings on shared machines vary too much for a deadline to mean anything. The short form tries
# the same examples each time, so that a red run tells of the change and not of the dice.
settings.register_profile(
    "laws", deadline=None, max_examples=effort(15, 1_000), derandomize=not is_long()
)
settings.load_profile("laws")

pytest.register_assert_rewrite("support.executor_contract")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's tests come first: workers that have done their own then take over small tests."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


@pytest.fixture(scope="session")
def s3_emulator() -> Iterator[Emulator]:
    """moto's server, behind a proxy."""
    with emulators.s3() as emulator:
        yield emulator


@pytest.fixture
def s3(s3_emulator: Emulator) -> Iterator[Emulator]:
    s3_emulator.proxy.clear()
    yield s3_emulator
    s3_emulator.proxy.clear()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the table of the tutorial, for pages that start with it."""
    from support import examples

    home = tmp_path_factory.mktemp("template")
    examples.run_page(examples.TUTORIAL.read_text(encoding="utf-8"), home)
    return home
