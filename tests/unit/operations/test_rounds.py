"""Rounds go on as long as each is predicted to gain enough, and did."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.errors import UsageError
from liquidlog.operations.executors import ExecutorWhenNeeded
from liquidlog.operations.optimize import depth_after_round, optimize_in_rounds, require_rounds
from liquidlog.operations.rewrite import CommitReport
from liquidlog.plan import ClusteringPlan
from liquidlog.table import Table
from support.arrow_executor import execute
from support.known import known

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int64())])
POLICY: dict[str, Any] = {
    "strategy": "overlap",
    "max_file_size": "8KiB",
    "min_cube_size": "1MiB",
    "budget": "20KiB",
}


def planning(table: Table) -> Callable[[], ClusteringPlan]:
    return partial(table.plan, **POLICY)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two heaps of files that overlap each other; the budget is for one of them."""
    made = Table.create(str(tmp_path / "t"), schema=SCHEMA, cluster_by=["x"])
    for number in range(12):
        ids = np.arange(number, 12_000, 12)
        made.append(pa.table([ids, ids % 997 + 1_000 * (number % 2)], schema=SCHEMA))
    return made


def test_each_round_is_yielded_with_its_report_and_depth(table: Table) -> None:
    def rewritten(plan: ClusteringPlan) -> CommitReport:
        return table.commit(plan, execute(plan))

    depths = [known(table.health().average_depth)]
    for done in optimize_in_rounds(table.opened, planning(table), rewritten):
        assert done.done.versions == tuple(
            range(
                table.snapshot().version - len(done.done.versions) + 1, table.snapshot().version + 1
            )
        )
        assert done.average_depth == table.health().average_depth
        depths.append(known(done.average_depth))
    assert len(depths) > 2
    assert depths == sorted(depths, reverse=True)


def test_a_round_that_would_gain_too_little_is_not_executed(table: Table) -> None:
    def never(plan: ClusteringPlan) -> None:
        raise AssertionError(plan.plan_id)

    assert list(optimize_in_rounds(table.opened, planning(table), never, min_gain=100.0)) == []


def test_a_round_that_gained_too_little_is_the_last(table: Table) -> None:
    executed: list[str] = []
    rounds = optimize_in_rounds(
        table.opened, planning(table), lambda plan: executed.append(plan.plan_id)
    )
    assert [one.average_depth for one in rounds] == [table.health().average_depth]
    assert len(executed) == 1


def test_the_depth_after_a_round_is_the_predicted_one(table: Table) -> None:
    plan = table.plan(**POLICY)
    depth = known(table.health().average_depth)
    after = known(depth_after_round(table.opened, plan, depth, 0.0))
    assert depth_after_round(table.opened, plan, depth, depth - after - 0.01) == after < depth
    assert depth_after_round(table.opened, plan, depth, depth - after + 0.01) is None
    assert depth_after_round(table.opened, plan, None) is None


@pytest.mark.parametrize("policy", [{}, {"strategy": "cube"}])
def test_rounds_of_another_strategy_are_refused(policy: dict[str, Any], table: Table) -> None:
    with pytest.raises(UsageError) as refused:
        require_rounds(policy.get("strategy", "cube"))
    assert refused.value.fields["option"] == "final"
    with pytest.raises(UsageError):
        next(optimize_in_rounds(table.opened, partial(table.plan, **policy), lambda _: None))


def test_a_table_is_optimized_in_rounds(table: Table) -> None:
    before = known(table.health().average_depth)
    done = table.optimize(executor="local", final=True, **POLICY)
    depths = [known(one.average_depth) for one in done.rounds]
    assert done.versions == tuple(range(13, table.snapshot().version + 1))
    assert len(depths) > 1
    assert depths[-1] == known(table.health().average_depth) < before
    with pytest.raises(UsageError):
        table.optimize(executor="local", final=True, strategy="cube")
    with pytest.raises(UsageError):
        table.optimize(executor="local", min_gain=0.5)


class Opened:
    """Counts how often an executor was started and ended."""

    def __init__(self) -> None:
        self.started = self.ended = 0

    def __enter__(self) -> Self:
        self.started += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.ended += 1

    def __call__(self, *_: object) -> Iterator[object]:
        return iter(())


def test_an_executor_starts_once_and_only_for_a_plan_with_groups(table: Table) -> None:
    opened = Opened()
    nothing = Table.create(f"{table.uri}-empty", schema=SCHEMA, cluster_by=["x"]).plan()
    opening = ExecutorWhenNeeded(lambda _: "own", lambda _: opened)  # type: ignore[arg-type, return-value]
    with opening as executor:
        assert list(executor.for_plan(nothing)(nothing, (), lambda *_: None)) == []
        assert (opened.started, opened.ended) == (0, 0)
        for _ in range(2):
            assert executor.for_plan(table.plan()) is opened
        assert (opened.started, opened.ended) == (1, 0)
    assert (opened.started, opened.ended) == (1, 1)
