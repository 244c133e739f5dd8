"""A partitioned table becomes a clustered one in one commit, or nothing happens."""

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from msgspec import structs

from liquidlog.clustering.change import FilesAdded
from liquidlog.data.logical_file import LogicalFile
from liquidlog.errors import (
    ClusteringColumnError,
    CommitConflictError,
    DocumentError,
    ExecutorError,
    TableReplacedError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.operations.optimize import migrate_empty
from liquidlog.operations.rewrite import GroupConflict
from liquidlog.plan import RewriteResult, decode_plan, encode_plan, encode_rewritten_group
from liquidlog.table import Table
from support.arrow_executor import execute
from support.commands import said
from support.logs import actions_of as log_actions
from support.logs import live_adds
from support.partitioned import (
    ROWS,
    map_columns,
    migrate,
    partitioned_table,
    rows_of,
    rows_read,
)

SMALL: dict[str, Any] = {"min_cube_size": "1B", "target_cube_size": "2KB"}


def actions_of(path: Path, version: int) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for line in log_actions(path, version):
        for kind, action in line.items():
            found.setdefault(kind, []).append(action)
    return found


def test_one_commit_makes_the_table_clustered_and_keeps_every_row(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = partitioned_table(path)
    before, files = rows_read(path), len(live_adds(path))
    report = migrate(table, ["p", "id"], **SMALL)
    assert len(report.versions) == 1
    assert len(report.committed_groups) > 1
    assert rows_read(path) == before
    detail = table.detail()
    assert (detail["partitionColumns"], detail["clusteringColumns"]) == ([], ["p", "id"])
    actions = actions_of(path, report.versions[0])
    assert len(actions["remove"]) == files
    assert not any(add["partitionValues"] for add in actions["add"])
    assert {one["dataChange"] for one in (*actions["add"], *actions["remove"])} == {False}
    assert actions["protocol"][0]["writerFeatures"][-2:] == ["domainMetadata", "clustering"]
    [domain] = actions["domainMetadata"]
    assert json.loads(domain["configuration"])["clusteringColumns"] == [["p"], ["id"]]
    assert actions["commitInfo"][0]["operation"] == "REPLACE PARTITIONED BY"
    for add in actions["add"]:
        assert pq.read_schema(path / add["path"]).names == ["id", "p", "n", "v"]
        assert json.loads(add["stats"])["nullCount"].keys() == {"id", "p", "n", "v"}
    assert not table.plan(min_cube_size="1B").groups


def test_columns_keep_their_physical_names(tmp_path: Path) -> None:
    path = tmp_path / "t"
    partitioned_table(path, files={"a": 2, None: 2})
    map_columns(path)
    table = Table.open(str(path))
    migrate(table, ["the p", "the id"])
    assert table.detail()["clusteringColumns"] == ["`the p`", "`the id`"]
    [add] = live_adds(path).values()
    assert pq.read_schema(path / add["path"]).names == ["id", "p", "n", "v"]
    assert pq.read_table(path / add["path"])["p"].to_pylist().count(None) == 2 * ROWS


def test_saved_plans_are_the_same_plans(tmp_path: Path) -> None:
    table = partitioned_table(tmp_path / "t", files={"a": 2, None: 1})
    plan = table.plan_migration("p")
    content = encode_plan(plan)
    assert decode_plan(content, where="plan.json") == plan
    assert json.loads(content)["format_version"] == 3
    document = json.loads(content)
    document["groups"][0]["inputs"][0]["partition_values"] = {"p": "a"}
    with pytest.raises(DocumentError):
        decode_plan(json.dumps(document).encode(), where="plan.json")
    del document["former_partition_columns"]
    with pytest.raises(DocumentError):
        decode_plan(json.dumps(document).encode(), where="plan.json")


def test_a_result_without_all_groups_commits_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = partitioned_table(path)
    plan = table.plan_migration("id", **SMALL)
    result, version = execute(plan), table.snapshot().version
    part = RewriteResult(plan_id=plan.plan_id, groups=result.groups[1:])
    for dry_run in (True, False):
        with pytest.raises(ExecutorError, match=r"group\(s\) 0 of"):
            table.commit(plan, part, dry_run=dry_run)
    assert table.snapshot().version == version
    assert table.commit(plan, result).versions == (version + 1,)
    again = table.commit(plan, result)
    assert (again.versions, len(again.skipped_groups)) == ((), len(plan.groups))


@pytest.fixture
def planned(tmp_path: Path) -> tuple[Path, Table, Any]:
    path = tmp_path / "t"
    table = partitioned_table(path)
    return path, table, table.plan_migration("id", **SMALL)


def test_files_that_others_add_are_a_conflict(planned: tuple[Path, Table, Any]) -> None:
    path, table, plan = planned
    result = execute(plan)
    table.append(DeltaTable(str(path)).to_pyarrow_table().slice(0, 1))
    before, version = rows_read(path), table.snapshot().version
    with pytest.raises(CommitConflictError) as caught:
        table.commit(plan, result)
    [conflict] = caught.value.conflicts
    assert isinstance(conflict, GroupConflict)
    found = conflict.conflict
    assert isinstance(found, FilesAdded)
    assert (found.versions, len(found.paths)) == ((version,), 1)
    assert rows_read(path) == before
    assert table.snapshot().version == version
    DeltaTable(str(path)).restore(version - 1)
    table.commit(plan, result)
    assert sum(rows_read(path).values()) == sum(before.values()) - 1


def test_a_group_of_which_nothing_is_left_is_a_conflict(planned: tuple[Path, Table, Any]) -> None:
    path, table, plan = planned
    result = execute(plan)
    DeltaTable(str(path)).delete("p = 'a'")
    before = rows_read(path)
    with pytest.raises(CommitConflictError):
        table.commit(plan, result, max_reconciled_share=1)
    assert rows_read(path) == before
    assert table.detail()["partitionColumns"] == ["p", "n"]
    assert not list(path.glob("part-*"))  # no commit can ever name what was rewritten


def test_what_forbids_a_migration_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = partitioned_table(path, files={"a": 1})
    with pytest.raises(ClusteringColumnError):
        table.plan_migration("nothing")
    plain = tmp_path / "plain"
    write_deltalake(str(plain), pa.table({"id": [1]}))
    with pytest.raises(UsageError, match="not partitioned"):
        Table.open(str(plain)).plan_migration("id")
    with pytest.raises(UsageError):
        table.commit(
            table.plan_migration("id"), RewriteResult(plan_id="", groups=()), groups_per_commit=2
        )
    for name, value in (
        ("delta.compatibility.symlinkFormatManifest.enabled", "true"),
        ("delta.universalFormat.enabledFormats", "iceberg"),
        ("delta.enableIcebergCompatV2", "true"),
    ):
        refused = tmp_path / name
        partitioned_table(refused, files={"a": 1})
        set_property(refused, name, value)
        with pytest.raises(UnsupportedFeatureError) as caught:
            Table.open(str(refused)).plan_migration("id")
        assert any(name in reason for reason in caught.value.features)


def set_property(path: Path, name: str, value: str) -> None:
    first = path / "_delta_log" / f"{0:020d}.json"
    first.write_text(
        first.read_text().replace(
            '"configuration":{}', json.dumps({name: value}).join(('"configuration":', ""))
        )
    )


def test_a_value_that_readers_do_not_agree_on_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    partitioned_table(path, files={"a": 1, "b": 1})
    for commit in (path / "_delta_log").glob("*.json"):
        commit.write_text(commit.read_text().replace('"p":"a"', '"p":""'))
    with pytest.raises(UnsupportedFeatureError) as caught:
        Table.open(str(path)).plan_migration("id")
    assert len(caught.value.features) == 1


def test_a_table_without_files_only_changes_its_definition(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = partitioned_table(path, files={"a": 1})
    DeltaTable(str(path)).delete()
    version = table.snapshot().version
    plan = table.plan_migration(["p", "id"])
    assert plan.groups == ()
    opened = table.opened
    rehearsed = migrate_empty(opened, plan, dry_run=True)
    assert rehearsed.versions == (version + 1,)
    assert table.snapshot().version == version
    assert table.migrate(["p", "id"]).versions == (version + 1,)
    assert table.detail()["partitionColumns"] == []
    other = partitioned_table(tmp_path / "other", files={"a": 1})
    empty = structs.replace(other.plan_migration("id"), groups=())
    with pytest.raises(CommitConflictError):
        other.optimize(plan=empty)


def test_an_executor_that_ignores_partition_values_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = partitioned_table(path)
    plan = table.plan_migration("id")
    before, version = rows_read(path), table.snapshot().version
    with mock.patch.object(LogicalFile, "_with_constants", lambda _, rows, __: rows):
        result = execute(plan)
    assert result.groups[0].checksum_read == result.groups[0].checksum_written
    with pytest.raises(ExecutorError, match="its values are lost"):
        table.commit(plan, result)
    assert (table.snapshot().version, rows_read(path)) == (version, before)


def test_all_groups_are_cancelled_when_one_is_lost(planned: tuple[Path, Table, Any]) -> None:
    path, table, plan = planned
    assert table.watch(plan)() == {}
    DeltaTable(str(path)).delete("p = 'a'")
    lost = table.watch(plan, max_reconciled_share=1)()
    assert set(lost) == {group.group_id for group in plan.groups}


def test_files_that_others_add_can_be_added_to_the_plan(tmp_path: Path) -> None:
    """Finished groups stay finished, whatever others append, update or delete meanwhile."""
    path, saved, result = tmp_path / "t", tmp_path / "plan.json", tmp_path / "result.jsonl"
    table = partitioned_table(path)
    words = ["migrate", str(path), "--cluster-by", "p,id", "-o", str(saved)]
    assert said(*words, "--set", "min_cube_size=1B", "--set", "target_cube_size=3KB")[0] == 0
    plan = decode_plan(saved.read_bytes(), where="plan.json")
    result.write_bytes(b"".join(map(encode_rewritten_group, execute(plan).groups)))
    finished = result.read_bytes()
    write_deltalake(str(path), rows_of("new", range(900, 904)), mode="append")
    DeltaTable(str(path)).update({"v": "'changed'"}, predicate="id = 1")
    before = rows_read(path)
    status, _, err = said("commit", str(saved), str(result), "--set", "max_reconciled_share=100%")
    assert (status, rows_read(path)) == (3, before)
    assert "--add-to" in err
    status, out, _ = said("migrate", str(path), "--add-to", str(saved), "--json")
    assert status == 0
    extended = decode_plan(saved.read_bytes(), where="plan.json")
    assert extended.groups[: len(plan.groups)] == plan.groups
    assert len(json.loads(out)["groups"]) == len(extended.groups) > len(plan.groups)
    assert said("commit", str(saved), str(result))[0] == 1
    status, _, err = said("run", str(saved), "-o", str(result), "--executor", "local")
    assert status == 0, err
    assert result.read_bytes().startswith(finished)
    assert said("commit", str(saved), str(result), "--set", "max_reconciled_share=100%")[0] == 0
    assert rows_read(path) == before
    assert table.detail()["clusteringColumns"] == ["p", "id"]
    with pytest.raises(CommitConflictError):
        table.plan_migration(add_to=extended)


def test_only_a_migration_of_this_table_is_extended(tmp_path: Path) -> None:
    table = partitioned_table(tmp_path / "t", files={"a": 2})
    with pytest.raises(UsageError):
        table.plan_migration(add_to=table.plan())
    other = partitioned_table(tmp_path / "other", files={"a": 2})
    with pytest.raises(TableReplacedError):
        other.plan_migration(add_to=table.plan_migration("id"))
