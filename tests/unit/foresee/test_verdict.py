"""What makes a rewrite worth it, and how that is said, from figures alone."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.health import Health, column_ranges, depths, key_ranges, measure_health
from liquidlog.foresee import plans as module
from liquidlog.foresee.plans import (
    MOST_UNMEASURED,
    Foresight,
    asked_readers,
    assumed_readers,
    joined_files,
    ratios,
    with_ratios,
)
from liquidlog.foresee.sample import Parts, SampledColumn
from liquidlog.foresee.verdict import (
    EVERYTHING,
    LOCAL_DISK,
    Bar,
    Cost,
    Criteria,
    Option,
    Prediction,
    StoreProfile,
    candidates,
    command,
    judged_file_sizes,
    part_of,
    size_word,
    verdict_of,
    weigh,
)
from liquidlog.operations.planning import planned
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import Recorded, WeightedPredicate, Workload
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds
from liquidlog.spec.schema import Leaf, PrimitiveType, StructField, StructType
from liquidlog.spec.text import parse_size
from liquidlog.table import Table
from support.laid_out import Numbers, files_of, fresh, never_clustered
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


def test_a_rewrite_takes_its_start_its_requests_and_its_bytes() -> None:
    store = StoreProfile(
        latency_seconds=0.5, bytes_per_second=1.0, requests_at_once=2.0, start_seconds=3.0
    )
    snapshot = wide(8, 60_000_000)
    cost = Cost.of(plan_of(snapshot, max_file_size=GIB), store)
    # Two requests for each of 9 files, and 480 MB that are read and written.
    assert cost.seconds == pytest.approx(3 + 9 * 2 * 0.5 / 2 + 2 * 8)
    assert Cost.of(plan_of(wide(0, 1)), store).seconds == 0


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


def measured(table: tuple[Bounds, Numbers], **options: Any) -> tuple[float, float]:
    """Return the depth ratio and the read ratio."""
    bounds, size_bytes = table
    ranges = [column_ranges(one.low, one.high) for one in bounds.columns]
    depth = float(depths(key_ranges(ranges)).mean())
    found = ratios(files_of(bounds, size_bytes.astype(np.float64)), average_depth=depth, **options)
    assert found.depth is not None
    assert found.read is not None
    return found.depth, found.read


def test_more_files_than_boxes_are_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    table = fresh("uniform", 2, 2_000, curve="kd")
    exact = measured(table)
    monkeypatch.setattr(module, "MOST_FILES", 800)
    assert measured(table) == pytest.approx(exact, rel=0.15)


def test_a_table_ordered_by_its_columns_in_turn_has_an_order_of_its_own() -> None:
    table = fresh("uniform", 2, 264, curve="linear")
    assert measured(table, curve="linear") == pytest.approx((1.0, 1.0), abs=0.05)
    # Readers of the second column open everything.
    assert measured(table)[1] > 5


@pytest.mark.parametrize(("data", "files"), [*product(["uniform", "texts", "mixed"], [30, 264])])
def test_a_table_that_was_never_clustered_is_far_from_a_rewrite(data: str, files: int) -> None:
    depth, read = measured(never_clustered(data, 2, files))
    assert depth > 0.8 * files**0.5
    assert read > 2.5


@pytest.mark.parametrize("top", [20, 179, 10**6])
def test_files_that_all_have_the_same_ends_are_thought_to_hold_what_is_between(top: int) -> None:
    files = [FileSpec(path=f"{n:02d}", bounds={"b": (0, top), "a": (0, 5_000)}) for n in range(16)]
    schema = StructType(tuple(StructField(name, PrimitiveType("integer")) for name in "ba"))
    found = judged(snapshot_of(files, cluster_by=[["b"], ["a"]], schema=schema))
    assert found.depth_ratio == pytest.approx(4.0, abs=1.0)
    assert found.read_ratio is not None
    assert found.read_ratio > 3


def judged(snapshot: Snapshot, mask: pa.BooleanArray | None = None) -> Health:
    columns = clustering_state(snapshot).columns
    bounds = bounds_of(snapshot)([column.leaf for column in columns])
    health = measure_health(snapshot, columns, bounds, min_cube_bytes=150, mask=mask)
    return with_ratios(health, snapshot, columns, bounds, min_cube_bytes=150, mask=mask)


def test_what_was_clustered_together_is_what_a_rewrite_reaches(tmp_path: Path) -> None:
    # The second column is the first one, and a little noise.
    x = np.random.default_rng(5).integers(0, 1 << 30, 24_000)
    rows = pa.table({"x": x, "y": x + np.random.default_rng(6).integers(0, 1 << 20, len(x))})
    table = Table.create(str(tmp_path / "t"), schema=rows.schema, cluster_by=["x", "y"])
    table.append(rows)
    table.optimize(executor="local", max_file_size=table.snapshot().size_bytes // 24)
    found = table.health()
    assert (found.depth_ratio, found.read_ratio) == (1.0, 1.0)
    table.append(rows.slice(0, 1_000))
    # The log does not say that the rows of the wide file are where all others are.
    assert table.health().read_ratio is None
    sampled = table.health(sample=True)
    assert sampled.depth_ratio == pytest.approx(2.64 / 1.84, abs=0.2)
    # All readers open it: a twentieth of the bytes, as many as they open of all other files.
    assert sampled.read_ratio == pytest.approx(2.0, abs=0.3)
    for path in table.files()["path"].to_pylist():
        (tmp_path / "t" / path).unlink()
    unread = table.health(sample=True)
    assert unread.read_ratio is None
    assert "are from the log alone" in unread.notes[-1]


def spec(number: int, size: int = 100) -> FileSpec:
    return FileSpec(path=f"{number:02d}", size=size, bounds={"x": (number, number)})


def test_without_columns_or_files_nothing_is_known() -> None:
    for snapshot in (snapshot_of([spec(1)], cluster_by=None), snapshot_of()):
        found = judged(snapshot)
        assert (found.depth_ratio, found.read_ratio) == (None, None)
    assert judged(snapshot_of()).notes == ("there are no files to measure",)


def test_too_many_bytes_without_ranges_make_ratios_unknown() -> None:
    known = [spec(number) for number in range(10)]
    few = judged(snapshot_of([*known, FileSpec(path="b", size=int(1_000 * MOST_UNMEASURED))]))
    assert few.depth_ratio == 1.0
    # Readers have to open the file without statistics.
    assert few.read_ratio is not None
    assert few.read_ratio > 1.5
    many = judged(snapshot_of([*known, FileSpec(path="b", size=500)]))
    assert (many.depth_ratio, many.read_ratio) == (None, None)
    assert many.average_depth == 1.0
    assert "depth_ratio and read_ratio are not measured" in many.notes[-1]
    part = pa.array([True] * 10 + [False])
    alone = judged(snapshot_of([*known, FileSpec(path="b", size=500)]), part)
    assert (alone.depth_ratio, alone.read_ratio) == (1.0, 1.0)


# What plans bring, held against what readers open once the local executor has rewritten.


FILES, ROWS, SIZE = 8, 4_000, "24KiB"
Make = Callable[[np.random.Generator], pa.Table]


def _x(random: np.random.Generator) -> np.ndarray:
    return random.integers(0, 1 << 30, ROWS)


def noisy(random: np.random.Generator) -> pa.Table:
    x = _x(random)
    return pa.table({"x": x, "y": x + random.integers(0, 1 << 20, ROWS)})


def zipf(random: np.random.Generator) -> pa.Table:
    return pa.table({"x": np.minimum(random.zipf(1.3, ROWS), 10**6), "y": _x(random)})


def texts(random: np.random.Generator) -> pa.Table:
    return pa.table({"x": [f"user-{one:08d}" for one in _x(random) % 10**7], "y": _x(random)})


def nulls(random: np.random.Generator) -> pa.Table:
    x = pa.array(_x(random), mask=random.random(ROWS) < 0.4)
    return pa.table({"x": x, "y": _x(random)})


def made(path: Path, make: Make) -> tuple[Table, Workload]:
    random = np.random.default_rng(7)
    data = [make(random) for _ in range(FILES)]
    names = data[0].column_names
    table = Table.create(path, schema=data[0].schema, cluster_by=names)
    for some in data:
        table.append(some)
    every = pa.concat_tables(data)
    asked = []
    for name in names:
        values = every[name].take(random.integers(0, len(every), 30)).drop_null().to_pylist()
        quote = "'" if isinstance(values[0], str) else ""
        asked += [WeightedPredicate(f"{name} = {quote}{one}{quote}") for one in values]
    return table, tuple(asked)


def foreseen(table: Table, workload: Workload, *, reads_rows: bool = True) -> Prediction:
    snapshot = table.snapshot()
    bounds_of = table.opened.bounds_of(snapshot)
    readers = (
        asked_readers(snapshot, workload, bounds_of, None)
        if workload
        else assumed_readers(snapshot, bounds_of)
    )
    is_clustered = bool(table.detail()["clusteringColumns"])
    plan = table.plan(full=is_clustered or None, max_file_size=SIZE if is_clustered else None)
    return Foresight(
        table.opened.store,
        snapshot,
        bounds_of,
        readers,
        [plan],
        profile=LOCAL_DISK,
        reads_rows=reads_rows,
    ).prediction(0)


@pytest.mark.parametrize("make", [noisy, zipf, texts, nulls], ids=lambda one: one.__name__)
def test_what_readers_open_after_a_rewrite_is_foreseen(tmp_path: Path, make: Make) -> None:
    table, workload = made(tmp_path / "t", make)
    by_rows = foreseen(table, workload)
    by_log = foreseen(table, workload, reads_rows=False)
    assumed = foreseen(table, ())
    table.optimize(executor="local", full=True, max_file_size=SIZE)
    found = table.scan(workload=workload)
    truth = sum(one.share * one.files for one in found.predicates)
    assert by_rows.is_sampled
    assert by_rows.sampled_files == FILES
    assert by_rows.files_after == pytest.approx(truth, rel=0.25)
    assert by_rows.files_after_range.low <= truth <= by_rows.files_after_range.high
    assert by_rows.bytes_after == pytest.approx(found.bytes_read, rel=0.25)
    size_bytes = by_rows.bytes_after_range
    assert size_bytes.low <= found.bytes_read <= size_bytes.high
    # By the log alone nothing is known of how columns depend on each other.
    assert not by_log.is_sampled
    assert by_log.files_after_range.low <= truth <= by_log.files_after_range.high
    of_values = [one.files_after for one in assumed.predicates if one.where != EVERYTHING]
    if make is not zipf:  # Every value is asked for as often as it has rows: few are, of most.
        assert np.mean(of_values) == pytest.approx(truth, rel=0.25)


def foreseen_bytes(table: Table, asked: list[str]) -> float:
    """Return the predicted bytes of a full rewrite into as many files, divided by the true ones."""
    size = table.snapshot().size_bytes
    workload = [WeightedPredicate(one) for one in asked]
    plan = table.plan(full=True, max_file_size=max(2_000, size // table.snapshot().files.num_rows))
    found = table.predict(plan, workload)
    table.optimize(executor="local", plan=plan)
    true = table.scan(workload=workload).bytes_read
    assert found.bytes_after_range.low <= true <= found.bytes_after_range.high
    return found.bytes_after / true


@pytest.mark.parametrize("kinds", [1, 16], ids=["shared", "own"])
def test_dictionaries_of_other_columns_are_united(tmp_path: Path, kinds: int) -> None:
    random = np.random.default_rng(5)
    schema = pa.schema([("x", pa.int64()), ("text", pa.string())])
    table = Table.create(tmp_path / "t", schema=schema, cluster_by=["x"])
    for number in range(16):
        words = np.random.default_rng(number % kinds).bytes(200 * 20).hex()
        texts = [words[start : start + 40] for start in range(0, len(words), 40)]
        x = random.integers(0, 1 << 20, 2_000)
        text = pa.array(texts).take(pa.array(random.integers(0, 200, 2_000)))
        table.append(pa.table([x, text], schema=schema))
    assert foreseen_bytes(table, [f"x > {start << 17}" for start in range(8)]) == pytest.approx(
        1.0, abs=0.2
    )


@pytest.mark.parametrize("writer", ["liquidlog", "delta-rs"])
@pytest.mark.parametrize("key", ["x", "ts"])
def test_other_columns_take_more_where_a_rewrite_scatters_their_order(
    tmp_path: Path, writer: str, key: str
) -> None:
    """Ids rise with the time, so a table by `ts` keeps their order, and one by `x` does not."""
    rows = pa.table(
        {
            "id": np.arange(80_000),
            "ts": np.arange(80_000) // 7,
            "x": np.random.default_rng(5).integers(0, 1 << 20, 80_000),
        }
    )
    if writer == "liquidlog":
        Table.create(tmp_path / "t", schema=rows.schema)
    for start in range(0, 80_000, 10_000):
        some = rows.slice(start, 10_000)
        if writer == "liquidlog":
            Table.open(tmp_path / "t").append(some)
        else:
            write_deltalake(str(tmp_path / "t"), some, mode="append")
    table = Table.open(tmp_path / "t")
    table.cluster_by([key])
    asked = [f"{key} > {one}" for one in range(0, 11_000, 1_500)]
    assert foreseen_bytes(table, asked) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.date32()], ids=str)
def test_scattered_values_stay_between_the_lowest_and_the_highest(
    tmp_path: Path, kind: pa.DataType
) -> None:
    """The first file has the highest values of its type, so there is nothing above them."""
    random, files = np.random.default_rng(5), 8
    bits = 8 if kind == pa.int8() else 16 if kind == pa.int16() else 32
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    if pa.types.is_date(kind):
        low, high = -700_000, 2_900_000
    rising = np.linspace(low, high, files * 4_000).astype(np.int32)
    schema = pa.schema([("x", pa.int64()), ("n", kind)])
    table = Table.create(tmp_path / "t", schema=schema, cluster_by=["x"])
    for part in np.split(rising, files)[::-1]:
        x = random.integers(0, 1 << 20, len(part))
        table.append(pa.table([pa.array(x), pa.array(part, pa.int32()).cast(kind)], schema=schema))
    asked = [f"x > {start << 17}" for start in range(8)]
    assert foreseen_bytes(table, asked) == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("keys", [[], ["text"]], ids=["joined", "clustered"])
def test_one_file_takes_what_its_rows_take_together(tmp_path: Path, keys: list[str]) -> None:
    """No query says which rows lie together, but they are packed anew."""
    random = np.random.default_rng(5)
    rows = pa.table(
        {
            "id": random.integers(0, 1 << 40, 16_000),
            "text": [f"user-{value:07d}" for value in random.integers(0, 400, 16_000)],
        }
    )
    for start in range(0, 16_000, 2_000):
        write_deltalake(str(tmp_path / "t"), rows.slice(start, 2_000), mode="append")
    table = Table.open(tmp_path / "t")
    if keys:
        table.cluster_by(keys)
    before = table.snapshot().size_bytes
    plan = table.plan()
    found = table.predict(plan, [WeightedPredicate("id >= 0"), WeightedPredicate("text = 'a'")])
    table.optimize(executor="local", plan=plan)
    (true,) = table.snapshot().files["size"].to_pylist()
    assert true < 0.8 * before
    (whole, _) = found.predicates
    assert whole.bytes_after == pytest.approx(true, rel=0.2)
    assert whole.bytes_after_range.low <= true <= whole.bytes_after_range.high


def test_neighbours_of_a_group_are_joined_to_files_of_one_size() -> None:
    group, sizes = np.array([0, 0, 0, 0, 1, 1, 1]), np.array([1.0, 1, 1, 1, 6, 1, 1])
    found = joined_files(group, sizes, np.array([2, 2]))
    assert found.tolist() == [0, 0, 1, 1, 2, 3, 3]
