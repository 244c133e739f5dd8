"""Laws of kept files, and of files judged by a workload, which opens what bounds say."""

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from liquidlog.clustering.building import _DRAWS, _SCAN_SHARE, OPEN_COST_BYTES
from liquidlog.clustering.columns import PROVIDER, sizes
from liquidlog.clustering.health import KeySpace, SpaceReaders, cells, key_space, space_readers
from liquidlog.clustering.planner import _TOLERANCE
from liquidlog.foresee import plans, verdict
from liquidlog.foresee.verdict import StoreProfile
from liquidlog.plan import (
    AskedPredicate,
    ClusteringPlan,
    ClusteringPolicy,
    FittedWorkload,
    Interval,
    SkipReason,
    Term,
    decode_plan,
    encode_plan,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import leaves
from liquidlog.table import Table
from support.arrow_executor import execute
from support.effort import effort
from support.snapshots import FileSpec, bounds_of, numbered, planned, snapshot_of

COLUMNS = ("x", "y")


@st.composite
def _file(draw: st.DrawFn, *, sound: bool = False) -> FileSpec:
    """Files of any kind, or `sound` ones: with all rows, bounds and no others' clustering."""

    def one_of(*values: Any) -> Any:
        return values[0] if sound else draw(st.sampled_from(values))

    low, other = draw(st.integers(0, 40)), draw(st.integers(0, 40))
    wide = st.integers(0, 20 if sound else 10)
    bounds = {"x": (low, low + draw(wide)), "y": (other, other + draw(wide))}
    in_cube, none = draw(st.booleans()), {"x": 0, "y": 0}
    return FileSpec(
        path="",
        size=draw(st.integers(4 if sound else 1, 12)),
        rows=one_of(10, 10, 10, None),
        deleted=one_of(0, 0, 0, 5),
        cube=draw(st.sampled_from(["a", "b"])) if in_cube else None,
        zorder_by=one_of(COLUMNS, COLUMNS, ("y",)) if in_cube else None,
        provider=one_of(PROVIDER, PROVIDER, None, "other"),
        bounds=one_of(bounds, bounds, bounds, None),
        nulls=one_of(none, none, None, {"x": 1, "y": 0}),
    )


_any_files = st.lists(_file(), max_size=14).map(numbered)
_files = st.lists(_file(sound=True), min_size=1, max_size=14).map(numbered)
_APART = numbered(
    FileSpec(
        path="",
        size=10,
        cube=cube,
        zorder_by=COLUMNS if cube else None,
        provider=PROVIDER if cube else None,
        bounds={"x": (low, low + 4), "y": (0, 9)},
        nulls={"x": 0, "y": 0},
    )
    for low, cube in ((0, "a"), (10, "a"), (20, "a"), (30, "a"), (40, None), (41, None))
)
"""Files of a cube that lie apart, which are kept, and two across each other."""
_ends = st.one_of(st.none(), st.integers(-2, 64))


@st.composite
def _interval(draw: st.DrawFn) -> Interval:
    low, high = draw(_ends), draw(_ends)
    if low is not None and high is not None and low > high:
        low, high = high, low
    # An interval of one value is closed; others may be open.
    is_point = low is not None and low == high
    return Interval(
        low=None if low is None else str(low),
        high=None if high is None else str(high),
        open_low=low is not None and not is_point and draw(st.booleans()),
        open_high=high is not None and not is_point and draw(st.booleans()),
    )


_terms = st.builds(
    lambda column, intervals: Term(column=column, intervals=tuple(intervals)),
    st.integers(0, 1),
    st.lists(_interval(), min_size=1, max_size=2),
)
_predicates = st.builds(
    lambda weight, any_of: AskedPredicate(
        weight=weight, any_of=tuple(tuple(terms) for terms in any_of)
    ),
    st.integers(1, 4).map(float),
    st.lists(st.lists(_terms, min_size=1, max_size=2), min_size=1, max_size=2),
)
_asked = st.lists(_predicates, min_size=1, max_size=4).map(
    lambda some: FittedWorkload(predicates=tuple(some))
)
_weighted = st.sampled_from([(1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (0.9, 0.1)]).map(
    lambda weights: FittedWorkload(column_weights=weights)
)


def _meets(file: FileSpec, term: Term) -> bool:
    """Return whether a file may have values in the intervals of a term, by its bounds."""
    assert file.bounds
    first, last = file.bounds[COLUMNS[term.column]]
    for one in term.intervals:
        # Values are whole: an open end is closed half a step inside.
        low = -1e9 if one.low is None else int(one.low) + one.open_low / 2
        high = 1e9 if one.high is None else int(one.high) - one.open_high / 2
        if first <= high and low <= last:
            return True
    return False


def _opened(files: Sequence[FileSpec], readers: FittedWorkload) -> NDArray[np.float64]:
    """Return the share of the predicates that opens each file, by brute force."""
    total = sum(one.weight for one in readers.predicates)
    shares = [
        sum(
            one.weight
            for one in readers.predicates
            if any(all(_meets(file, term) for term in terms) for terms in one.any_of)
        )
        for file in files
    ]
    return np.array(shares) / total


def _table(files: Sequence[FileSpec]) -> Snapshot:
    return snapshot_of(files, cluster_by=[[name] for name in COLUMNS])


def _measured(files: Sequence[FileSpec], readers: FittedWorkload) -> tuple[KeySpace, SpaceReaders]:
    """Return the files in key space, and the readers there."""
    snapshot = _table(files)
    found = [leaf for leaf in leaves(snapshot.schema) if leaf.logical[0] in COLUMNS]
    bounds, size = bounds_of(snapshot)(found), sizes(snapshot.files)
    return key_space(bounds, size), space_readers(bounds, size, readers)


def _cost(part: KeySpace, outputs: int, readers: SpaceReaders, draw: int) -> float:
    """Return what the mean reader pays after a rewrite: at least one file, if it asks for any."""
    stored, share = cells(part, outputs, curve="hilbert", readers=readers, draw=draw)
    low, high = part.ends()
    around = low.min(axis=0, keepdims=True), high.max(axis=0, keepdims=True)
    there = readers.opened_boxes(*around)[0] / len(stored)
    paid = ((stored + OPEN_COST_BYTES) * (one + _SCAN_SHARE) for one in (share, there))
    return max(float(each.sum()) for each in paid)


def _plan(
    files: Sequence[FileSpec], readers: FittedWorkload | None, **policy: object
) -> ClusteringPlan:
    return planned(
        _table(files),
        ClusteringPolicy(min_cube_bytes=1_000, max_file_bytes=8, **policy),  # type: ignore[arg-type]
        strategy="cube" if policy.get("skip_clustered") else "overlap",
        readers=readers,
    )


@given(_files, _asked)
@settings(deadline=None)
def test_readers_open_files_that_they_meet(files: list[FileSpec], readers: FittedWorkload) -> None:
    space, those = _measured(files, readers)
    assert those.opened(space) == pytest.approx(_opened(files, readers), abs=1e-9)


@given(_files, _asked | _weighted)
@example(_APART, FittedWorkload(column_weights=(1.0, 0.0)))
@settings(deadline=None, max_examples=effort(2, 1_000))
def test_what_is_kept_costs_its_readers_no_more_than_the_tolerance(
    files: list[FileSpec], readers: FittedWorkload
) -> None:
    space, those = _measured(files, readers)
    size = space.size_bytes
    number = {file.path: n for n, file in enumerate(files)}
    made = _plan(files, readers, skip_clustered=True)
    # Rows are made up file by file, so the cost depends on the order of the files.
    everything = ClusteringPolicy(min_cube_bytes=1_000, max_file_bytes=8)
    whole = planned(_table(files), everything, strategy="cube").groups
    for group in made.groups:
        kept = [number[path] for path in group.kept.paths()]
        if not kept:
            continue
        rest = [number[file.path] for file in group.inputs]
        (all_files,) = (one for one in whole if one.zcube_id == group.zcube_id)
        together = np.array([number[file.path] for file in all_files.inputs])
        assert {*together} == {*kept, *rest}

        def cost(part: NDArray[np.int64], outputs: int) -> float:
            return min(_cost(space.part(part), outputs, those, draw) for draw in range(_DRAWS))

        opened = _opened(files, readers) if readers.predicates else those.opened(space)
        stays = float(((size[kept] + OPEN_COST_BYTES) * (opened[kept] + _SCAN_SHARE)).sum())
        after = stays + cost(np.array(rest), group.expected_outputs)
        assert after <= _TOLERANCE * cost(together, all_files.expected_outputs) * (1 + 1e-9)


# Kept files: the same groups as without, in two parts that lose and double nothing.

_policies: st.SearchStrategy[Mapping[str, Any]] = st.fixed_dictionaries(
    {
        "min_cube_bytes": st.integers(1, 60),
        "target_cube_bytes": st.integers(1, 60),
        "max_file_bytes": st.integers(1, 12),
        "full": st.booleans(),
    }
)


def _kept_plan(snapshot: Snapshot, policy: Mapping[str, Any], **more: Any) -> ClusteringPlan:
    return planned(snapshot, ClusteringPolicy(**policy, **more))


def _parts(made: ClusteringPlan) -> list[tuple[list[str], list[str]]]:
    return [([file.path for file in g.inputs], g.kept.paths()) for g in made.groups]


@given(_any_files, _policies)
def test_a_file_is_rewritten_kept_or_left_alone_for_one_reason(
    files: list[FileSpec], policy: Mapping[str, Any]
) -> None:
    snapshot = _table(files)
    plain = _kept_plan(snapshot, policy)
    made = _kept_plan(snapshot, policy, skip_clustered=True)
    assert decode_plan(encode_plan(made), where="here") == made
    named = [path for parts in _parts(made) for part in parts for path in part]
    named += [file.path for file in made.skipped]
    assert sorted(named) == sorted(file.path for file in files)
    groups = [sorted(inputs) for inputs, _ in _parts(plain)]
    left = [file.path for file in made.skipped if file.reason is SkipReason.WELL_CLUSTERED]
    parts = [sorted(inputs + kept) for inputs, kept in _parts(made)]
    gone = [group for group in groups if group not in parts]
    assert sorted(path for group in gone for path in group) == sorted(left)
    assert [group for group in groups if group in parts] == parts
    assert made.size_bytes <= plain.size_bytes


@settings(max_examples=effort(60, 3_000))
@given(_any_files, _policies)
def test_kept_files_lie_where_the_log_says(
    files: list[FileSpec], policy: Mapping[str, Any]
) -> None:
    by_path = {file.path: file for file in files}
    made = _kept_plan(_table(files), policy, skip_clustered=True)
    for group in made.groups:
        assert len(group.inputs)
        for kept in group.kept:
            file = by_path[kept.path]
            assert file.bounds
            assert file.rows == kept.num_records
            assert not file.deleted
            assert file.provider != "other"
            assert not any((file.nulls or {}).values())
            assert (file.cube, file.size) == (kept.zcube_id, kept.size_bytes)
            assert file.zorder_by in {None, COLUMNS}


# What is recommended does not make readers worse: rewritten for good, and read row by row.
#
# Tables are small, so opening a file is made cheap and files are made small: else whatever joins
# files would be worth it.


_COLUMNS = ("x", "y")
_READERS = 60
_STORE = StoreProfile(
    latency_seconds=0.001, bytes_per_second=1e6, requests_at_once=2, start_seconds=0.0
)
_SIZES = ((64 << 10, 1_000), (16 << 10, 1_000), (4 << 10, 100))


@st.composite
def appends(draw: st.DrawFn) -> list[pa.Table]:
    """Rows per append: of all values, of a window that moves, or of few values."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    made = []
    for number in range(draw(st.integers(2, 14))):
        count = draw(st.sampled_from([20, 300, 3000]))
        columns = []
        for _ in _COLUMNS:
            match draw(st.sampled_from(["all", "window", "few"])):
                case "all":
                    values = random.integers(0, 10**6, count)
                case "window":
                    values = number * 50_000 + random.integers(0, 60_000, count)
                case _:
                    values = random.integers(0, 5, count) * 1000
            columns.append(pa.array(values, pa.int64()))
        columns.append(pa.array(random.integers(0, 2**62, count)))
        made.append(pa.table(columns, names=[*_COLUMNS, "z"]))
    return made


def mean_cost(table: Table, readers: list[tuple[str, int]]) -> float:
    """Return the mean cost of readers of one value, by the rows that the files really hold."""
    files = []
    for row in table.files().to_pylist():
        content = pq.read_table(f"{table.uri}/{row['path']}", columns=list(_COLUMNS))
        ends = {
            name: (pc.min(content[name]).as_py(), pc.max(content[name]).as_py())
            for name in _COLUMNS
        }
        files.append((row["size_bytes"], ends))
    found = []
    for name, value in readers or [("", 0)]:
        opened = [
            size for size, ends in files if not name or ends[name][0] <= value <= ends[name][1]
        ]
        found.append(_STORE.seconds(len(opened), sum(opened)))
    return float(np.mean(found))


@settings(max_examples=effort(12, 400), deadline=None)
@given(appends(), st.sampled_from([(), ("x",), ("x", "y")]), st.integers(0, 1 << 20))
def test_nobody_is_worse_off(data: list[pa.Table], columns: tuple[str, ...], seed: int) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        mock.patch.object(plans, "LOCAL_DISK", _STORE),
        mock.patch.object(verdict, "_SMALLER", _SIZES),
    ):
        table = Table.create(f"{directory}/t", schema=data[0].schema, cluster_by=columns)
        for rows in data[:-1]:
            table.append(rows)
        if seed % 2:
            made = table.plan(max_file_size=20_000)
            if made.groups:
                table.commit(made, execute(made))
        table.append(data[-1])
        best = table.judge().best
        event("left alone" if best is None else best.name)
        if best is None:
            return
        everything, random = pa.concat_tables(data), np.random.default_rng(seed)
        readers = [
            (name, everything[name][int(row)].as_py())
            for name in columns  # without any, readers read everything
            for row in random.integers(0, len(everything), _READERS)
        ]
        before = mean_cost(table, readers)
        table.commit(best.plan, execute(best.plan))
        assert mean_cost(table, readers) <= before
