"""Repairs as changes: what an add says after it, and what stays; no storage."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from liquidlog.clustering.columns import clustering_state, read_domain
from liquidlog.doctor.repairs import (
    domain_repair,
    retagging_repair,
    statistics_repair,
    with_statistics,
)
from liquidlog.spec.actions import CopiedAdd, DomainMetadata
from liquidlog.spec.bounds import FileStatistics
from support.snapshots import FileSpec, snapshot_of

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
def test_bounds_of_the_log_stay_unless_they_are_replaced(
    bounds: tuple[int, int], *, replaces: bool
) -> None:
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


def test_a_domain_is_replaced_or_emptied() -> None:
    columns = clustering_state(snapshot_of()).columns
    for given, paths in ((columns, (("x",),)), ((), ())):
        change = domain_repair(given)
        (domain,) = change.actions
        assert isinstance(domain, DomainMetadata)
        assert read_domain(domain.configuration) == paths
        assert change.operation == "REPAIR"


def test_changes_of_files_count_them() -> None:
    add = CopiedAdd(path="a", document=msgspec.Raw(b"{}"))
    for change, fix in (
        (retagging_repair([add]), "renamed-cubes"),
        (statistics_repair("cut-strings", [add]), "cut-strings"),
    ):
        assert change.parameters == {"fix": fix}
        assert change.actions == (add,)
        assert change.metrics == {"numUpdatedFiles": "1"}
