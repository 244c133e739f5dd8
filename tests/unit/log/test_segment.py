import pytest

from liquidlog.errors import (
    CorruptLogError,
    TableNotFoundError,
    VersionNotFoundError,
)
from liquidlog.log.segment import LogSegment, candidate_segments, list_log
from liquidlog.spec.paths import commit_name
from support.memory_store import MemoryStore


def checkpoint_name(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def part_name(version: int, part: int, parts: int) -> str:
    return f"{version:020d}.checkpoint.{part:010d}.{parts:010d}.parquet"


def segments(*names: str, version: int | None = None) -> tuple[LogSegment, ...]:
    store = MemoryStore(log=dict.fromkeys(names, b""))
    return candidate_segments(list_log(store), version)


def shape(segment: LogSegment) -> tuple[int | None, list[int]]:
    start = None if segment.checkpoint is None else segment.checkpoint.version
    return start, [commit.version for commit in segment.commits]


def test_the_newest_checkpoint_comes_first_and_older_ways_follow() -> None:
    names = [*(commit_name(v) for v in range(5)), checkpoint_name(1), checkpoint_name(3)]
    assert [shape(s) for s in segments(*names)] == [
        (3, [4]),
        (1, [2, 3, 4]),
        (None, [0, 1, 2, 3, 4]),
    ]


def test_a_checkpoint_after_the_wanted_version_is_not_used() -> None:
    names = [*(commit_name(v) for v in range(5)), checkpoint_name(3)]
    assert [shape(s) for s in segments(*names, version=2)] == [(None, [0, 1, 2])]


def test_cleaned_up_commits_need_the_checkpoint() -> None:
    assert [shape(s) for s in segments(commit_name(4), checkpoint_name(3))] == [(3, [4])]


@pytest.mark.parametrize("missing", [0, 2, 3])
def test_a_gap_is_an_error_that_names_it(missing: int) -> None:
    names = [commit_name(v) for v in range(5) if v != missing]
    with pytest.raises(CorruptLogError) as error:
        segments(*names)
    assert str(missing) in error.value.detail


def test_a_version_beyond_the_log_is_not_found() -> None:
    with pytest.raises(VersionNotFoundError) as error:
        segments(commit_name(0), version=1)
    assert error.value.version == 1


def test_a_version_whose_commits_are_cleaned_up_is_not_found() -> None:
    with pytest.raises(VersionNotFoundError):
        segments(commit_name(4), checkpoint_name(3), version=2)


def test_a_multi_part_checkpoint_counts_only_with_all_its_parts() -> None:
    commits = [commit_name(v) for v in range(5)]
    whole = [part_name(3, number, 2) for number in (1, 2)]
    found = segments(*whole, commits[4])
    assert [shape(s) for s in found] == [(3, [4])]
    assert found[0].checkpoint is not None
    assert found[0].checkpoint.names == tuple(whole)
    assert [shape(s) for s in segments(whole[1], *commits)] == [(None, [0, 1, 2, 3, 4])]
    with pytest.raises(CorruptLogError):
        segments(whole[1], commits[4])


def test_parts_of_two_checkpoints_of_one_version_are_not_mixed() -> None:
    names = [part_name(3, 1, 2), part_name(3, 2, 3), commit_name(4)]
    with pytest.raises(CorruptLogError):
        segments(*names)


def test_each_v2_checkpoint_stands_for_itself() -> None:
    uuids = ["2b50c93e-7959-463a-a99b-b886d8a9b496", "4bcd0553-0bf2-406a-99d1-20f0ed8a0e35"]
    names = [f"{3:020d}.checkpoint.{uuids[0]}.json", f"{3:020d}.checkpoint.{uuids[1]}.parquet"]
    found = segments(*names, checkpoint_name(3), commit_name(4))
    assert [shape(s) for s in found] == [(3, [4])] * 3
    assert [s.checkpoint.names for s in found if s.checkpoint] == [
        (checkpoint_name(3),),
        (names[0],),
        (names[1],),
    ]


def test_a_directory_without_commits_is_no_table() -> None:
    with pytest.raises(TableNotFoundError):
        segments("junk.txt")
