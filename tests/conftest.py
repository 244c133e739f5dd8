import pytest
from hypothesis import settings

from liquidlog.operations import executors
from support.effort import effort, is_long

# Timings on shared machines vary too much for a deadline to mean anything. The short form tries
# the same examples each time, so that a red run tells of the change and not of the dice.
settings.register_profile(
    "laws", deadline=None, max_examples=effort(15, 1_000), derandomize=not is_long()
)
settings.load_profile("laws")

pytest.register_assert_rewrite("support.executor_contract")


_EARLY = executors._EARLY_GROUP


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Commands begin no JVM while they plan, where tests need none."""
    needed = item.get_closest_marker("spark") is not None
    executors._EARLY_GROUP = _EARLY if needed else "nothing"  # type: ignore[misc]
