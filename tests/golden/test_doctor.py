"""What the reference engine left behind: found, mended, and nothing else changed."""

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from liquidlog.cli.main import cli, run
from liquidlog.doctor import FIXES
from liquidlog.errors import CommitConflictError, LiquidlogError, UsageError
from liquidlog.log.loader import open_store
from liquidlog.operations.doctor import mend, not_removed, read_histories
from liquidlog.table import Table, system_clock
from support.copies import copy_table
from support.logs import actions_of, change_actions, live_adds, write_actions
from support.repository import ROOT

LOGS = ROOT / "fixtures" / "logs"


def of_log(case: str, directory: Path) -> Table:
    shutil.copytree(LOGS / case / "table", directory / case)
    return Table.open(str(directory / case))


def names(table: Table) -> set[str]:
    return {finding.name for finding in table.doctor()}


def fixable(table: Table) -> list[str]:
    return [finding.name for finding in table.doctor() if finding.fixable]


@pytest.mark.parametrize(
    ("case", "new_tag"),
    [("09_cm_name_rename", '["x_renamed","s"]'), ("11_struct_column_mapping", '["`pp qq`.`k.1`"]')],
)
def test_cubes_from_before_a_rename_are_the_tables_own_again(
    case: str, new_tag: str, tmp_path: Path
) -> None:
    table = Table.open(str(copy_table("tables", case, tmp_path)))
    before = live_adds(table)
    assert fixable(table) == ["renamed-cubes"]
    (would,) = table.fix("renamed-cubes", dry_run=True)
    assert live_adds(table) == before
    (done,) = table.fix("renamed-cubes")
    assert would == done
    assert done.files == 2
    after = live_adds(table)
    assert set(after) == set(before)
    changed = [path for path in after if after[path] != before[path]]
    assert len(changed) == 2
    for path in changed:
        assert after[path]["tags"] == {**before[path]["tags"], "ZCUBE_ZORDER_BY": new_tag}
        assert after[path]["dataChange"] is False
        kept = {"tags", "dataChange"}
        assert {k: v for k, v in after[path].items() if k not in kept} == {
            k: v for k, v in before[path].items() if k not in kept
        }
    assert {cube["state"] for cube in table.cubes().to_pylist()} == {"partial"}
    assert fixable(table) == []
    assert table.fix("renamed-cubes")[0].versions == ()


@pytest.mark.parametrize("case", ["34_overwrite", "33_overwrite", "34_replace_other_columns"])
def test_clustering_columns_that_an_overwrite_took_come_back(case: str, tmp_path: Path) -> None:
    table = of_log(case, tmp_path)
    assert table.detail()["clusteringColumns"] == []
    assert fixable(table) == ["lost-columns"]
    table.fix("lost-columns")
    assert table.detail()["clusteringColumns"] == ["x", "s"]
    assert "lost-columns" not in names(table)


def test_a_domain_that_cannot_be_read_is_restored_from_the_past(tmp_path: Path) -> None:
    table = of_log("32_domain_bad_json", tmp_path)
    assert names(table) == {"broken-domain"}
    table.fix("broken-domain")
    assert table.detail()["clusteringColumns"] == ["x", "s"]
    assert "broken-domain" not in names(table)


def test_a_domain_of_columns_that_are_gone_is_cleared(tmp_path: Path) -> None:
    table = of_log("32_domain_unknown_column", tmp_path)
    assert fixable(table) == ["broken-domain"]
    table.fix("broken-domain")
    assert table.detail()["clusteringColumns"] == []
    assert fixable(table) == []


@pytest.mark.parametrize(
    ("case", "found"),
    [
        ("32_other_provider", {"other-provider", "unclustered-files"}),
        ("05_alter_columns", {"other-columns"}),
        ("32_bad_zorder_by_tag", {"unreadable-tags", "unclustered-files"}),
        ("32_domain_without_feature", {"domain-without-feature", "no-clustering-columns"}),
        ("03_optimize_once", set()),
        ("01_create_4col", set()),
        ("24_partitioned_zorder", {"partitioned"}),
    ],
)
def test_what_only_a_rewrite_or_a_decision_mends_is_named(
    case: str, found: set[str], tmp_path: Path
) -> None:
    table = of_log(case, tmp_path)
    assert names(table) == found
    before = table.snapshot().version
    table.fix(*FIXES)
    assert table.snapshot().version == before


def without_statistics(tmp_path: Path, case: str = "26_stats_missing") -> Table:
    """A table whose first files the engine wrote without statistics, before they were added."""
    path = copy_table("incomplete", case, tmp_path)
    (path / "_delta_log" / f"{6:020d}.json").unlink()
    return Table.open(str(path))


def bounds_by_duckdb(table: Table, path: str) -> tuple[Any, ...]:
    file = f"'{table.uri}/{path}'"
    with duckdb.connect() as database:
        columns = [row[0] for row in database.execute(f"describe from {file}").fetchall()]
        bounds = ", ".join(f"min({c}), max({c}), count(*) - count({c})" for c in columns)
        (found,) = database.execute(f"select count(*), {bounds} from {file}").fetchall()
    return tuple(found)


def bounds_in_log(add: dict[str, Any]) -> tuple[Any, ...]:
    stats = json.loads(add["stats"])
    sections = [stats[name] for name in ("minValues", "maxValues", "nullCount")]
    columns = [name for name in ("id", "x", "s") if name in sections[2]]
    return (stats["numRecords"], *(section[name] for name in columns for section in sections))


def test_statistics_are_filled_in_and_nothing_else_changes(tmp_path: Path) -> None:
    table = without_statistics(tmp_path)
    before = live_adds(table)
    lacking = {path for path, add in before.items() if "stats" not in add}
    assert lacking
    assert "missing-statistics" in fixable(table)
    assert table.health().files_with_stats == len(before) - len(lacking)
    (done,) = table.fix("missing-statistics")
    assert (done.files, len(done.versions)) == (len(lacking), 1)
    after = live_adds(table)
    for path, add in after.items():
        if path in lacking:
            assert bounds_in_log(add) == bounds_by_duckdb(table, path)
            assert add["dataChange"] is False
            kept = {k: v for k, v in add.items() if k not in {"stats", "dataChange"}}
            assert kept == {k: v for k, v in before[path].items() if k != "dataChange"}
        else:
            assert add == before[path]
    assert table.health().files_with_stats == len(before)
    assert fixable(table) == []


def test_what_the_log_says_stays_and_what_it_lacks_is_added(tmp_path: Path) -> None:
    table = Table.open(str(copy_table("incomplete", "26_stats_partial", tmp_path)))
    assert table.fix("missing-statistics")[0].files == 3
    assert fixable(table) == []
    for path, add in live_adds(table).items():
        assert bounds_in_log(add) == bounds_by_duckdb(table, path)


def test_bounds_of_a_file_with_deleted_rows_are_not_said_to_be_exact(tmp_path: Path) -> None:
    path = copy_table("incomplete", "26_stats_missing", tmp_path)

    def count_only(action: dict[str, Any]) -> None:
        if "add" in action:
            rows = json.loads(action["add"]["stats"])["numRecords"]
            action["add"]["stats"] = json.dumps({"numRecords": rows})

    change_actions(path, 6, count_only)
    table = Table.open(str(path))
    rows = table.detail()["numRecords"]
    table.fix("missing-statistics")
    for add in live_adds(table).values():
        assert json.loads(add["stats"]).get("tightBounds") is (
            False if "deletionVector" in add else None
        )
    assert table.detail()["numRecords"] == rows
    assert fixable(table) == []


def test_added_bounds_are_said_to_be_exact_where_vectors_may_follow(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2]})
    for vectors, tight in (("true", True), ("false", None)):
        path, properties = tmp_path / vectors, {"delta.enableDeletionVectors": vectors}
        table = Table.create(path, schema=rows.schema, cluster_by="x", properties=properties)
        table.append(rows)
        change_actions(path, 1, lambda one: one.get("add", {}).pop("stats", None))
        table = Table.open(path)
        table.fix("missing-statistics")
        (add,) = live_adds(table).values()
        assert json.loads(add["stats"]).get("tightBounds") is tight


def test_bounds_cut_to_one_prefix_are_made_longer(tmp_path: Path) -> None:
    start = "https://example.com/" + "long/" * 9
    schema = pa.schema([("url", pa.string()), ("n", pa.int64())])
    table = Table.create(str(tmp_path / "t"), schema=schema, cluster_by=["url"])
    for first in (0, 10, 20):
        urls = [f"{start}{number:02d}" for number in range(first, first + 10)]
        table.append(pa.table({"url": urls, "n": list(range(10))}))
    assert table.health().average_depth == 3.0
    before = live_adds(table)
    assert fixable(table) == ["cut-strings"]
    (done,) = table.fix("cut-strings")
    assert done.files == 3
    assert table.health().average_depth == 1.0
    assert fixable(table) == []
    for path, add in live_adds(table).items():
        stats, known = json.loads(add["stats"]), json.loads(before[path]["stats"])
        low, high = (stats[side].pop("url") for side in ("minValues", "maxValues"))
        assert low.startswith(known["minValues"].pop("url"))
        assert high > known["maxValues"].pop("url")[:-1]
        assert stats == known
        assert (low, high) == bounds_by_duckdb(table, path)[1:3]
    assert table.scan(f"url = '{start}15'").files.num_rows == 1


def test_a_file_that_went_away_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    table = without_statistics(tmp_path)
    stale = table.snapshot()
    gone = next(path for path, add in live_adds(table).items() if "stats" not in add)
    remove = {"remove": {"path": gone, "deletionTimestamp": 0, "dataChange": True}}
    write_actions(table, 6, remove)
    mend(table.opened.store, stale, ["missing-statistics"], system_clock())
    assert gone not in table.snapshot().files["path"].to_pylist()
    assert fixable(table) == []


def test_a_change_of_the_table_meanwhile_is_a_conflict(tmp_path: Path) -> None:
    table = without_statistics(tmp_path)
    stale = table.snapshot()
    table.set_properties({"note": "1"})
    before = table.snapshot().version
    with pytest.raises(CommitConflictError):
        mend(table.opened.store, stale, ["missing-statistics"], system_clock())
    assert table.snapshot().version == before
    with pytest.raises(UsageError):
        table.fix("everything")
    assert table.snapshot().version == before


def test_a_file_of_other_rows_than_the_log_says_is_refused(tmp_path: Path) -> None:
    table = Table.open(str(copy_table("incomplete", "26_stats_partial", tmp_path)))
    lines = actions_of(table, table.snapshot().version)
    adds = [line["add"] for line in lines if "numRecords" in line.get("add", {}).get("stats", "")]
    adds[0]["stats"] = '{"numRecords":1}'
    before = table.snapshot().version
    write_actions(table, before, *lines)
    assert run(cli, ["doctor", table.uri, "--fix", "missing-statistics"]) == 1
    assert Table.open(table.uri).snapshot().version == before


STRANGE = {"32_empty_middle", "32_remove_unknown_path"}
"""Logs made by hand: of one a commit was emptied, one removes a file that was never there."""


def test_no_engine_is_said_to_have_broken_what_was_recorded() -> None:
    alarms = set()
    for case in sorted(LOGS.iterdir()):
        try:
            table = Table.open(str(case / "table"))
            snapshot = table.snapshot()
        except LiquidlogError:
            continue
        histories = read_histories(open_store(table.uri), snapshot)
        if histories.missed() or not_removed(snapshot, histories):
            alarms.add(case.name)
    assert alarms == STRANGE
