"""Laws of kept files: the same groups as without, in two parts that lose and double nothing."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from liquidlog.clustering.planning.planner import plan
from liquidlog.clustering.zcubes import PROVIDER
from liquidlog.plan import ClusteringPlan, ClusteringPolicy, SkipReason, decode_plan, encode_plan
from liquidlog.snapshot import Snapshot
from support.snapshots import FileSpec, bounds_of, snapshot_of

COLUMNS = ("x", "y")


@st.composite
def _file(draw: st.DrawFn) -> FileSpec:
    low, wide = draw(st.integers(0, 40)), draw(st.integers(0, 10))
    other, high = draw(st.integers(0, 40)), draw(st.integers(0, 10))
    bounds = {"x": (low, low + wide), "y": (other, other + high)}
    in_cube = draw(st.booleans())
    return FileSpec(
        path="",
        size=draw(st.integers(1, 12)),
        rows=draw(st.sampled_from([None, 10, 10, 10])),
        deleted=draw(st.sampled_from([0, 0, 0, 5])),
        cube=draw(st.sampled_from(["a", "b"])) if in_cube else None,
        zorder_by=draw(st.sampled_from([COLUMNS, COLUMNS, ("y",)])) if in_cube else None,
        provider=draw(st.sampled_from([None, PROVIDER, PROVIDER, "other"])),
        bounds=draw(st.sampled_from([None, bounds, bounds, bounds])),
        nulls=draw(st.sampled_from([None, {"x": 0, "y": 0}, {"x": 0, "y": 0}, {"x": 1, "y": 0}])),
    )


_files = st.lists(_file(), max_size=14).map(
    lambda files: [FileSpec(**{**vars(file), "path": f"f{n:02d}"}) for n, file in enumerate(files)]
)
_policies: st.SearchStrategy[Mapping[str, Any]] = st.fixed_dictionaries(
    {
        "min_cube_bytes": st.integers(1, 60),
        "target_cube_bytes": st.integers(1, 60),
        "max_file_bytes": st.integers(1, 12),
        "full": st.booleans(),
    }
)


def _plan(snapshot: Snapshot, policy: Mapping[str, Any], **more: Any) -> ClusteringPlan:
    numbers = count()
    return plan(
        snapshot,
        ClusteringPolicy(**policy, **more),
        new_id=lambda: f"new-{next(numbers)}",
        bounds_of=bounds_of(snapshot),
    )


def _table(files: Sequence[FileSpec]) -> Snapshot:
    return snapshot_of(files, cluster_by=[[name] for name in COLUMNS])


def _parts(made: ClusteringPlan) -> list[tuple[list[str], list[str]]]:
    return [([file.path for file in g.inputs], g.kept.paths()) for g in made.groups]


@given(_files, _policies)
def test_a_file_is_rewritten_kept_or_left_alone_for_one_reason(
    files: list[FileSpec], policy: Mapping[str, Any]
) -> None:
    snapshot = _table(files)
    plain = _plan(snapshot, policy)
    made = _plan(snapshot, policy, skip_clustered=True)
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


@given(_files, _policies)
def test_what_is_kept_lies_where_the_log_says(
    files: list[FileSpec], policy: Mapping[str, Any]
) -> None:
    by_path = {file.path: file for file in files}
    made = _plan(_table(files), policy, skip_clustered=True)
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


@given(_files, _policies)
def test_the_same_table_has_the_same_plan_which_survives_as_a_document(
    files: list[FileSpec], policy: Mapping[str, Any]
) -> None:
    snapshot = _table(files)
    made = _plan(snapshot, policy, skip_clustered=True)
    assert made == _plan(snapshot, policy, skip_clustered=True)
    assert decode_plan(encode_plan(made), where="here") == made


def test_the_laws_see_groups_with_kept_files() -> None:
    def keeps(drawn: tuple[list[FileSpec], Mapping[str, Any]]) -> bool:
        made = _plan(_table(drawn[0]), drawn[1], skip_clustered=True)
        return any(len(group.kept) for group in made.groups)

    search = settings(max_examples=3_000, phases=[Phase.generate], database=None, deadline=None)
    find(st.tuples(_files, _policies), keeps, settings=search)
