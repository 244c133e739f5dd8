"""Partitioned tables are rewritten and appended to partition by partition."""

import json
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from msgspec import structs

from liquidlog.data.reader import LogicalFile
from liquidlog.data.runs import Run, runs_in
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import (
    ClusteringColumnError,
    CommitConflictError,
    DocumentError,
    ExecutorError,
    StorageError,
    TableReplacedError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.operations import writes
from liquidlog.operations.optimize import metrics_of
from liquidlog.plan import RewriteResult, decode_plan, encode_plan, encode_rewritten_group
from liquidlog.rewriting import outputs
from liquidlog.table import Table
from support.arrow_executor import execute
from support.commands import said
from support.copies import set_elsewhere
from support.logs import actions_of, change_actions, live_adds
from support.partitioned import ROWS, TEXTS, map_columns, partitioned_table, rows_of, rows_read


def compacted(table: Table, **arguments: Any) -> Any:
    plan = table.plan(**arguments)
    return plan, table.commit(plan, execute(plan))


def tidy(path: Path) -> bool:
    """Whether no run left a trace."""
    return not list(path.glob("_liquidspark-*"))


def data_files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet")}


def test_reads_files_that_hold_partition_columns_too(tmp_path: Path) -> None:
    """As Delta Spark writes them; what the log says of a partition counts."""
    path = tmp_path / "t"
    table = partitioned_table(path, files={"a": 2})
    before = rows_read(path)

    def also_in_file(action: dict[str, Any]) -> None:
        if "add" in action:
            file = path / action["add"]["path"]
            rows = pq.ParquetFile(file).read()
            pq.write_table(rows.append_column("p", pa.array(["other"] * len(rows))), file)
            action["add"]["size"] = file.stat().st_size

    for version in range(2):
        change_actions(path, version, also_in_file)
    _, report = compacted(table)
    assert report.failures == ()
    assert rows_read(path) == before


def test_orders_rows_inside_partitions(tmp_path: Path) -> None:
    table = partitioned_table(tmp_path / "t")
    before = rows_read(tmp_path / "t")
    plan, report = compacted(table, zorder_by="v")
    assert (plan.strategy, len(plan.groups)) == ("zorder", len(TEXTS))
    parameters = table.history(limit=1)[0]["operationParameters"]
    assert (parameters["zOrderBy"], parameters["clusterBy"]) == ('["v"]', "[]")
    assert len(report.versions) == 1
    assert rows_read(tmp_path / "t") == before
    for group in report.finished:
        for file in group.outputs:
            found = pq.ParquetFile(tmp_path / "t" / file.path).read()["v"].to_pylist()
            assert found == sorted(found)


def test_cuts_large_partitions_by_themselves(tmp_path: Path) -> None:
    table = partitioned_table(tmp_path / "t", files={"a": 4, "b": 1})
    size = table.snapshot().size_bytes // 5
    plan = table.plan(zorder_by="id", target_cube_size=2 * size)
    found = Counter(group.partition_values["p"] for group in plan.groups)
    assert found["b"] == 1
    assert found["a"] >= 2
    assert sum(len(group.inputs) for group in plan.groups) == 5


def test_takes_the_partitions_that_are_asked_for(tmp_path: Path) -> None:
    table = partitioned_table(tmp_path / "t")
    plan, report = compacted(table, where="p = 'a' OR n IS NULL")
    assert {group.partition_values["p"] for group in plan.groups} == {"a", None}
    assert {file.reason.value for file in plan.skipped} == {"not_asked_for"}
    metrics = metrics_of(table.opened, plan, report)
    assert metrics["totalConsideredFiles"] == 6
    assert metrics["partitionsOptimized"] == 2
    [version] = report.versions
    commit = tmp_path / "t" / "_delta_log" / f"{version:020d}.json"
    info = json.loads(commit.read_text().splitlines()[0])["commitInfo"]
    assert json.loads(info["operationParameters"]["predicate"]) == ["(p = 'a' OR n IS NULL)"]


@pytest.mark.parametrize("where", ["id = 1", "p = 'a' AND id > 2", "length(p) = 1", "p = "])
def test_refuses_conditions_that_partition_values_do_not_decide(tmp_path: Path, where: str) -> None:
    table = partitioned_table(tmp_path / "t", files={"a": 2})
    with pytest.raises(UsageError):
        table.plan(where=where)


HELD = {"delta.writePartitionColumnsToParquet": "true"}


def test_files_hold_partition_columns_where_the_table_asks_for_them(tmp_path: Path) -> None:
    """Also the copies that are written without rows that were deleted meanwhile."""
    path = tmp_path / "t"
    table = partitioned_table(path, files={"a": 6})
    set_elsewhere(table, HELD)
    table = Table.open(str(path))
    plan = table.plan()
    assert plan.format_version == 4
    assert decode_plan(encode_plan(plan), where="a test") == plan
    result = execute(plan)
    DeltaTable(str(path)).delete("id = 3")  # delta-rs copies the file, and leaves `p` and `n` out
    [compacted_in] = table.commit(plan, result).versions
    appended_in = table.append(rows_of("b/c d", range(90, 93))).version
    found: dict[int, tuple[str, int]] = {}
    for version in (compacted_in, appended_in):
        [name] = [one["add"]["path"] for one in actions_of(path, version) if "add" in one]
        rows = pq.ParquetFile(path / unquote(name)).read()
        assert rows.column_names == ["id", "v", "p", "n"]
        found |= {row["id"]: (row["p"], row["n"]) for row in rows.to_pylist()}
    ours = dict.fromkeys(range(ROWS, 6 * ROWS), ("a", 1))
    assert found == ours | dict.fromkeys(range(90, 93), ("b/c d", 1))


def test_refuses_to_hold_values_on_which_readers_disagree(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = partitioned_table(path, files={"a": 2})
    set_elsewhere(table, HELD)

    def misspelled(action: dict[str, Any]) -> None:
        if "add" in action:
            action["add"]["partitionValues"]["n"] = "+1"

    change_actions(path, 1, misspelled)
    with pytest.raises(UnsupportedFeatureError, match=r"the value '\+1' of partition column n"):
        Table.open(str(path)).plan()


def test_refuses_a_result_and_a_plan_with_another_partition_value(tmp_path: Path) -> None:
    """Of a plan, neither executor nor result knows better: the log says where inputs are."""
    table = partitioned_table(tmp_path / "t", files={"a": 2, "b": 2})
    before = rows_read(tmp_path / "t")
    plan = table.plan()
    values = [group.partition_values for group in reversed(plan.groups)]
    first = structs.replace(execute(plan).groups[0], partition_values=values[0])
    with pytest.raises(ExecutorError, match="have the partition values"):
        table.commit(plan, RewriteResult(plan_id=plan.plan_id, groups=(first,)))
    pairs = zip(plan.groups, values, strict=True)
    groups = tuple(structs.replace(group, partition_values=value) for group, value in pairs)
    swapped = structs.replace(plan, groups=groups)
    with pytest.raises(CommitConflictError, match="have the partition values"):
        table.commit(swapped, execute(swapped))
    assert rows_read(tmp_path / "t") == before


def test_saves_and_reads_plans_of_partitions(tmp_path: Path) -> None:
    table = partitioned_table(tmp_path / "t")
    plan = table.plan()
    content = encode_plan(plan)
    assert plan.format_version == 2
    assert decode_plan(content, where="a test") == plan
    with pytest.raises(DocumentError, match="format version"):
        decode_plan(content.replace(b'"format_version": 2', b'"format_version": 1'), where="a test")
    without = structs.replace(plan.groups[0], partition_values={"p": "a"})
    wrong = encode_plan(structs.replace(plan, groups=(without,)))
    with pytest.raises(DocumentError, match="partition values"):
        decode_plan(wrong, where="a test")


def test_never_deletes_a_file_in_a_partition_that_the_log_names(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = partitioned_table(path, files={"a": 2})
    plan = table.plan()
    result = execute(plan)
    traces = {file.name: file.read_bytes() for file in path.glob("_liquidspark-*")}
    table.commit(plan, result)
    for name, content in traces.items():
        (path / name).write_bytes(content)  # as if settling had been interrupted
    [run] = runs_in(str(path))
    assert run.directories == ("p=a/n=1",)
    rows = table.orphans(older_than="0s", finished=True, delete=True)
    assert [row["deleted"] for row in rows] == [False]
    assert set(live_adds(path)) <= data_files(path)


def test_finds_what_a_killed_run_left_in_partitions(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = partitioned_table(path, files={"a": 1})
    run = Run(str(path), "0123456789ab", directories=("p=a/n=1",))
    run.begin()
    name = run.path(run.file_name(0, "x", "zstd"))
    (path / name).write_bytes(b"12345")
    assert [found.directories for found in runs_in(str(path))] == [run.directories]
    [row] = table.orphans(older_than="0s", delete=True)
    assert (row["path"], row["deleted"]) == (name, True)
    assert not (path / name).exists()
    assert tidy(path)


def test_names_columns_by_their_physical_names(tmp_path: Path) -> None:
    path = tmp_path / "t"
    partitioned_table(path, files={"a": 2, None: 2})
    map_columns(path)
    table = Table.open(str(path))
    plan, report = compacted(table, where="`the p` IS NOT NULL")
    assert report.failures == ()
    [group] = plan.groups
    assert group.partition_values == {"p": "a", "n": "1"}
    assert len(group.directory) == 2
    added = table.append(
        rows_of("new", range(3)).rename_columns(["the id", "the p", "the n", "the v"])
    )
    assert (added.files, added.rows) == (1, 3)
    values = [add["partitionValues"] for add in live_adds(path).values()]
    assert {"p": "new", "n": "1"} in values


def test_many_partitions_take_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "_MOST_GATHERED_BYTES", 4_000)
    held: list[int] = []
    seen: set[DataFileWriter] = set()

    class Watched(DataFileWriter):
        def write(self, table: pa.Table) -> None:
            seen.add(self)
            held.append(sum(one.pending_bytes for one in seen))
            super().write(table)

    monkeypatch.setattr(outputs, "DataFileWriter", Watched)
    path = tmp_path / "t"
    write_deltalake(str(path), pa.table({"p": ["0"], "x": [0]}), partition_by=["p"])
    rows = pa.table({"p": [str(n % 4) for n in range(4_000)], "x": range(4_000)})
    batches = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=100))
    Table.open(path).append(batches)
    assert 2_000 < max(held) <= 4_000
    found = DeltaTable(str(path)).to_pyarrow_table()["x"].to_pylist()
    assert sorted(found) == [0, *range(4_000)]


def test_files_end_when_many_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "MOST_OPEN", 2)
    # c ends the file of b, to which rows came before those of a; b ends that of a.
    assert _files_of(tmp_path / "t", ["a", "b", "a", "c", "b", "c", "b"]) == {
        "a": 1,
        "b": 2,
        "c": 1,
    }


def _files_of(path: Path, partitions: list[str]) -> Counter[str]:
    """Return how many files of each partition an append of ten rows of each makes."""
    write_deltalake(str(path), pa.table({"p": ["0"], "x": [0]}), partition_by=["p"])
    batches = [pa.record_batch({"p": [name] * 10, "x": range(10)}) for name in partitions]
    rows = pa.Table.from_batches(batches)
    table = Table.open(path)
    would = table.append(rows, dry_run=True)
    assert table.append(rows) == would
    assert would.rows == len(rows)
    found = Counter(add["partitionValues"]["p"] for add in live_adds(path).values())
    assert found.total() == would.files + 1
    return found - Counter("0")


def test_an_append_that_can_make_no_directory_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = partitioned_table(path, files={"a": 1})
    (path / "p=b").write_bytes(b"a file where a directory would be")
    with pytest.raises(StorageError):
        table.append(rows_of("b", range(3)))
    assert tidy(path)


# A partitioned table becomes a clustered one in one commit, or nothing happens.


SMALL: dict[str, Any] = {"min_cube_size": "1B", "target_cube_size": "2KB"}


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
        set_elsewhere(Table.open(refused), {name: value})
        with pytest.raises(UnsupportedFeatureError) as caught:
            Table.open(str(refused)).plan_migration("id")
        assert any(name in reason for reason in caught.value.features)


def test_a_table_without_files_only_changes_its_definition(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = partitioned_table(path, files={"a": 1})
    DeltaTable(str(path)).delete()
    version = table.snapshot().version
    plan = table.plan_migration(["p", "id"])
    assert plan.groups == ()
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


def test_another_value_than_planned_stops_a_migration(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = partitioned_table(path, files={"a": 1, "b": 1})
    plan = table.plan_migration("id")
    result, version = execute(plan), table.snapshot().version

    def moved(action: dict[str, Any]) -> None:
        if "add" in action:
            action["add"]["partitionValues"]["p"] = "b"

    for number in range(version + 1):
        change_actions(path, number, moved)
    with pytest.raises(CommitConflictError, match="have the partition values"):
        Table.open(str(path)).commit(plan, result)
    assert table.snapshot().version == version


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
    change_actions(
        other, 1, lambda one: one.get("add", {}).update(partitionValues={"p": "", "n": "1"})
    )
    with pytest.raises(UnsupportedFeatureError):  # readers do not agree on this value
        Table.open(other.uri).plan_migration("id")
