"""Files that lie well join the cube of their group, and nothing else of them changes."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from liquidlog.errors import ExecutorError
from liquidlog.operations.optimize import metrics_of
from liquidlog.operations.planned import explain_together
from liquidlog.plan import ClusteringPlan, plan_document
from liquidlog.report import plans
from liquidlog.table import Table
from support.arrow_executor import execute
from support.logs import actions_of, commit_actions

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.string())])


def rows(low: int, high: int) -> pa.Table:
    values = list(range(low, high))
    return pa.table([values, [f"y{value % 7}" for value in values]], schema=SCHEMA)


def made(path: Path, **properties: str) -> Table:
    """Return a table of four files, of which the last lies across the first."""
    table = Table.create(
        str(path / "t"),
        schema=SCHEMA,
        cluster_by=["x"],
        properties={f"delta.{name}": value for name, value in properties.items()},
    )
    for low in (0, 1000, 2000, 0):
        table.append(rows(low, low + 1000))
    return table


def planned(table: Table, **more: Any) -> ClusteringPlan:
    size = max(table.snapshot().files["size"].to_pylist())
    return table.plan(max_file_size=size, skip_clustered=True, **more)


def adds(table: Table, version: int) -> dict[str, dict[str, Any]]:
    actions = actions_of(table, version)
    return {action["add"]["path"]: action["add"] for action in actions if "add" in action}


def commit_info(table: Table, version: int) -> dict[str, Any]:
    info: dict[str, Any] = actions_of(table, version)[0]["commitInfo"]
    return info


def content(table: Table) -> list[tuple[int, str]]:
    read = DeltaTable(table.uri).to_pyarrow_table().to_pylist()
    return sorted((row["x"], row["y"]) for row in read)


def test_kept_files_change_their_tags_and_nothing_else(tmp_path: Path) -> None:
    table = made(tmp_path, enableRowTracking="true")
    before = content(table)
    original = {path: add for version in range(1, 5) for path, add in adds(table, version).items()}
    plan = planned(table)
    (group,) = plan.groups
    assert (len(group.inputs), len(group.kept)) == (2, 2)
    report = table.commit(plan, execute(plan))
    added = adds(table, report.versions[0])
    for path in group.kept.paths():
        expected = {
            **original[path],
            "dataChange": False,
            "clusteringProvider": "liquid",
            "tags": {"ZCUBE_ID": group.zcube_id, "ZCUBE_ZORDER_BY": '["x"]'},
        }
        assert added[path] == expected
    assert content(table) == before
    live = table.snapshot().files
    assert set(live["zcube_id"].to_pylist()) == {group.zcube_id}
    info = commit_info(table, report.versions[0])["operationMetrics"]
    kept_bytes = str(group.kept.size_bytes)
    assert (info["numKeptFiles"], info["numKeptBytes"]) == ("2", kept_bytes)
    assert info["numRemovedFiles"] == "2"
    metrics = metrics_of(table.opened, plan, report)
    assert metrics["filesKept"] == {"numFiles": 2, "size": group.kept.size_bytes}
    assert metrics["numFilesRemoved"] == 2
    assert table.plan(skip_clustered=True).groups == ()
    assert table.checkpoint() is not None
    assert set(table.snapshot().files["zcube_id"].to_pylist()) == {group.zcube_id}


def test_a_kept_file_that_was_removed_does_not_join(tmp_path: Path) -> None:
    table = made(tmp_path)
    plan = planned(table)
    result = execute(plan)
    kept = plan.groups[0].kept[0].path
    commit_actions(table, {"remove": {"path": kept, "dataChange": True, "deletionTimestamp": 1}})
    before = content(table)
    report = table.commit(plan, result)
    assert kept not in adds(table, report.versions[0])
    assert content(table) == before
    info = commit_info(table, report.versions[0])["operationMetrics"]
    assert info["numKeptFiles"] == "1"
    metrics = metrics_of(table.opened, plan, report)
    assert metrics["filesKept"]["numFiles"] == 1
    assert report.reconciled.rows == 0


def test_a_plan_without_its_kept_files_is_another_plan(tmp_path: Path) -> None:
    table = made(tmp_path)
    plan = planned(table)
    result = execute(plan)
    (group,) = plan.groups
    fewer = msgspec.structs.replace(group, kept=group.kept[:1])
    with pytest.raises(ExecutorError):
        table.commit(msgspec.structs.replace(plan, groups=(fewer,)), result)
    assert table.snapshot().version == 4


def test_a_plan_says_what_it_keeps(tmp_path: Path) -> None:
    table = made(tmp_path)
    plan = planned(table)
    document = plan_document(plan)
    assert len(document["groups"][0]["kept"]) == 2  # type: ignore[index]
    by_decision = {row["decision"]: row for row in table.explain(plan)}
    assert set(by_decision) == {"rewrite", "keep"}
    assert by_decision["keep"]["reason"] == "lies_well"
    counted = {row.decision: row.files for row in explain_together(plan, examples=3)}
    assert counted == {"rewrite": 2, "keep": 2}
    assert len(plans.plan(plan)) > len(plans.plan(table.plan()))
