"""Findings derived from facts about a table; no storage."""

import pyarrow as pa
import pytest

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.health.measure import measure_health
from liquidlog.definition.schema_changes import LostColumns, Retagging
from liquidlog.doctor.findings import (
    FIXES,
    Examined,
    Finding,
    findings,
    with_cut_bounds,
    without_range,
)
from liquidlog.snapshot import Snapshot
from support.snapshots import FileSpec, bounds_of, snapshot_of

PREFIX = "p" * 32


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


def test_a_clustered_table_has_no_fault() -> None:
    assert found(snapshot_of([clustered("a", 0), clustered("b", 10)])) == {}


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("missing-statistics", clustered("b", 10, rows=None)),
        ("unreadable-tags", clustered("b", 10, zorder_by="x")),
        ("other-provider", clustered("b", 10, provider="other")),
        ("other-columns", clustered("b", 10, zorder_by=("y",))),
        ("unclustered-files", clustered("b", 10, cube=None, zorder_by=None)),
    ],
)
def test_a_fault_of_one_file_is_counted(name: str, file: FileSpec) -> None:
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


def test_columns_outside_the_statistics_are_a_fault_of_the_table() -> None:
    files = [clustered("a", 0)]
    properties = {"delta.dataSkippingStatsColumns": "y"}
    (fault,) = found(snapshot_of(files, configuration=properties)).values()
    assert (fault.name, fault.files) == ("unindexed-columns", None)
    assert fault.command is not None
    assert '"delta.dataSkippingStatsColumns" = "y,x"' in fault.command


def test_strings_that_share_the_prefix_that_is_kept_are_cut() -> None:
    files = [
        FileSpec(path="cut", cube="c", zorder_by=("s",), bounds={"s": (PREFIX, f"{PREFIX}\x7f")}),
        FileSpec(path="whole", cube="c", zorder_by=("s",), bounds={"s": ("a", "b")}),
    ]
    snapshot = snapshot_of(files, cluster_by=[["s"]])
    facts = examined(snapshot)
    columns = clustering_state(snapshot).columns
    cut = with_cut_bounds(snapshot, facts.bounds, columns)
    assert cut["path"].to_pylist() == ["cut"]
    assert without_range(snapshot, facts.bounds).num_rows == 0
    assert found(snapshot)["cut-strings"].files == 1


def test_a_broken_domain_comes_alone_and_a_dropped_column_first() -> None:
    snapshot = snapshot_of([clustered("a", 0, rows=None)], cluster_by=[["gone"], ["x"]])
    assert [fault.name for fault in findings(examined(snapshot))][:1] == ["broken-domain"]
    unreadable = Examined(
        snapshot=snapshot,
        state=None,
        domain_problem="the domain cannot be read",
        bounds=bounds_of(snapshot)([]),
        min_cube_bytes=150,
        health=None,
        retagging=None,
        lost=None,
    )
    (fault,) = findings(unreadable)
    assert (fault.name, fault.fixable) == ("broken-domain", True)


def test_lost_columns_and_old_tags_are_repaired_here() -> None:
    snapshot = snapshot_of([clustered("a", 0, zorder_by=("old",)), clustered("b", 10)])
    columns = clustering_state(snapshot).columns
    retagging = Retagging(
        files=snapshot.files.filter(pa.array([True, False])), tags={'["old"]': '["x"]'}
    )
    lost = LostColumns(columns=columns, version=3, operation="REPLACE TABLE")
    faults = findings(examined(snapshot, retagging=retagging, lost=lost))
    assert [(fault.name, fault.files) for fault in faults] == [
        ("lost-columns", None),
        ("renamed-cubes", 1),
    ]
    assert all(fault.fixable for fault in faults)
