"""Removes that missed, from commits written by hand."""

import pytest

from liquidlog.doctor.missed import Histories, Missed, listed, missed_of
from liquidlog.spec.actions import FileChanges


def commit(
    version: int, removed: str = "", added: str = "", *, rewrites: bool = False
) -> FileChanges:
    """Return a commit about files of one letter, each with a vector if a digit follows."""
    return FileChanges(
        version=version,
        operation="OPTIMIZE" if rewrites else "WRITE",
        removed=tuple(keys(removed)),
        added=tuple(keys(added)),
        is_rewrite=rewrites,
    )


def keys(text: str) -> list[tuple[str, str | None]]:
    return [(word[0], word[1:] or None) for word in text.split()]


def missed(*commits: FileChanges, is_whole: bool = True) -> tuple[Missed, ...]:
    histories = Histories(is_whole=is_whole)
    for one in commits:
        histories.take(one)
    return histories.missed()


FIRST = commit(0, added="a b c")
OURS = commit(1, removed="a b", added="d", rewrites=True)
THEIRS = commit(2, removed="b c", added="e", rewrites=True)


def test_two_rewrites_of_one_file_double_its_rows() -> None:
    (found,) = missed(FIRST, OURS, THEIRS)
    assert (found.version, found.earlier, found.paths) == (2, 1, ("b",))
    assert found.are_doubled
    assert found.files == ("d", "e")
    assert missed_of([OURS, THEIRS]) == (found,)
    assert "version 2 (OPTIMIZE) removed 1 file(s) that version 1 had removed (b)" in str(found)


def test_rewrites_of_the_outputs_hold_the_rows_too() -> None:
    (found,) = missed(FIRST, OURS, THEIRS, commit(3, removed="e", added="f", rewrites=True))
    assert found.files == ("d", "f")


@pytest.mark.parametrize("gone", ["d", "e", "d e"])
def test_once_one_of_the_two_is_gone_nothing_is_doubled(gone: str) -> None:
    assert missed(FIRST, OURS, THEIRS, commit(3, removed=gone)) == ()


def test_a_file_that_was_added_back_is_removed_again() -> None:
    restored = commit(2, removed="d", added="a b")
    assert missed(FIRST, OURS, restored, commit(3, removed="a b", rewrites=True, added="e")) == ()


def test_a_deletion_that_did_not_see_a_rewrite_is_told() -> None:
    (found,) = missed(FIRST, OURS, commit(2, removed="a b c"))
    assert not found.are_doubled
    assert found.files == ("d",)
    assert "may be there twice, or still" in str(found)


def test_what_two_deleted_is_gone() -> None:
    assert missed(FIRST, commit(1, removed="a"), commit(2, removed="a")) == ()


def test_a_file_that_no_version_had_is_told_where_the_log_is_whole() -> None:
    strange = commit(1, removed="x")
    (found,) = missed(FIRST, strange)
    assert (found.earlier, found.files) == (None, ())
    assert str(found) == "version 1 (WRITE) removed 1 file(s) that no version had (x)"
    assert missed(strange, is_whole=False) == ()


def test_a_new_vector_is_no_fault_and_a_forgotten_one_is() -> None:
    histories = Histories(is_whole=True)
    histories.take(FIRST)
    histories.take(commit(1, removed="a", added="a1"))
    histories.take(commit(2, removed="a1", added="a2"))
    assert histories.left_with_another_vector({("a", "2")}) == {}
    histories.take(commit(3, removed="a", added="z"))
    assert histories.missed() == ()
    assert "a" in histories.suspects
    assert histories.left_with_another_vector({("a", "2"), ("z", None)}) == {("a", "2"): 3}
    histories.take(commit(4, removed="a2"))
    assert histories.left_with_another_vector({("z", None)}) == {}


def test_a_forgotten_vector_of_a_file_from_before_the_log_is_found_in_the_table() -> None:
    histories = Histories(is_whole=False)
    histories.take(commit(7, removed="a b", added="z"))
    assert histories.left_with_another_vector({("a", "1"), ("z", None)}) == {("a", "1"): 7}


def test_both_removes_of_a_file_in_one_commit_are_one() -> None:
    assert missed(commit(0, added="a1"), commit(1, removed="a a1")) == ()


def test_few_are_listed() -> None:
    assert listed("edcba", 2) == "a; b; 3 more"
