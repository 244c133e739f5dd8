import pytest

from liquidlog.log.replay import reconciled_files, replay_tail, tail_files
from liquidlog.spec.actions import AddFile, AnyAction, DeletionVector, DomainMetadata, RemoveFile

VECTOR = DeletionVector(
    storage_type="u", path_or_inline_dv="abc", offset=1, size_in_bytes=2, cardinality=3
)


def add(path: str, **fields: object) -> AddFile:
    base = {"partition_values": {}, "size": 1, "modification_time": 1, "data_change": True}
    return AddFile(path=path, **{**base, **fields})  # type: ignore[arg-type]


def remove(path: str, vector: DeletionVector | None = None) -> RemoveFile:
    return RemoveFile(path=path, data_change=True, deletion_vector=vector)


def live(*commits: tuple[AnyAction, ...]) -> list[str]:
    newest_first = list(reversed(list(enumerate(commits))))
    return sorted(tail_files(replay_tail(newest_first))["path"].to_pylist())


def test_a_later_remove_ends_a_file_and_a_later_add_brings_it_back() -> None:
    assert live((add("a"), add("b")), (remove("a"),)) == ["b"]
    assert live((add("a"),), (remove("a"),), (add("a"),)) == ["a"]


def test_within_one_commit_the_last_line_wins() -> None:
    assert live((add("a"),), (remove("a"), add("a"))) == ["a"]
    assert live((add("a"), remove("a"))) == []


def test_a_remove_without_the_deletion_vector_does_not_end_the_file_that_has_it() -> None:
    with_vector = add("a", deletion_vector=VECTOR)
    assert live((with_vector,), (remove("a"),)) == ["a"]
    assert live((with_vector,), (remove("a", VECTOR),)) == []


def test_paths_are_compared_as_uris() -> None:
    assert live((add("a%20b"),), (remove("a%20b"),)) == []
    assert live((add("a%2Bb"),), (remove("a+b"),)) == ["a%2Bb"]
    assert live((add("x//a"),), (remove("x/./a"),)) == []
    assert live((add("file:/d/x%20y"),), (remove("file:///d/x%20y"),)) == []
    assert live((add("/d/x"),), (remove("file:/d/x"),)) == []


def test_a_file_knows_the_version_and_tags_of_its_newest_add() -> None:
    tags = {"ZCUBE_ID": "i", "ZCUBE_ZORDER_BY": '["x"]', "other": None}
    files = tail_files(replay_tail([(7, (add("a", tags=tags),)), (3, (add("a"),))]))
    row = files.to_pylist()[0]
    assert row["version"] == 7
    assert (row["zcube_id"], row["zorder_by"]) == ("i", '["x"]')
    assert row["tags_json"] == '{"ZCUBE_ID":"i","ZCUBE_ZORDER_BY":"[\\"x\\"]","other":null}'


def test_the_newest_domain_wins_and_a_tombstone_is_one() -> None:
    old = DomainMetadata(domain="d", configuration="old", removed=False)
    gone = DomainMetadata(domain="d", configuration="", removed=True)
    assert replay_tail([(2, (gone,)), (1, (old,))]).domains["d"].removed


@pytest.mark.parametrize("decided", ["a", "a%20b"])
def test_checkpoint_files_that_a_commit_decided_are_dropped(decided: str) -> None:
    checkpoint = tail_files(replay_tail([(1, (add("a"), add("a%20b"), add("c")))]))
    tail = replay_tail([(2, (remove(decided),))])
    kept = reconciled_files(tail, checkpoint, 0)["path"].to_pylist()
    assert kept == sorted({"a", "a%20b", "c"} - {decided})


def test_a_checkpoint_file_with_another_vector_survives() -> None:
    checkpoint = tail_files(replay_tail([(1, (add("a", deletion_vector=VECTOR),))]))
    other, same = (replay_tail([(2, (remove("a", vector),))]) for vector in (None, VECTOR))
    assert reconciled_files(other, checkpoint, 0).num_rows == 1
    assert reconciled_files(same, checkpoint, 0).num_rows == 0
