"""What makes a rewrite worth it, from figures alone."""

import shlex
from typing import TYPE_CHECKING, cast

import pytest

from liquidlog.foresee.plans import Foresight, assumed_readers
from liquidlog.foresee.prediction import Prediction
from liquidlog.foresee.stores import LOCAL_DISK
from liquidlog.judgement.candidates import candidates, command, judged_file_sizes, size_word
from liquidlog.judgement.costs import payback_days, plan_cost, reading_cost
from liquidlog.judgement.parts import part_of
from liquidlog.judgement.verdicts import Bar
from liquidlog.judgement.weighing import days_text, weigh
from liquidlog.operations.planned import planned
from liquidlog.plan import ClusteringPlan
from liquidlog.snapshot import Snapshot
from liquidlog.spec.text import parse_size
from support.snapshots import FileSpec, bounds_of, snapshot_of

if TYPE_CHECKING:
    from liquidlog.log.store import TableStore

MIB = 1 << 20
GIB = 1 << 30


def wide(count: int, size: int) -> Snapshot:
    files = [
        FileSpec(path=f"f{n:03d}", size=size, bounds={"x": (n, 1000 + n)}) for n in range(count)
    ]
    return snapshot_of(files)


def plan_of(snapshot: Snapshot, **arguments: object) -> ClusteringPlan:
    return planned(snapshot, arguments, bounds_of(snapshot), lambda: "an id")


def predict(snapshot: Snapshot, plan: ClusteringPlan) -> Prediction:
    """Return what a plan brings assumed readers, by the log alone."""
    readers = assumed_readers(snapshot, bounds_of(snapshot), [("x",)])
    store = cast("TableStore", None)  # no file is there
    return Foresight(
        store,
        snapshot,
        bounds_of(snapshot),
        readers,
        [plan],
        profile=LOCAL_DISK,
        reads_rows=False,
    ).prediction(0)


def test_a_rewrite_reads_writes_and_opens() -> None:
    plan = plan_of(wide(8, 100 * MIB), max_file_size=200 * MIB)
    assert [group.expected_outputs for group in plan.groups] == [4]
    assert plan_cost(plan) == GIB + 2 * 800 * MIB + (8 + 4) * 4 * MIB
    assert reading_cost(MIB, 2) == 9 * MIB
    assert payback_days(100, 5, 10) == 2
    assert payback_days(100, 0, 10) is None


def test_smaller_files_need_a_table_that_has_not_too_many_of_them() -> None:
    assert judged_file_sizes(10 * MIB, GIB) == (GIB, 2 * MIB)
    assert judged_file_sizes(24 * MIB, GIB) == (GIB, 8 * MIB, 2 * MIB)
    assert judged_file_sizes(20 * GIB, GIB) == (GIB, 128 * MIB, 32 * MIB)
    assert judged_file_sizes(20 * GIB, 64 * MIB) == (64 * MIB, 32 * MIB)
    assert judged_file_sizes(100 << 40, GIB) == (GIB,)
    assert judged_file_sizes(0, GIB) == (GIB,)


def test_what_needs_the_fewest_words_comes_first() -> None:
    sizes = judged_file_sizes(500 * MIB, GIB)
    found = [*candidates(strategy="cube", has_cubes=True, takes_foreign=True, sizes=sizes)]
    assert len(found) == len(sizes) * 3
    assert found[0].arguments == {"strategy": "cube", "max_file_size": GIB}
    compaction = candidates(strategy=None, has_cubes=False, takes_foreign=False, sizes=(GIB,))
    assert [one.arguments for one in compaction] == [{"max_file_size": GIB}]
    other = candidates(strategy="theirs", has_cubes=False, takes_foreign=False, sizes=(GIB,))
    assert next(iter(other)).arguments == {}


@pytest.mark.parametrize("size", [1, 1000, 3 * MIB, GIB, 5 << 40, GIB + 1])
def test_sizes_in_commands_are_exact(size: int) -> None:
    assert parse_size(size_word(size)) == size


def test_commands_are_quoted() -> None:
    arguments = {"full": True, "max_file_size": 3 * MIB, "bloom_filter": ("a b", "c")}
    found = command("/a table's", arguments, "w 1.sql")
    assert shlex.split(found) == [
        *("liquidlog", "optimize", "/a table's", "--full", "--max-file-size", "3MiB"),
        *("--set", "bloom_filter=a b,c", "--workload", "w 1.sql"),
    ]


def test_groups_stand_for_all_groups() -> None:
    snapshot = wide(40, 100 * MIB)
    plan = plan_of(snapshot, min_cube_size="400MiB", target_cube_size="400MiB")
    assert len(plan.groups) == 10
    assert part_of(snapshot, plan).plan is plan
    part = part_of(snapshot, plan, most_files=10)
    assert part.snapshot is snapshot
    assert part.share == pytest.approx(len(part.plan.groups) / 10)
    whole = predict(snapshot, plan)
    some = predict(snapshot, part.plan)
    option = weigh("all", "", plan, whole, Bar())
    judged = weigh("part", "", plan, some, Bar(), share=part.share)
    assert judged.reading_before == pytest.approx(option.reading_before)
    assert judged.cost_bytes == option.cost_bytes
    spared = option.reading_before - option.reading_after
    assert judged.reading_before - judged.reading_after == pytest.approx(spared, rel=0.25)
    assert "judged by" in judged.reason


def test_a_reading_that_may_cost_as_much_as_now_is_not_worth_it() -> None:
    snapshot = wide(8, 100 * MIB)
    plan = plan_of(snapshot, max_file_size=100 * MIB)
    found = weigh("p", "", plan, predict(snapshot, plan), Bar())
    assert found.is_worth_it
    assert found.reading_after_range.high < found.reading_before
    assert found.payback_days is not None
    late = Bar(payback_days=found.payback_days * 0.9)
    again = weigh("p", "", plan, found.prediction, late)
    assert not again.is_worth_it
    assert "pays back only after" in again.reason


def test_days_for_people() -> None:
    assert days_text(0.01) == "less than an hour"
    assert days_text(1 / 24) == "1 hour"
    assert days_text(0.5) == "12 hours"
    assert days_text(2.25) == "2.2 days"
    assert days_text(40) == "40 days"
    assert days_text(1e9) == "more than ten years"
