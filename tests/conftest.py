import pytest
from hypothesis import settings

from support.effort import effort, is_long

# Timings on shared machines vary too much for a deadline to mean anything. The short form tries
# the same examples each time, so that a red run tells of the change and not of the dice.
settings.register_profile(
    "laws", deadline=None, max_examples=effort(25, 1_000), derandomize=not is_long()
)
settings.load_profile("laws")


@pytest.fixture(autouse=True)
def _no_jvm_ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands begin no JVM while they plan, where tests need none."""
    if request.node.get_closest_marker("spark") is None:
        monkeypatch.setattr("liquidlog.operations.executors._EARLY_GROUP", "nothing")
