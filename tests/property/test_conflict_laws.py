"""The conflict rules against a slow, obvious model: replay everything, look for what was read.

Groups that are lost, found for all at once, are those whose own read sets conflict.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from liquidlog.clustering.columns import CLUSTERING_DOMAIN
from liquidlog.commit import ConcurrentDeleteRead, ReadSet, RowsMayBeBack, Winners
from liquidlog.operations.optimize import lasting_conflicts, lost_groups
from liquidlog.plan import ClusteringPlan, InputFile, KeptFile, KeptFiles, PlannedDeletionVector
from liquidlog.spec.actions import (
    AddFile,
    AnyAction,
    Commit,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Fate,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from support.effort import effort
from support.plans import check_conflicts, make_plan, schema_json_of

# The second name is the first, encoded: one file under two spellings.
PATHS = ("a b", "a%20b", "c", "d")
VECTORS = (None, "p", "q")
DOMAINS = ("delta.clustering", "delta.rowTracking", "mine")
METADATA = Metadata(id="t", format=Format(), partition_columns=(), configuration={})
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)


def vector(name: str | None, rows: int = 1) -> DeletionVector | None:
    if name is None:
        return None
    return DeletionVector(
        storage_type="u", path_or_inline_dv=name, offset=1, size_in_bytes=1, cardinality=rows
    )


def add(
    path: str,
    name: str | None,
    data_change: bool = True,  # noqa: FBT001, FBT002
    rows: int = 1,
) -> AddFile:
    return AddFile(
        path=path,
        size=1,
        modification_time=1,
        data_change=data_change,
        deletion_vector=vector(name, rows),
    )


def remove(
    path: str,
    name: str | None,
    data_change: bool = True,  # noqa: FBT001, FBT002
    rows: int = 1,
) -> RemoveFile:
    return RemoveFile(path=path, data_change=data_change, deletion_vector=vector(name, rows))


def domain(name: str, removed: bool) -> DomainMetadata:  # noqa: FBT001
    return DomainMetadata(domain=name, configuration="{}", removed=removed)


PATH, VECTOR = st.sampled_from(PATHS), st.sampled_from(VECTORS)
ACTIONS: st.SearchStrategy[AnyAction] = st.one_of(
    st.builds(add, PATH, VECTOR, st.booleans()),
    st.builds(remove, PATH, VECTOR, st.booleans()),
    st.builds(domain, st.sampled_from(DOMAINS), st.booleans()),
    st.sampled_from([METADATA, PROTOCOL, CommitInfo(), SetTransaction(app_id="a", version=1)]),
)
WINNERS = st.lists(st.lists(ACTIONS, max_size=4), max_size=4)
KEYS = [(path, None if v is None else f"u{v}@1") for path in ("a b", "c", "d") for v in VECTORS]
READ_SETS = st.builds(
    ReadSet,
    version=st.just(5),
    files=st.frozensets(st.sampled_from(KEYS)),
    domains=st.frozensets(st.sampled_from(DOMAINS)),
)


def may_commit(read_set: ReadSet, winners: Sequence[Sequence[AnyAction]]) -> bool:
    """Say whether nothing that was read is different, action by action, in plain words."""
    for actions in winners:
        for action in actions:
            if isinstance(action, Metadata | Protocol):
                return False
            if isinstance(action, DomainMetadata) and action.domain in read_set.domains:
                return False
            if isinstance(action, RemoveFile):
                spelled = action.path.replace("%20", " ")
                described = action.deletion_vector
                name = None if described is None else "u" + described.path_or_inline_dv + "@1"
                if (spelled, name) in read_set.files:
                    return False
    return True


def commits(winners: Sequence[Sequence[AnyAction]]) -> list[Commit]:
    return [Commit(6 + number, tuple(actions)) for number, actions in enumerate(winners)]


@given(read_set=READ_SETS, winners=WINNERS)
def test_a_winner_conflicts_exactly_where_it_changed_what_was_read(
    read_set: ReadSet, winners: list[list[AnyAction]]
) -> None:
    landed = commits(winners)
    alone = [conflict for commit in landed for conflict in check_conflicts(read_set, [commit])]
    assert list(check_conflicts(read_set, landed)) == alone
    assert {conflict.version for conflict in alone} == {
        commit.version for commit in landed if not may_commit(read_set, [commit.actions])
    }


# One file whose rows others delete, or bring back; a vector is known by its name alone.

NAMES = ("p", "q", "r")
CHANGES = st.lists(
    st.one_of(
        st.just("nothing"),
        st.just("add again"),
        st.just("remove"),
        st.tuples(st.sampled_from((None, *NAMES)), st.integers(0, 3)),
    ),
    max_size=5,
)


def history(
    changes: Sequence[Any],
) -> tuple[list[list[AnyAction]], list[tuple[str | None, int] | None]]:
    """Return the commits of changes of a file without a vector, and its states; None is gone."""
    winners: list[list[AnyAction]] = []
    states: list[tuple[str | None, int] | None] = [(None, 0)]
    for change in changes:
        now = states[-1]
        actions: list[AnyAction] = [CommitInfo()]
        if change == "add again" and now is not None:
            actions.append(add("c", now[0], rows=now[1]))
        elif change == "remove" and now is not None:
            actions.append(remove("c", now[0], rows=now[1]))
            states.append(None)
        elif isinstance(change, tuple) and (now is None or change[0] != now[0]):
            name, cardinality = change[0], 0 if change[0] is None else change[1]
            actions.append(add("c", name, rows=cardinality))
            if now is not None:
                actions.append(remove("c", now[0], rows=now[1]))
            states.append((name, cardinality))
        winners.append(actions)
    return winners, states


def rows_only_went(states: Sequence[tuple[str | None, int] | None]) -> bool:
    """Say in plain words whether no row can have come back."""
    names = [state[0] for state in states if state is not None]
    numbers = [state[1] for state in states if state is not None]
    stayed_away = None not in states[:-1]
    return stayed_away and len(set(names)) == len(names) and numbers == sorted(numbers)


@given(changes=CHANGES)
def test_a_reconciled_file_conflicts_where_rows_may_have_come_back(changes: list[Any]) -> None:
    winners, states = history(changes)
    conflicts = check_conflicts(ReadSet(version=5, reconciled={("c", None): 0}), commits(winners))
    assert (not conflicts) == rows_only_went(states)
    assert all(isinstance(conflict, RowsMayBeBack) for conflict in conflicts)
    known = Winners(5)
    known.take(commits(winners))
    course = known.course(("c", None), 0)
    if not rows_only_went(states):
        assert course.fate is Fate.UNCLEAR
    elif states[-1] is None:
        assert (course.fate, course.vector) == (Fate.REMOVED, None)
    elif len(states) == 1:
        assert (course.fate, course.versions) == (Fate.UNCHANGED, ())
    else:
        assert (course.fate, course.vector) == (Fate.DELETED_FROM, vector(*states[-1]))
        numbers = [state[1] for state in states if state is not None]
        assert len(course.versions) == sum(np.diff(numbers) > 0)


@given(read_set=READ_SETS, winners=WINNERS)
def test_to_reconcile_files_takes_away_no_conflict_about_anything_else(
    read_set: ReadSet, winners: list[list[AnyAction]]
) -> None:
    milder = replace(read_set, files=frozenset(), reconciled=dict.fromkeys(read_set.files, 0))
    strict = check_conflicts(read_set, commits(winners))
    others = [one for one in strict if not isinstance(one, ConcurrentDeleteRead)]
    found = check_conflicts(milder, commits(winners))
    assert [one for one in found if not isinstance(one, RowsMayBeBack)] == others


# Groups of a plan, all at once.

FILES = st.sampled_from([(path, vector) for path in "abcdef" for vector in VECTORS])
PATHS_OF_PLANS = st.sampled_from("abcdefkz")
LANDED = st.lists(
    st.lists(
        st.one_of(
            st.builds(remove, PATHS_OF_PLANS, VECTOR),
            st.builds(remove, PATHS_OF_PLANS, VECTOR),
            st.builds(add, PATHS_OF_PLANS, VECTOR, st.just(value=True), st.integers(1, 9)),
            st.builds(domain, st.sampled_from([CLUSTERING_DOMAIN, "mine"]), st.booleans()),
            st.just(CommitInfo()),
        ),
        max_size=3,
    ),
    max_size=4,
)


def planned(path: str, vector: str | None) -> InputFile:
    described = vector and PlannedDeletionVector(
        storage_type="u", path_or_inline_dv=vector, offset=1, size_bytes=1, cardinality=1
    )
    return InputFile(path=path, size_bytes=1, num_records=9, deletion_vector=described or None)


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


@settings(max_examples=effort(150, 3_000))
@given(
    plan=plans(),
    landed=LANDED,
    some=st.sets(st.integers(0, 3)),
    share=st.sampled_from([0.0, 0.2, 1.0]),
)
def test_lost_groups_are_those_that_conflict_alone(
    plan: ClusteringPlan, landed: list[list[AnyAction]], some: set[int], share: float
) -> None:
    winners = Winners(plan.read_version)
    winners.take(Commit(1 + number, tuple(actions)) for number, actions in enumerate(landed))
    groups = [group for group in plan.groups if group.group_id in some]
    alone = {group.group_id: lasting_conflicts(winners, plan, group, share) for group in groups}
    found = lost_groups(winners, plan, groups, share)
    assert found == {group_id: conflicts for group_id, conflicts in alone.items() if conflicts}


@settings(max_examples=effort(150, 3_000))
@given(plan=plans(), landed=LANDED)
def test_a_lost_group_stays_lost(plan: ClusteringPlan, landed: list[list[AnyAction]]) -> None:
    winners = Winners(plan.read_version)
    lost: set[int] = set()
    for number, actions in enumerate(landed):
        winners.take([Commit(1 + number, tuple(actions))])
        now = set(lost_groups(winners, plan, plan.groups))
        assert lost <= now
        lost = now
