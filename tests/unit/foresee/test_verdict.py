"""What makes a rewrite worth it, and how that is said, from figures alone."""

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.foresee.plans import Foresight, assumed_readers
from liquidlog.foresee.reads import LOCAL_DISK, Prediction
from liquidlog.foresee.sample import Parts, SampledColumn
from liquidlog.foresee.verdict import (
    Bar,
    Criteria,
    Option,
    candidates,
    command,
    judged_file_sizes,
    part_of,
    size_word,
    verdict_of,
    weigh,
)
from liquidlog.operations.planned import planned
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import Recorded, WeightedPredicate
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import Leaf, PrimitiveType
from liquidlog.spec.text import parse_size
from support.snapshots import FileSpec, bounds_of, snapshot_of

if TYPE_CHECKING:
    from liquidlog.storage.files import TableStore

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
        store, snapshot, bounds_of(snapshot), readers, [plan], profile=LOCAL_DISK, reads_rows=False
    ).prediction(0)


def option(
    snapshot: Snapshot, plan: ClusteringPlan, criteria: Criteria | None = None, share: float = 1.0
) -> Option:
    part = part_of(snapshot, plan, most_files=10).plan if share < 1 else plan
    return weigh(
        "a rewrite",
        "a command",
        plan,
        predict(snapshot, part),
        criteria or Criteria(),
        LOCAL_DISK,
        share=share,
    )


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
    whole, some = option(snapshot, plan), option(snapshot, plan, share=part.share)
    assert some.now == whole.now
    assert some.cost == whole.cost
    assert some.saved_seconds == pytest.approx(whole.saved_seconds, rel=0.25)
    assert f"predicted from {part.share:.1%} of it" in some.gain()


def recorded(days: int, weight: float) -> tuple[WeightedPredicate, ...]:
    times = Recorded(first_ms=0, last_ms=days * 86_400_000)
    return (WeightedPredicate("x = 5", weight, recorded=times),)


def test_days_are_said_only_where_the_number_of_queries_is_known() -> None:
    snapshot = wide(8, 100 * MIB)
    plan = plan_of(snapshot, max_file_size=100 * MIB)
    unknown = option(snapshot, plan)
    assert unknown.is_worth_it
    queries = unknown.payback_queries
    assert queries is not None
    often, rarely = recorded(10, 10 * queries), recorded(100, queries)
    assert option(snapshot, plan, Criteria(workload=often)).payback_days == pytest.approx(1)
    late = option(snapshot, plan, Criteria(workload=rarely))
    assert late.payback_days == pytest.approx(100)
    assert "pay back only after" in (late.problem or "")
    stated = Bar(queries_per_day=queries / 2)
    assert option(snapshot, plan, Criteria(workload=rarely, bar=stated)).is_worth_it
    within_an_hour = recorded(0, 48)
    assert Criteria(workload=within_an_hour).per_day == 48
    some = (*often, WeightedPredicate("x = 6"))
    assert Criteria(workload=some).per_day is None


def test_the_verdict_is_the_best_that_is_worth_it_and_says_the_figures_of_it() -> None:
    snapshot = wide(8, 100 * MIB)
    good = option(snapshot, plan_of(snapshot, max_file_size=100 * MIB))
    assert good.high.seconds < good.now.seconds
    joined = option(snapshot, plan_of(snapshot, max_file_size=GIB))
    found = verdict_of(Criteria(), [joined, good])
    assert (found.answer, found.best, found.shown) == ("rewrite", good, good)
    assert found.sentence.startswith("Do it: a typical query opens ")
    assert found.sentence.endswith(", as no workload was given.")
    document = found.document()
    assert document["now"]["files"] == round(good.now.files, 3)
    assert document["after"]["seconds"]["high"] == round(good.high.seconds, 5)
    assert document["candidate"]["command"] == "a command"
    strict = Criteria(bar=Bar(payback_queries=1))
    left = verdict_of(strict, [option(snapshot, plan_of(snapshot), strict)])
    assert (left.answer, left.best) == ("leave", None)
    assert left.sentence.startswith("Leave it: ")
    nothing = verdict_of(Criteria(), [])
    assert nothing.document()["candidate"] is None
    assert nothing.sentence == "Leave it: there is nothing to rewrite."


def test_alike_queries_that_are_exactly_a_tenth_are_many() -> None:
    snapshot = wide(8, 100 * MIB)
    plan = plan_of(snapshot, max_file_size=100 * MIB)
    found = predict(snapshot, plan)
    (first, *_) = found.predicates
    rows = [
        replace(
            first,
            where=f"y = {number}",
            share=1 / 300,
            columns=("y",) if number < 30 else ("z",),
            seconds_before=1.0,
            seconds_after=2.0 if number < 30 else 0.5,
        )
        for number in range(300)
    ]
    judged = replace(found, predicates=tuple(rows))
    problem = weigh("a rewrite", "a command", plan, judged, Criteria(), LOCAL_DISK).problem
    assert problem is not None
    assert "queries for values of y would wait 2.0 s instead of 1.0 s" in problem


# Bounds of files of which only some rows are known.


def column(values: pa.Array, kind: str = "long") -> SampledColumn:
    return SampledColumn(Leaf(("x",), ("x",), PrimitiveType(kind), nullable=True), values)


def parts(*files: list[int]) -> Parts:
    lengths = [len(file) for file in files]
    return Parts(
        order=np.array([row for file in files for row in file], np.int64),
        starts=np.cumsum([0, *lengths[:-1]]).astype(np.int64),
    )


def bounds(found: SampledColumn, laid: Parts, rows: float = 100.0, **more: object) -> list[tuple]:  # type: ignore[type-arg]
    made = found.bounds(laid, np.full(len(laid.starts), rows), prefix_chars=4, **more)  # type: ignore[arg-type]
    return list(
        zip(made.low.to_pylist(), made.high.to_pylist(), made.null_count.to_pylist(), strict=True)
    )


def test_an_end_that_one_row_has_is_moved_by_the_mean_distance_of_rows() -> None:
    values = pa.array(range(100))
    laid = parts([20, 30, 40], [row for row in range(100) if row not in (20, 30, 40)])
    assert bounds(column(values), laid)[0] == (10, 50, 0)
    assert bounds(column(values), laid)[1] == (0, 99, 0)
    assert bounds(column(values), laid, is_cut=True)[0] == (20, 40, 0)


def test_rows_of_a_constant_that_was_not_sampled_are_in_the_file_behind_the_stop() -> None:
    values = pa.array(range(0, 1000, 10))
    laid = parts(list(range(20, 50)), list(range(20)), list(range(50, 100)))
    found = column(values)
    stops, constants = pa.array([190, 490]), pa.array([195, 490, 490])
    assert bounds(found, laid, stops=stops)[0] == (200, 490, 0)
    assert bounds(found, laid, stops=stops, constants=constants)[0] == (190, 490, 0)
    ends = [one[:2] for one in bounds(found, laid, stops=stops, constants=constants)]
    assert sum(low <= 195 <= high for low, high in ends) == 1
    assert sum(low <= 490 <= high for low, high in ends) == 1


def test_nulls_are_counted_and_not_ruled_out_where_few_rows_are_known() -> None:
    values = pa.array([None, 1, 2, 3, None, None, None, None])
    found = bounds(column(values), parts([0, 1], [2, 3], [4, 5, 6, 7]))
    assert [nulls for _, _, nulls in found] == [50, 1, 100]
    assert found[2][:2] == (None, None)


def test_bounds_of_texts_keep_their_first_characters() -> None:
    values = pa.array(["abcdef", "abcdef", "b", "b"])
    found = bounds(column(values, "string"), parts([0, 1], [2, 3]))
    assert found == [("abcd", "abcd\U0010ffff", 0), ("b", "b", 0)]


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_the_two_zeros_are_one_value(zero: float) -> None:
    found = column(pa.array([zero, 0.0, 1.0]), "double")
    assert len(found.distinct) == 2
    assert found.codes.tolist() == [0, 0, 1]
