"""Laws of the planner, and a file-by-file walk over the same decisions as an oracle."""

import datetime as dt
import itertools
import tempfile
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liquidlog.clustering import maps as module
from liquidlog.clustering.columns import PROVIDER, STABLE, clustering_state, file_states
from liquidlog.clustering.health import column_ranges, depths, key_ranges
from liquidlog.clustering.maps import KeyMap, MappedFiles, closed, key_map
from liquidlog.data.encodings import multiset_checksum
from liquidlog.foresee.plans import ratios
from liquidlog.log.loader import open_store
from liquidlog.plan import ClusteringPlan, ClusteringPolicy
from liquidlog.rewriting.inputs import split_by_partition
from liquidlog.snapshot import Snapshot, decoded_paths
from liquidlog.spec.arrow import (
    arrow_type,
    is_safe_directory,
    output_directory,
    same_value,
    typed_value,
)
from liquidlog.spec.bounds import Bounds, ColumnBounds
from liquidlog.spec.schema import DataType, DecimalType, PrimitiveType, StructField, StructType
from liquidlog.table import Table
from support.arrow_executor import execute
from support.effort import effort
from support.laid_out import files_of
from support.snapshots import FileSpec, numbered, planned, snapshot_of, with_files
from support.table_rows import live_rows

COLUMNS = ("x", "s")
_cube_ids = st.sampled_from(["a", "b", "c", "d"])
_file = st.builds(
    FileSpec,
    path=st.just(""),
    size=st.integers(1, 12),
    rows=st.sampled_from([None, 10]),
    deleted=st.sampled_from([0, 0, 0, 5]),
    cube=st.none() | _cube_ids,
    zorder_by=st.sampled_from([None, COLUMNS, COLUMNS, COLUMNS, ("s", "x"), "not json"]),
    provider=st.sampled_from([None, PROVIDER, PROVIDER, "other"]),
)
_files = st.lists(_file, max_size=12).map(numbered)
_policies = st.builds(
    ClusteringPolicy,
    min_cube_bytes=st.integers(1, 40),
    target_cube_bytes=st.integers(1, 40),
    max_file_bytes=st.integers(1, 10),
    full=st.booleans(),
)


_Run = tuple[str | None, list[FileSpec]]


def _table(files: Sequence[FileSpec]) -> Snapshot:
    return snapshot_of(files, cluster_by=[[name] for name in COLUMNS])


def _taken(made: ClusteringPlan) -> list[list[str]]:
    return [[file.path for file in group.inputs] for group in made.groups]


def _paths(made: ClusteringPlan) -> set[str]:
    return {path for group in _taken(made) for path in group}


def _is_cube_file(file: FileSpec) -> bool:
    return file.cube is not None and file.zorder_by is not None


def _logical(file: FileSpec) -> int:
    return file.size * (10 - file.deleted) // 10 if file.rows else file.size


def _walked(files: Sequence[FileSpec], policy: ClusteringPolicy) -> list[list[str]]:
    """Return the groups, file by file: sorted by cube, without the cubes that are left alone."""
    ordered = sorted(files, key=lambda file: (file.cube is not None, file.cube or ""))
    mine = [
        file
        for file in ordered
        if file.provider in {None, PROVIDER}
        and (not _is_cube_file(file) or file.zorder_by == COLUMNS)
    ]
    others = [file for file in ordered if file not in mine]
    kept = [
        (cube, run)
        for cube, run in _flushed(_runs(mine))
        if cube is None or sum(map(_logical, run)) < policy.min_cube_bytes
    ]
    if not (policy.full and others):
        is_single = [cube is None for cube, _ in kept[:2]] in ([False], [False, True])
        kept, others = _flushed(kept)[is_single:], []
    limit = max(policy.min_cube_bytes, policy.target_cube_bytes)
    bins: list[list[FileSpec]] = [[]]
    for file in [*itertools.chain(*(run for _, run in kept)), *others]:
        if sum(other.size for other in bins[-1]) + file.size > limit:
            bins.append([])
        bins[-1].append(file)
    return [[file.path for file in group] for group in bins if group]


def _runs(files: Sequence[FileSpec]) -> list[_Run]:
    """Return the stretches of files of one cube, or of none, in their order."""
    by_cube = itertools.groupby(files, lambda file: file.cube if _is_cube_file(file) else None)
    return [(cube, list(run)) for cube, run in by_cube]


def _flushed(runs: list[_Run]) -> list[_Run]:
    """Return runs as a filter of the reference engine does, which holds a cube back until the next.

    A last cube of one file comes before the cube that was held back.
    """
    is_swapped = len(runs) > 1 and None not in (runs[-2][0], runs[-1][0]) and len(runs[-1][1]) == 1
    return [*runs[:-2], runs[-1], runs[-2]] if is_swapped else runs


@settings(max_examples=effort(60, 3_000))
@given(files=_files, policy=_policies)
def test_files_are_packed_as_by_the_walk(files: list[FileSpec], policy: ClusteringPolicy) -> None:
    made = planned(_table(files), policy)
    assert _taken(made) == _walked(files, policy)
    named = [*itertools.chain(*_taken(made)), *(file.path for file in made.skipped)]
    assert sorted(named) == sorted(file.path for file in files)
    for group in made.groups:
        assert group.expected_outputs == max(1, group.size_bytes // policy.max_file_bytes)


@given(files=_files, policy=_policies, data=st.data())
def test_the_files_taken_do_not_depend_on_the_scan_order(
    files: list[FileSpec], policy: ClusteringPolicy, data: st.DataObject
) -> None:
    # A tag of ZCUBE_ID alone makes an unclustered file within the cubes' order, where the
    # reference engine's own choice depends on the scan order.
    files = [file for file in files if file.cube is None or file.zorder_by is not None]
    snapshot = _table(files)
    order = data.draw(st.permutations(range(len(files))))
    shuffled = with_files(snapshot, snapshot.files.take(pa.array(order, pa.int64())))
    assert _paths(planned(shuffled, policy)) == _paths(planned(snapshot, policy))


@given(files=_files, policy=_policies)
def test_planning_again_after_one_cube_was_written_finds_nothing_to_do(
    files: list[FileSpec], policy: ClusteringPolicy
) -> None:
    # Two partial cubes are merged again for ever, so the law holds for one new cube, with
    # nothing else left that could be merged with it.
    files = [
        file for file in files if file.provider != "other" and file.zorder_by in {None, COLUMNS}
    ]
    made = planned(_table(files), policy)
    if len(made.groups) != 1 or any(skip.reason != "stable_cube" for skip in made.skipped):
        return
    taken = {file.path for file in made.groups[0].inputs}
    left = [file for file in files if file.path not in taken]
    written = FileSpec(
        path="new",
        size=made.size_bytes,
        rows=10,
        cube=made.groups[0].zcube_id,
        zorder_by=COLUMNS,
        provider=PROVIDER,
    )
    assert _taken(planned(_table([*left, written]), policy)) == []


# Laws of the strategy `overlap`, whatever the table.


MIB = 1 << 20
_x = st.none() | st.integers(-5, 5)
_s = st.none() | st.sampled_from(["", "a", "ab", "b", "ü"])


@st.composite
def _file_overlap_laws(draw: st.DrawFn) -> FileSpec:
    cube = draw(st.none() | st.sampled_from(["a", "b", "c"]))
    kind = draw(st.sampled_from([COLUMNS, COLUMNS, ("s",)]))
    bounds = {"x": sorted_pair(draw(_x), draw(_x)), "s": sorted_pair(draw(_s), draw(_s))}
    return FileSpec(
        path="",
        size=draw(st.integers(1, 200)) * MIB,
        rows=draw(st.sampled_from([None, 10, 10])),
        deleted=draw(st.sampled_from([0, 0, 0, 1, 5])),
        cube=cube,
        zorder_by=kind if cube else None,
        provider=draw(st.sampled_from([PROVIDER, PROVIDER, "other"])) if cube else None,
        bounds=bounds,
        nulls={"x": draw(st.sampled_from([0, 10]))},
    )


def sorted_pair(first: Any, second: Any) -> tuple[Any, Any]:
    if first is None or second is None:
        return (first, second)
    return (min(first, second), max(first, second))


_files_overlap_laws = st.lists(_file_overlap_laws(), max_size=14).map(numbered)
_policies_overlap_laws = st.builds(
    ClusteringPolicy,
    min_cube_bytes=st.integers(1, 900).map(lambda size: size * MIB),
    target_cube_bytes=st.integers(1, 900).map(lambda size: size * MIB),
    max_file_bytes=st.integers(1, 300).map(lambda size: size * MIB),
    full=st.booleans(),
    tolerance=st.sampled_from([1.0, 1.25, 3.0]),
    budget_bytes=st.none() | st.integers(1, 900).map(lambda size: size * MIB),
    where=st.sampled_from([None, None, "x > 1", "s IS NULL"]),
)


def _plan_overlap_laws(files: Sequence[FileSpec], policy: ClusteringPolicy) -> ClusteringPlan:
    return planned(_table(files), policy, strategy="overlap")


@settings(max_examples=effort(60, 3_000))
@given(files=_files_overlap_laws, policy=_policies_overlap_laws)
def test_every_file_is_in_one_group_or_skipped_and_promises_hold(
    files: list[FileSpec], policy: ClusteringPolicy
) -> None:
    made = _plan_overlap_laws(files, policy)
    assert made == _plan_overlap_laws(files, policy)
    taken = [file.path for group in made.groups for file in group.inputs]
    left = [file.path for file in made.skipped]
    assert sorted([*taken, *left]) == [file.path for file in files]
    assert all(group.inputs and group.expected_outputs > 0 for group in made.groups)
    if policy.budget_bytes is not None:
        assert made.size_bytes <= policy.budget_bytes
    snapshot = _table(files)
    states = file_states(snapshot, clustering_state(snapshot).columns, policy.min_cube_bytes)
    state = dict(zip(decoded_paths(snapshot.files).to_pylist(), states.to_pylist(), strict=True))
    assert STABLE not in {state[path] for path in taken}
    if not policy.full:
        assert {state[path] for path in taken} <= {"unclustered", "partial"}


# Partition values of every type survive appends and rewrites, and rows stay in their partition.


_TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
_TIMES = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))  # noqa: DTZ001
VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    PrimitiveType("string"): _TEXTS,
    PrimitiveType("long"): st.integers(-(2**63), 2**63 - 1),
    PrimitiveType("byte"): st.integers(-128, 127),
    PrimitiveType("date"): st.dates(),
    PrimitiveType("timestamp"): _TIMES.map(lambda time: time.replace(tzinfo=dt.UTC)),
    PrimitiveType("timestamp_ntz"): _TIMES,
    PrimitiveType("float"): st.floats(width=32),
    PrimitiveType("double"): st.floats(),
    DecimalType(20, 3): st.integers(-(10**19), 10**19).map(lambda n: Decimal(n).scaleb(-3)),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[DataType, list[Any]]:
    kind = draw(st.sampled_from(list(VALUES)))
    return kind, draw(st.lists(st.none() | VALUES[kind], min_size=1, max_size=8))


@given(columns())
@settings(max_examples=effort(50, 2000))
def test_texts_of_values_are_read_as_these_values(drawn: tuple[DataType, list[Any]]) -> None:
    kind, values = drawn
    array = pa.array(values, arrow_type(kind))
    table = pa.table({"p": array, "id": range(len(values))})
    found: dict[int, str | None] = {}
    for texts, rows in split_by_partition(table, [StructField("p", kind)]):
        assert is_safe_directory(output_directory({}, texts, "an id"))
        assert same_value(texts["p"], kind) == same_value(same_value(texts["p"], kind), kind)
        found |= dict.fromkeys(rows["id"].to_pylist(), texts["p"])
    assert sorted(found) == list(range(len(values)))
    spelled = pa.array([found[number] for number in range(len(values))], pa.string())
    expected = [None if value == "" else repr(value) for value in array.to_pylist()]
    back = spelled.cast(array.type).to_pylist()
    assert [None if value is None else repr(value) for value in back] == [
        None if value == "None" else value for value in expected
    ]
    typed = [typed_value(found[number], StructField("p", kind)) for number in range(len(values))]
    assert {one.type for one in typed} == {array.type}
    empty_is_null = [None if value == "" else value for value in array.to_pylist()]
    assert [repr(one.as_py()) for one in typed] == list(map(repr, empty_is_null))


@given(st.lists(st.tuples(st.none() | _TEXTS, st.none() | st.integers(-9, 9)), max_size=12))
def test_rows_are_split_by_all_columns_of_partitions(keys: list[tuple[Any, Any]]) -> None:
    table = pa.table(
        {
            "p": pa.array([p for p, _ in keys], pa.string()),
            "n": pa.array([n for _, n in keys], pa.int64()),
            "id": range(len(keys)),
        }
    )
    fields = [StructField("p", PrimitiveType("string")), StructField("n", PrimitiveType("long"))]
    parts = list(split_by_partition(table, fields))
    for texts, rows in parts:
        for p, n in (keys[number] for number in rows["id"].to_pylist()):
            assert (texts["p"] or None, texts["n"]) == (p or None, None if n is None else str(n))
    assert sorted(n for _, rows in parts for n in rows["id"].to_pylist()) == [*range(len(keys))]


@given(columns(), st.data())
@settings(max_examples=effort(10, 200))
def test_a_migration_writes_every_value_into_the_files(
    drawn: tuple[DataType, list[Any]], data: st.DataObject
) -> None:
    kind, values = drawn
    array = pa.array([None if value == "" else value for value in values], arrow_type(kind))
    table = pa.table({"p": array, "id": pa.array(range(len(values)), pa.int64())})
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "t")
        schema = StructType((StructField("p", kind), StructField("id", PrimitiveType("long"))))
        made = Table.create(str(path), schema=schema)
        made.append(table.slice(0, 0))
        first = path / "_delta_log" / f"{0:020d}.json"
        first.write_text(
            first.read_text().replace('"partitionColumns":[]', '"partitionColumns":["p"]')
        )
        made = Table.open(str(path))
        made.append(table)
        by = data.draw(st.sampled_from([["id"], ["p"], ["p", "id"]]))
        plan = made.plan_migration(by)
        made.commit(plan, execute(plan))
        found = live_rows(open_store(str(path)), made.snapshot()).sort_by("id")
        assert made.detail()["partitionColumns"] == []
        assert multiset_checksum(found) == multiset_checksum(table)


# Laws of the ratios between a table and a full rewrite of it.


Ends = list[tuple[tuple[int, int], ...]]
_RANGE = st.tuples(st.integers(-50, 50), st.integers(-50, 50)).map(
    lambda ends: (min(ends), max(ends))
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Ends, list[int]]:
    """Return the ranges of files by column, and their sizes in bytes."""
    columns = draw(st.integers(1, 3))
    files = draw(st.lists(st.tuples(*[_RANGE] * columns), min_size=1, max_size=25))
    sizes = draw(
        st.lists(st.integers(1, 10**6), min_size=len(files), max_size=len(files))
        | st.just([1_000] * len(files))
    )
    return files, sizes


def found(files: Ends, sizes: list[int]) -> tuple[float, float]:
    columns = []
    for ranges in zip(*files, strict=True):
        low, high = map(pa.array, zip(*ranges, strict=True))
        nulls = pa.array([0] * len(files), pa.int64())
        columns.append(ColumnBounds(low=low, high=high, null_count=nulls))
    bounds = Bounds(columns=tuple(columns), num_records=pa.array([1_000] * len(files)))
    by_column = [column_ranges(column.low, column.high) for column in columns]
    made = ratios(
        files_of(bounds, np.array(sizes, np.float64)),
        average_depth=float(depths(key_ranges(by_column)).mean()),
    )
    assert made.depth is not None
    assert made.read is not None
    return made.depth, made.read


@settings(max_examples=effort(20, 2_000))
@given(table=tables(), data=st.data())
def test_ratios_are_the_same_in_any_order(
    table: tuple[Ends, list[int]], data: st.DataObject
) -> None:
    files, sizes = table
    places = data.draw(st.permutations(range(len(files))))
    shuffled = found([files[place] for place in places], [sizes[place] for place in places])
    assert shuffled == found(files, sizes)


@settings(max_examples=effort(20, 2_000))
@given(table=tables(), factor=st.integers(2, 1_000))
def test_ratios_do_not_depend_on_units_of_size(table: tuple[Ends, list[int]], factor: int) -> None:
    files, sizes = table
    scaled = found(files, [size * factor for size in sizes])
    assert scaled == pytest.approx(found(files, sizes), rel=0.05)


@settings(max_examples=effort(20, 2_000))
@given(count=st.integers(3, 7), columns=st.integers(1, 2))
def test_a_file_over_the_whole_range_makes_nothing_look_better(count: int, columns: int) -> None:
    steps = [(10 * number - 50, 10 * number - 41) for number in range(count)]
    files = [tuple(ranges) for ranges in product(*[steps] * columns)]
    sizes = [1_000] * len(files)
    wide = [*files, ((-50, 10 * count - 41),) * columns]
    before, after = found(files, sizes), found(wide, [*sizes, 1_000])
    assert after[0] >= 0.95 * before[0]
    assert after[1] >= 0.95 * before[1]


# Maps of the key space against drawing every file by hand.


Range = tuple[int, int]
_range = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda r: (min(r), max(r)))
_files_map_laws = st.lists(st.tuples(_range, _range), min_size=1, max_size=20)
_cuts = st.lists(st.floats(0.02, 0.98), max_size=5).map(
    lambda cuts: [0.0, *sorted({round(cut, 2) for cut in cuts}), 1.0]
)


def mapped(files: Sequence[Sequence[Range]], *, predicted: bool = False) -> MappedFiles:
    columns = tuple(
        ColumnBounds(
            low=pa.array([low for low, _ in ranges], pa.int64()),
            high=pa.array([high for _, high in ranges], pa.int64()),
            null_count=pa.array([0] * len(ranges), pa.int64()),
        )
        for ranges in zip(*files, strict=True)
    )
    return MappedFiles(
        bounds=Bounds(columns=columns, num_records=pa.array([10] * len(files), pa.int64())),
        size_bytes=np.arange(1, len(files) + 1) * 100,
        is_predicted=np.full(len(files), predicted),
    )


def drawn(now: MappedFiles, after: MappedFiles | None, *, most: int = 400) -> KeyMap:
    with pytest.MonkeyPatch().context() as limits:
        limits.setattr(module, "BOXES_SHOWN", most)
        found = key_map(["x", "y"][: len(now.bounds.columns)], now, after)
    assert found is not None
    return found


@given(now=_files_map_laws, after=_files_map_laws)
def test_both_have_one_scale(
    now: list[tuple[Range, Range]], after: list[tuple[Range, Range]]
) -> None:
    found = drawn(mapped(now), mapped(after))
    assert found.after is not None
    for column in range(2):
        ends = [
            (file[column][end], box[column + 2 * end], end)
            for files, side in ((now, found.now), (after, found.after))
            for file, box in zip(files, side.boxes, strict=True)
            for end in range(2)
        ]
        places = {(value, end): place for value, place, end in ends}
        assert all(places[value, end] == place for value, place, end in ends)
        ordered = [place for _, place in sorted(places.items())]
        assert all(one <= other + 1e-12 for one, other in pairwise(ordered))
        positions = [place for place, _ in found.axes[column].ticks]
        values = [value for _, value in found.axes[column].ticks]
        assert positions == sorted(positions)
        assert values == sorted(values)
        assert values[0] == min(file[column][0] for file in (*now, *after))
        assert values[-1] == max(file[column][1] for file in (*now, *after))


@given(now=_files_map_laws)
def test_profiles_are_means_of_the_files_above_each_point(now: list[tuple[Range, Range]]) -> None:
    found = drawn(mapped(now), None)
    assert found.after is None
    bins = module.PROFILE_BINS
    for column in range(2):
        wanted = [
            sum(
                max(0.0, min(box[column + 2], (n + 1) / bins) - max(box[column], n / bins))
                for box in found.now.boxes
            )
            * bins
            for n in range(bins)
        ]
        assert found.now.profiles[column] == pytest.approx(wanted, abs=1e-3)


@given(now=_files_map_laws)
def test_grids_count_the_boxes_in_each_cell(now: list[tuple[Range, Range]]) -> None:
    boxes = drawn(mapped(now), None).now.boxes
    found = drawn(mapped(now), None, most=0).now
    assert found.boxes == ()
    bins = module.GRID_BINS
    counts = [[0] * bins for _ in range(bins)]
    for left, low, right, high in boxes:
        for x, y in product(_cells(left, right, bins), _cells(low, high, bins)):
            counts[y][x] += 1
    assert [list(row) for row in found.grid] == counts


def _cells(low: float, high: float, bins: int) -> range:
    first = min(int(low * bins + 1e-9), bins - 1)
    last = min(max(first, int(np.ceil(high * bins - 1e-9)) - 1), bins - 1)
    return range(first, last + 1)


@given(across=_cuts, up=_cuts, seed=st.integers(0, 1000))
def test_gaps_between_boxes_are_closed(across: list[float], up: list[float], seed: int) -> None:
    cells = [(x, y) for x in pairwise(across) for y in pairwise(up)]
    low = np.array([[x[0], y[0]] for x, y in cells])
    high = np.array([[x[1], y[1]] for x, y in cells])
    width = high - low
    shrunk = np.random.default_rng(seed).random((2, *low.shape)) * width / 20
    found = closed(low + shrunk[0], high - shrunk[1])
    area = np.prod(found[1] - found[0], axis=1)
    assert (found[0] <= low + shrunk[0] + 1e-12).all()
    assert (found[1] >= high - shrunk[1] - 1e-12).all()
    if len(up) == 2 or len(across) == 2:
        # One row of boxes: they tile the whole, and none lies on another.
        assert area.sum() == pytest.approx(1.0)
    assert area.sum() >= np.prod(width - shrunk[0] - shrunk[1], axis=1).sum() - 1e-12


def test_a_gap_as_wide_as_a_file_stays() -> None:
    low, high = np.array([[0.0], [0.6]]), np.array([[0.3], [0.9]])
    found = closed(low, high)
    assert found[0].tolist() == [[0.0], [0.6]]
    assert found[1].tolist() == [[0.3], [0.9]]


def test_boxes_that_do_not_meet_in_another_column_stay() -> None:
    low, high = np.array([[0.0, 0.0], [0.52, 0.6]]), np.array([[0.5, 0.4], [1.0, 1.0]])
    found = closed(low, high)
    assert found[1][0, 0] == 0.5
    assert found[0][1, 0] == 0.52


def test_a_map_is_of_columns_that_are_no_functions_of_each_other() -> None:
    cells = [(x, z) for x in range(0, 40, 10) for z in range(0, 40, 10)]
    files = [((x, x + 9), (80 - 2 * x, 98 - 2 * x), (z, z + 9)) for x, z in cells]
    whole = [((0, 39), (20, 98), (0, 39))] * 3
    for now, after in ((files, None), (whole, files), (files, whole)):
        side = None if after is None else mapped(after, predicted=True)
        found = key_map(["x", "minus_x", "z"], mapped(now), side)
        assert found is not None
        assert [axis.name for axis in found.axes] == ["x", "z", "minus_x"]
    found = key_map(["x", "minus_x", "z"], mapped(whole), None)
    assert found is not None
    assert [axis.name for axis in found.axes] == ["x", "minus_x", "z"]


def test_nothing_is_drawn_without_bounds() -> None:
    files = mapped([((0, 1), (0, 1))])
    column = files.bounds.columns[0]
    nothing = ColumnBounds(
        low=pa.nulls(1, pa.int64()), high=pa.nulls(1, pa.int64()), null_count=column.null_count
    )
    bounds = Bounds(columns=(nothing, column), num_records=files.bounds.num_records)
    without = MappedFiles(
        bounds=bounds, size_bytes=files.size_bytes, is_predicted=files.is_predicted
    )
    assert key_map(["x", "y"], without, None) is None
    assert key_map(["x", "y"], files, without) is not None
