"""Laws of files judged by a workload: it opens what bounds say, and keeps what it hardly reads."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from liquidlog.clustering.kept import _DRAWS, _SCAN_SHARE, OPEN_COST_BYTES
from liquidlog.clustering.keyspace import KeySpace, SpaceReaders, cells, key_space, space_readers
from liquidlog.clustering.reference import _TOLERANCE
from liquidlog.clustering.zcubes import PROVIDER, sizes
from liquidlog.plan import (
    AskedPredicate,
    ClusteringPlan,
    ClusteringPolicy,
    FittedWorkload,
    Interval,
    Term,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import leaves
from support.effort import effort
from support.snapshots import FileSpec, bounds_of, planned, snapshot_of

COLUMNS = ("x", "y")


@st.composite
def _file(draw: st.DrawFn) -> FileSpec:
    low, other = draw(st.integers(0, 40)), draw(st.integers(0, 40))
    in_cube = draw(st.booleans())
    return FileSpec(
        path="",
        size=draw(st.integers(4, 12)),
        rows=10,
        cube=draw(st.sampled_from(["a", "b"])) if in_cube else None,
        zorder_by=COLUMNS if in_cube else None,
        provider=PROVIDER,
        bounds={
            "x": (low, low + draw(st.integers(0, 20))),
            "y": (other, other + draw(st.integers(0, 20))),
        },
        nulls={"x": 0, "y": 0},
    )


_files = st.lists(_file(), min_size=1, max_size=14).map(
    lambda files: [FileSpec(**{**vars(file), "path": f"f{n:02d}"}) for n, file in enumerate(files)]
)
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
    there = readers.opened(part.together())[0] / len(stored)
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
def test_readers_open_the_files_whose_bounds_they_meet(
    files: list[FileSpec], readers: FittedWorkload
) -> None:
    space, those = _measured(files, readers)
    assert those.opened(space) == pytest.approx(_opened(files, readers), abs=1e-9)


@given(_files)
@settings(deadline=None)
def test_without_weights_files_are_judged_as_before(files: list[FileSpec]) -> None:
    nothing = FittedWorkload()
    for policy in ({"skip_clustered": True}, {"tolerance": 1.1}):
        assert _plan(files, None, **policy) == _plan(files, nothing, **policy)


@given(_files, _asked | _weighted)
@settings(deadline=None, max_examples=effort(15, 1_000))
def test_what_is_kept_costs_its_readers_no_more_than_the_tolerance(
    files: list[FileSpec], readers: FittedWorkload
) -> None:
    space, those = _measured(files, readers)
    size = space.size_bytes
    number = {file.path: n for n, file in enumerate(files)}
    made = _plan(files, readers, skip_clustered=True)
    for group in made.groups:
        kept = [number[path] for path in group.kept.paths()]
        if not kept:
            continue
        rest = [number[file.path] for file in group.inputs]
        together = np.array(sorted(kept + rest))
        outputs = -(-int(size[together].sum()) // 8)

        def cost(part: NDArray[np.int64], outputs: int) -> float:
            return min(_cost(space.part(part), outputs, those, draw) for draw in range(_DRAWS))

        opened = _opened(files, readers) if readers.predicates else those.opened(space)
        stays = float(((size[kept] + OPEN_COST_BYTES) * (opened[kept] + _SCAN_SHARE)).sum())
        after = stays + cost(np.array(sorted(rest)), group.expected_outputs)
        assert after <= _TOLERANCE * cost(together, outputs) * (1 + 1e-9)


def test_the_laws_see_groups_with_kept_files() -> None:
    def keeps(drawn: tuple[list[FileSpec], FittedWorkload]) -> bool:
        made = _plan(*drawn, skip_clustered=True)
        return any(len(group.kept) for group in made.groups)

    search = settings(max_examples=3_000, phases=[Phase.generate], database=None, deadline=None)
    find(st.tuples(_files, _asked), keeps, settings=search)
