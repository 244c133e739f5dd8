"""Findings derived from facts about a table; no storage."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.health import measure_health
from liquidlog.definition.schema_changes import LostColumns, Retagging
from liquidlog.doctor import (
    FIXES,
    Examined,
    Finding,
    Histories,
    Missed,
    findings,
    missed_of,
    with_statistics,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import FileChanges
from liquidlog.spec.bounds import FileStatistics
from support.snapshots import FileSpec, bounds_of, snapshot_of


def examined(
    snapshot: Snapshot, *, retagging: Retagging | None = None, lost: LostColumns | None = None
) -> Examined:
    state = clustering_state(snapshot)
    bounds = bounds_of(snapshot)([column.leaf for column in state.columns])
    return Examined(
        snapshot=snapshot,
        state=state,
        domain_problem=None,
        bounds=bounds,
        min_cube_bytes=150,
        health=measure_health(snapshot, state.columns, bounds, min_cube_bytes=150),
        retagging=retagging,
        lost=lost,
    )


def found(snapshot: Snapshot) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings(examined(snapshot))}


def clustered(name: str, low: int, **others: object) -> FileSpec:
    facts = {"cube": "c", "zorder_by": ("x",), "bounds": {"x": (low, low + 5)}, **others}
    return FileSpec(path=name, **facts)  # type: ignore[arg-type]


def test_a_fault_of_one_file_is_counted() -> None:
    for name, file in (
        ("missing-statistics", clustered("b", 10, rows=None)),
        ("unreadable-tags", clustered("b", 10, zorder_by="x")),
        ("other-provider", clustered("b", 10, provider="other")),
        ("other-columns", clustered("b", 10, zorder_by=("y",))),
        ("over-deleted", clustered("b", 10, deleted=5)),
        ("unclustered-files", clustered("b", 10, cube=None, zorder_by=None)),
    ):
        faults = found(snapshot_of([clustered("a", 0), file]))
        assert set(faults) == {name}
        assert faults[name].files == 1
        assert faults[name].fixable == (name in FIXES)
        command = faults[name].command
        if faults[name].fixable:
            assert command is not None
            assert "/table" in command
        else:
            # Only a rewrite changes these, and nothing was judged here.
            assert command is None
            assert "left alone: whether a rewrite is worth it was not judged" in faults[name].detail


def test_files_of_one_key_ask_for_another_column_if_they_are_the_most() -> None:
    constant = [clustered(f"c{n}", n, bounds={"x": (n, n)}) for n in range(2)]
    (fault,) = found(snapshot_of([*constant, clustered("a", 10)])).values()
    assert (fault.name, fault.files, fault.fixable) == ("constant-files", 2, False)
    wide = [clustered("a", 10), clustered("b", 20)]
    assert found(snapshot_of([*constant, *wide])) == {}


def test_a_broken_domain_comes_alone_and_a_dropped_column_first() -> None:
    snapshot = snapshot_of([clustered("a", 0, rows=None)], cluster_by=[["gone"], ["x"]])
    assert [fault.name for fault in findings(examined(snapshot))][:1] == ["broken-domain"]
    unreadable = replace(
        examined(snapshot),
        state=None,
        domain_problem="the domain cannot be read",
        bounds=bounds_of(snapshot)([]),
        health=None,
    )
    (fault,) = findings(unreadable)
    assert (fault.name, fault.fixable) == ("broken-domain", True)


# Repairs as changes: what an add says after it, and what stays; no storage.


X = ("x",)
COMPUTED = FileStatistics(num_records=10, min_values={X: 1}, max_values={X: 9}, null_count={X: 0})


def repaired(
    spec: FileSpec, *, replaces: bool = False, tight_bounds: bool = True, **others: Any
) -> list[dict[str, Any]]:
    original: dict[str, msgspec.Raw] = {
        name: msgspec.Raw(msgspec.json.encode(value))
        for name, value in {"path": spec.path, "stats": spec.stats, **others}.items()
    }
    adds = with_statistics(
        snapshot_of([spec]).files,
        [original],
        {spec.path: COMPUTED},
        replaces=replaces,
        tight_bounds=tight_bounds,
    )
    return [json.loads(bytes(add.document)) for add in adds]


def stats_of(add: Mapping[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(add["stats"])
    return document


def test_missing_statistics_are_added_and_all_else_stays() -> None:
    (add,) = repaired(FileSpec(path="a", rows=None), modificationTime=5, unknown={"field": [1]})
    assert stats_of(add) == {
        "numRecords": 10,
        "minValues": {"x": 1},
        "maxValues": {"x": 9},
        "nullCount": {"x": 0},
        "tightBounds": True,
    }
    assert {**add, "stats": None} == {
        "path": "a",
        "modificationTime": 5,
        "unknown": {"field": [1]},
        "dataChange": False,
        "stats": None,
    }


@pytest.mark.parametrize(("replaces", "bounds"), [(False, (0, 9)), (True, (1, 9))])
def test_bounds_of_the_log_stay_or_are_replaced(bounds: tuple[int, int], *, replaces: bool) -> None:
    spec = FileSpec(path="a", bounds={"x": (0, None), "y": (5, 6)})
    (add,) = repaired(spec, replaces=replaces)
    stats = stats_of(add)
    assert (stats["minValues"]["x"], stats["maxValues"]["x"]) == bounds
    assert (stats["minValues"]["y"], stats["maxValues"]["y"]) == (5, 6)


def test_a_file_with_nothing_to_add_is_left_out() -> None:
    assert repaired(FileSpec(path="a", bounds={"x": (1, 9)})) == []
    assert len(repaired(FileSpec(path="a", bounds={"x": (1, 8)}), replaces=True)) == 1


def test_bounds_of_physical_rows_are_not_tight_with_deleted_rows() -> None:
    (add,) = repaired(FileSpec(path="a", rows=None, deleted=2))
    assert stats_of(add)["tightBounds"] is False
    (add,) = repaired(FileSpec(path="a", rows=None), tight_bounds=False)
    assert "tightBounds" not in stats_of(add)


# Removes that missed, from commits written by hand.


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


@pytest.mark.parametrize("gone", ["d", "e", "d e"])
def test_once_one_of_the_two_is_gone_nothing_is_doubled(gone: str) -> None:
    assert missed(FIRST, OURS, THEIRS, commit(3, removed=gone)) == ()


def test_a_deletion_that_did_not_see_a_rewrite_is_told() -> None:
    (found,) = missed(FIRST, OURS, commit(2, removed="a b c"))
    assert not found.are_doubled
    assert found.files == ("d",)
    assert "may be there twice, or still" in str(found)
    (found,) = missed(FIRST, commit(1, removed="b"), THEIRS)
    assert (found.are_doubled, found.files) == (False, ("e",))


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
