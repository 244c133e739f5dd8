"""The conflict rules against a slow, obvious model: replay everything, look for what was read."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from liquidlog.commit.conflicts import ReadSet, check_conflicts
from liquidlog.spec.actions import (
    AddFile,
    AnyAction,
    Commit,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
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
