"""The conflict rules against a slow, obvious model: replay everything, look for what was read."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.commit.conflicts import (
    ConcurrentDeleteRead,
    ReadSet,
    RowsMayBeBack,
    Winners,
    check_conflicts,
)
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

# The second name is the first, encoded: one file under two spellings.
PATHS = ("a b", "a%20b", "c", "d")
VECTORS = (None, "p", "q")
DOMAINS = ("delta.clustering", "delta.rowTracking", "mine")
METADATA = Metadata(id="t", format=Format(), partition_columns=(), configuration={})
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)


def vector(name: str | None) -> DeletionVector | None:
    if name is None:
        return None
    return DeletionVector(
        storage_type="u", path_or_inline_dv=name, offset=1, size_in_bytes=1, cardinality=1
    )


def add(path: str, name: str | None, data_change: bool) -> AddFile:  # noqa: FBT001
    return AddFile(
        path=path,
        size=1,
        modification_time=1,
        data_change=data_change,
        deletion_vector=vector(name),
    )


def remove(path: str, name: str | None, data_change: bool) -> RemoveFile:  # noqa: FBT001
    return RemoveFile(path=path, data_change=data_change, deletion_vector=vector(name))


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
def test_there_is_a_conflict_exactly_where_something_read_was_changed(
    read_set: ReadSet, winners: list[list[AnyAction]]
) -> None:
    conflicts = check_conflicts(read_set, commits(winners))
    assert (not conflicts) == may_commit(read_set, winners)


@given(read_set=READ_SETS, winners=WINNERS)
def test_every_winner_is_judged_by_itself_and_none_hides_another(
    read_set: ReadSet, winners: list[list[AnyAction]]
) -> None:
    landed = commits(winners)
    alone = [conflict for commit in landed for conflict in check_conflicts(read_set, [commit])]
    assert list(check_conflicts(read_set, landed)) == alone
    assert {conflict.version for conflict in alone} == {
        commit.version for commit in landed if not may_commit(read_set, [commit.actions])
    }


@given(read_set=READ_SETS, winners=WINNERS)
def test_the_order_of_actions_in_a_commit_decides_nothing(
    read_set: ReadSet, winners: list[list[AnyAction]]
) -> None:
    reversed_actions = [list(reversed(actions)) for actions in winners]
    forwards = check_conflicts(read_set, commits(winners))
    backwards = check_conflicts(read_set, commits(reversed_actions))
    assert set(forwards) == set(backwards)


@given(read_set=READ_SETS, winners=WINNERS, more=READ_SETS)
def test_reading_more_never_takes_a_conflict_away(
    read_set: ReadSet, winners: list[list[AnyAction]], more: ReadSet
) -> None:
    wider = ReadSet(
        version=5, files=read_set.files | more.files, domains=read_set.domains | more.domains
    )
    versions = {conflict.version for conflict in check_conflicts(read_set, commits(winners))}
    assert versions <= {c.version for c in check_conflicts(wider, commits(winners))}


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


def described(name: str | None, cardinality: int) -> DeletionVector | None:
    if name is None:
        return None
    return DeletionVector(
        storage_type="u", path_or_inline_dv=name, offset=1, size_in_bytes=1, cardinality=cardinality
    )


def added(new: DeletionVector | None) -> AddFile:
    return AddFile(path="c", size=1, modification_time=1, data_change=True, deletion_vector=new)


def history(
    changes: Sequence[Any],
) -> tuple[list[list[AnyAction]], list[tuple[str | None, int] | None]]:
    """Return the commits of changes of a file without a vector, and its states; None is gone."""
    winners: list[list[AnyAction]] = []
    states: list[tuple[str | None, int] | None] = [(None, 0)]
    for change in changes:
        now = states[-1]
        actions: list[AnyAction] = [CommitInfo()]
        old = None if now is None else described(*now)
        if change == "add again" and now is not None:
            actions.append(added(old))
        elif change == "remove" and now is not None:
            actions.append(RemoveFile(path="c", data_change=True, deletion_vector=old))
            states.append(None)
        elif isinstance(change, tuple) and (now is None or change[0] != now[0]):
            name, cardinality = change[0], 0 if change[0] is None else change[1]
            new = described(name, cardinality)
            actions.append(added(new))
            if now is not None:
                actions.append(RemoveFile(path="c", data_change=True, deletion_vector=old))
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
def test_a_reconciled_file_conflicts_exactly_where_rows_may_have_come_back(
    changes: list[Any],
) -> None:
    winners, states = history(changes)
    read_set = ReadSet(version=5, reconciled={("c", None): 0})
    conflicts = check_conflicts(read_set, commits(winners))
    assert (not conflicts) == rows_only_went(states)
    assert all(isinstance(conflict, RowsMayBeBack) for conflict in conflicts)


@given(changes=CHANGES)
def test_what_became_of_a_file_is_what_it_is_now(changes: list[Any]) -> None:
    winners, states = history(changes)
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
        assert (course.fate, course.vector) == (Fate.DELETED_FROM, described(*states[-1]))
        numbers = [state[1] for state in states if state is not None]
        assert len(course.versions) == sum(np.diff(numbers) > 0)


@given(changes=CHANGES)
def test_a_file_that_is_not_reconciled_conflicts_with_every_change(changes: list[Any]) -> None:
    winners, states = history(changes)
    read_set = ReadSet(version=5, files=frozenset({("c", None)}))
    assert bool(check_conflicts(read_set, commits(winners))) == (len(states) > 1)


@given(read_set=READ_SETS, winners=WINNERS)
def test_to_reconcile_files_takes_away_no_conflict_about_anything_else(
    read_set: ReadSet, winners: list[list[AnyAction]]
) -> None:
    milder = replace(read_set, files=frozenset(), reconciled=dict.fromkeys(read_set.files, 0))
    strict = check_conflicts(read_set, commits(winners))
    others = [one for one in strict if not isinstance(one, ConcurrentDeleteRead)]
    found = check_conflicts(milder, commits(winners))
    assert [one for one in found if not isinstance(one, RowsMayBeBack)] == others
