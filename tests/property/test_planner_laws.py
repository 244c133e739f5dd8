"""Laws of the planner, and a file-by-file walk over the same decisions as an oracle."""

import itertools
from collections.abc import Sequence
from itertools import count

import pyarrow as pa
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from liquidlog.clustering.planning.planner import plan
from liquidlog.clustering.zcubes import PROVIDER
from liquidlog.plan import ClusteringPlan, ClusteringPolicy
from liquidlog.snapshot import Snapshot
from support.effort import effort
from support.snapshots import FileSpec, snapshot_of, with_files

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
_files = st.lists(_file, max_size=12).map(
    lambda files: [_named(file, f"f{number:02d}") for number, file in enumerate(files)]
)
_policies = st.builds(
    ClusteringPolicy,
    min_cube_bytes=st.integers(1, 40),
    target_cube_bytes=st.integers(1, 40),
    max_file_bytes=st.integers(1, 10),
    full=st.booleans(),
)


def _named(file: FileSpec, path: str) -> FileSpec:
    return FileSpec(**{**vars(file), "path": path})


# Shrinking what was found would be work for nothing.
_SEARCH = settings(max_examples=2_000, phases=[Phase.generate], database=None, deadline=None)


def _table(files: Sequence[FileSpec]) -> Snapshot:
    return snapshot_of(files, cluster_by=[[name] for name in COLUMNS])


def _plan(snapshot: Snapshot, policy: ClusteringPolicy) -> ClusteringPlan:
    numbers = count()
    return plan(snapshot, policy, new_id=lambda: f"new-{next(numbers)}")


def _taken(made: ClusteringPlan) -> list[list[str]]:
    return [[file.path for file in group.inputs] for group in made.groups]


def _paths(made: ClusteringPlan) -> set[str]:
    return {path for group in _taken(made) for path in group}


def _is_cube_file(file: FileSpec) -> bool:
    return file.cube is not None and file.zorder_by is not None


def _logical(file: FileSpec) -> int:
    return file.size * (10 - file.deleted) // 10 if file.rows else file.size


class Walk:
    """One pass over files sorted by cube id that holds a cube back until it is complete."""

    def __init__(self) -> None:
        self.held: list[FileSpec] = []
        self.cube: str | None = None
        self.out: list[FileSpec] = []

    def drops(self, held: list[FileSpec]) -> bool:
        raise NotImplementedError

    def on_next_cube(self) -> None: ...

    def on_unclustered(self) -> None: ...

    def flush(self) -> list[FileSpec]:
        released = [] if self.drops(self.held) else self.held
        self.held = []
        return released

    def step(self, file: FileSpec) -> list[FileSpec]:
        if not _is_cube_file(file):
            released = self.flush()
            self.on_unclustered()
            return [*released, file]
        if file.cube == self.cube:
            self.held.append(file)
            return []
        if self.cube is not None:
            self.on_next_cube()
        self.cube = file.cube
        released = self.flush()
        self.held = [file]
        return released

    def run(self, files: Sequence[FileSpec]) -> list[FileSpec]:
        for number, file in enumerate(files):
            released = self.step(file)
            last = number == len(files) - 1
            self.out += [*self.flush(), *released] if last else released
        return self.out


class DropLargeCubes(Walk):
    def __init__(self, min_cube_bytes: int) -> None:
        super().__init__()
        self.min_cube_bytes = min_cube_bytes

    def drops(self, held: list[FileSpec]) -> bool:
        return sum(map(_logical, held)) >= self.min_cube_bytes


class DropSingleCube(Walk):
    single = True

    def drops(self, held: list[FileSpec]) -> bool:
        del held
        return self.single

    def on_next_cube(self) -> None:
        self.single = False

    def on_unclustered(self) -> None:
        self.single = False


def _walked(files: Sequence[FileSpec], policy: ClusteringPolicy) -> list[list[str]]:
    ordered = sorted(files, key=lambda file: (file.cube is not None, file.cube or ""))
    mine = [
        file
        for file in ordered
        if file.provider in {None, PROVIDER}
        and (not _is_cube_file(file) or file.zorder_by == COLUMNS)
    ]
    others = [file for file in ordered if file not in mine]
    kept = DropLargeCubes(policy.min_cube_bytes).run(mine)
    kept = [*kept, *others] if policy.full and others else DropSingleCube().run(kept)
    limit = max(policy.min_cube_bytes, policy.target_cube_bytes)
    bins: list[list[FileSpec]] = [[]]
    for file in kept:
        if sum(other.size for other in bins[-1]) + file.size > limit:
            bins.append([])
        bins[-1].append(file)
    return [[file.path for file in group] for group in bins if group]


@settings(max_examples=effort(60, 3_000))
@given(files=_files, policy=_policies)
def test_chooses_and_packs_as_the_file_by_file_walk(
    files: list[FileSpec], policy: ClusteringPolicy
) -> None:
    assert _taken(_plan(_table(files), policy)) == _walked(files, policy)


@given(files=_files, policy=_policies)
def test_every_file_is_grouped_once_or_skipped_once(
    files: list[FileSpec], policy: ClusteringPolicy
) -> None:
    made = _plan(_table(files), policy)
    named = [*itertools.chain(*_taken(made)), *(file.path for file in made.skipped)]
    assert sorted(named) == sorted(file.path for file in files)


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
    assert _paths(_plan(shuffled, policy)) == _paths(_plan(snapshot, policy))


@pytest.mark.parametrize("single", [False, True])
def test_drawn_tables_have_groups_at_the_limit_and_single_files_above_it(*, single: bool) -> None:
    def occurs(drawn: tuple[list[FileSpec], ClusteringPolicy]) -> bool:
        files, policy = drawn
        limit = max(policy.min_cube_bytes, policy.target_cube_bytes)
        groups = _plan(_table(files), policy).groups
        if single:
            return any(len(group.inputs) == 1 and group.size_bytes > limit for group in groups)
        return len(groups) > 1 and any(len(group.inputs) > 1 for group in groups)

    find(st.tuples(_files, _policies), occurs, settings=_SEARCH)


@given(files=_files, policy=_policies)
def test_groups_exceed_the_limit_only_with_a_single_file(
    files: list[FileSpec], policy: ClusteringPolicy
) -> None:
    limit = max(policy.min_cube_bytes, policy.target_cube_bytes)
    for group in _plan(_table(files), policy).groups:
        assert group.size_bytes <= limit or len(group.inputs) == 1
        assert group.expected_outputs == max(1, group.size_bytes // policy.max_file_bytes)


@given(files=_files, policy=_policies)
def test_planning_again_after_one_cube_was_written_finds_nothing_to_do(
    files: list[FileSpec], policy: ClusteringPolicy
) -> None:
    # Two partial cubes are merged again for ever, so the law holds for one new cube, with
    # nothing else left that could be merged with it.
    files = [
        file for file in files if file.provider != "other" and file.zorder_by in {None, COLUMNS}
    ]
    made = _plan(_table(files), policy)
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
    assert _taken(_plan(_table([*left, written]), policy)) == []
