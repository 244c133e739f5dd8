"""Groups that are lost, found for all at once, are those whose own read sets conflict."""

from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from liquidlog.clustering.columns import CLUSTERING_DOMAIN
from liquidlog.commit.conflicts import Winners
from liquidlog.errors import Conflict
from liquidlog.operations.batches import read_set_of
from liquidlog.operations.rewrite import lost_groups
from liquidlog.plan import (
    ClusteringPlan,
    InputFile,
    KeptFile,
    KeptFiles,
    PlannedDeletionVector,
    RewriteGroup,
)
from liquidlog.spec.actions import (
    AddFile,
    AnyAction,
    Commit,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    RemoveFile,
)
from support.plans import make_plan, schema_json_of

VECTORS = (None, "p", "q")
FILES = st.sampled_from([(path, vector) for path in "abcdef" for vector in VECTORS])


def planned(path: str, vector: str | None) -> InputFile:
    described = vector and PlannedDeletionVector(
        storage_type="u", path_or_inline_dv=vector, offset=1, size_bytes=1, cardinality=1
    )
    return InputFile(path=path, size_bytes=1, num_records=9, deletion_vector=described or None)


def logged(vector: str | None, rows: int = 1) -> DeletionVector | None:
    if vector is None:
        return None
    return DeletionVector(
        storage_type="u", path_or_inline_dv=vector, offset=1, size_in_bytes=1, cardinality=rows
    )


@st.composite
def plans(draw: st.DrawFn) -> ClusteringPlan:
    """Return a plan of up to four groups that share no file; some keep files."""
    files = draw(st.lists(FILES, max_size=6, unique_by=lambda file: file[0]))
    groups = draw(st.lists(st.integers(0, 3), min_size=len(files), max_size=len(files)))
    inputs = [
        tuple(planned(*file) for file, group in zip(files, groups, strict=True) if group == number)
        for number in range(4)
    ]
    schema = schema_json_of({"x": "long"})
    plan = make_plan(Path("t"), schema, [(own, 1) for own in inputs], columns=[("x",)])
    kept = draw(st.integers(0, 3))
    files_kept = KeptFiles.of([KeptFile(path="k", size_bytes=1, num_records=9)])
    return structs.replace(
        plan,
        groups=tuple(
            structs.replace(group, kept=files_kept) if group.group_id == kept else group
            for group in plan.groups
        ),
    )


def _remove(path: str, vector: str | None) -> RemoveFile:
    return RemoveFile(path=path, data_change=True, deletion_vector=logged(vector))


def _add(path: str, vector: str | None, rows: int) -> AddFile:
    described = logged(vector, rows)
    return AddFile(
        path=path, size=1, modification_time=1, data_change=True, deletion_vector=described
    )


PATHS, VECTOR = st.sampled_from("abcdefkz"), st.sampled_from(VECTORS)
DOMAINS = st.sampled_from([CLUSTERING_DOMAIN, "mine"])
ACTIONS: st.SearchStrategy[AnyAction] = st.one_of(
    st.builds(_remove, PATHS, VECTOR),
    st.builds(_remove, PATHS, VECTOR),
    st.builds(_add, PATHS, VECTOR, st.integers(1, 9)),
    st.builds(DomainMetadata, domain=DOMAINS, configuration=st.just("{}"), removed=st.booleans()),
    st.just(CommitInfo()),
)
COMMITS = st.lists(st.lists(ACTIONS, max_size=3), max_size=4)


def own_conflicts(
    winners: Winners, plan: ClusteringPlan, group: RewriteGroup
) -> Sequence[Conflict]:
    return winners.conflicts(read_set_of(plan, group))


@given(plan=plans(), commits=COMMITS, some=st.sets(st.integers(0, 3)))
def test_lost_groups_are_those_that_conflict_alone(
    plan: ClusteringPlan, commits: list[list[AnyAction]], some: set[int]
) -> None:
    winners = Winners(plan.read_version)
    winners.take(Commit(1 + number, tuple(actions)) for number, actions in enumerate(commits))
    groups = [group for group in plan.groups if group.group_id in some]
    alone = {group.group_id: own_conflicts(winners, plan, group) for group in groups}
    found = lost_groups(winners, plan, groups, conflicts_of=own_conflicts)
    assert found == {group_id: conflicts for group_id, conflicts in alone.items() if conflicts}


@given(plan=plans(), commits=COMMITS)
def test_a_lost_group_stays_lost(plan: ClusteringPlan, commits: list[list[AnyAction]]) -> None:
    winners = Winners(plan.read_version)
    lost: set[int] = set()
    for number, actions in enumerate(commits):
        winners.take([Commit(1 + number, tuple(actions))])
        now = set(lost_groups(winners, plan, plan.groups))
        assert lost <= now
        lost = now
