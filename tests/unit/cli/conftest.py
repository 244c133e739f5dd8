"""Rewrites without Spark."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from liquidlog.cli import rewriting, upkeeping
from liquidlog.plan import ClusteringPlan, RewrittenGroup
from support.arrow_executor import execute


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Rewrite in this process; return what executors were started with."""
    found: list[tuple[Any, ...]] = []

    def rewrite(
        plan: ClusteringPlan, pending: Sequence[int], _: object
    ) -> Iterator[RewrittenGroup]:
        return (group for group in execute(plan).groups if group.group_id in set(pending))

    def opened(*given: Any, **_: object) -> Any:
        found.append(given)
        return nullcontext(rewrite)

    for module in (rewriting, upkeeping):
        monkeypatch.setattr(module, "open_executor", opened)
    return found
