"""Every recorded log: what we read is what the reference engine says, or a refusal."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from liquidlog.errors import (
    CheckpointMismatchError,
    CorruptLogError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from liquidlog.log.history import require_agreement, state_differences
from liquidlog.operations.inspect import detail, written_bytes
from liquidlog.snapshot import Snapshot, decoded_paths, deleted_rows, num_records
from liquidlog.table import Table
from support.copies import copy_logs
from support.recordings import digests, snapshot_facts

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
CASES = sorted(path.parent.name for path in LOGS.glob("*/expected.json"))
REFUSED = {
    "31_catalog_managed": ("catalogManaged",),
    "31_features_with_low_version": ("writerFeatures with writer version 5",),
    "31_reader_version_4": ("reader version 4",),
    "31_unknown_reader_feature": ("fancyFutureReaderThing",),
    "31_writer_version_8": ("writer version 8",),
}
# The engine reads 7.json and 21-digit names as commits; the protocol does not give them a meaning.
JUNK_NAMES = {"32_junk_short_number", "32_junk_long_number"}
# The engine believes a compacted file that lost the provider; we read the commits themselves.
COMPACTED = {"19_log_compaction"}
# The domain's configuration cannot be read: the log opens, DESCRIBE DETAIL does not.
BAD_DOMAIN = {"32_domain_bad_json"}
# The engine needs the sidecar; all commits are there, and say the same.
COMMITS_SUFFICE = {"32_sidecar_missing"}
# The engine's DESCRIBE DETAIL fails on a clustering column that is gone; we show it.
LOST_COLUMN = {"32_domain_unknown_column"}


def open_case(case: str) -> Table:
    return Table.open(str(LOGS / case / "table"))


def expectation(case: str) -> Any:
    return json.loads((LOGS / case / "expected.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_log_is_read_as_the_engine_reads_it_or_refused(case: str) -> None:
    expected = expectation(case)
    if case in REFUSED:
        with pytest.raises(UnsupportedFeatureError) as refusal:
            open_case(case).snapshot()
        assert refusal.value.features == REFUSED[case]
        return
    if case in JUNK_NAMES | LOST_COLUMN | COMMITS_SUFFICE:
        assert open_case(case).detail()["numFiles"] > 0
        return
    if not expected["opens"]:
        with pytest.raises(CorruptLogError):
            open_case(case).detail()
        return
    snapshot = open_case(case).snapshot()
    assert_files_agree(snapshot, expected, ignore_provider=case in COMPACTED)
    if case not in BAD_DOMAIN:
        assert_detail_agrees(snapshot, expected)


def assert_detail_agrees(snapshot: Snapshot, expected: Any) -> None:
    found = detail(snapshot)
    assert {name: found[name] for name in expected["detail"]} == expected["detail"]
    if expected["version"] is not None:
        assert snapshot.version == expected["version"]


def assert_files_agree(snapshot: Snapshot, expected: Any, *, ignore_provider: bool) -> None:
    if not expected["files"]:
        return
    live = snapshot.files
    found = {
        path: {
            "path": path,
            "size": size,
            "numRecords": records,
            "tags": json.loads(tags or "{}"),
            "clusteringProvider": provider,
            "deletedRows": deleted,
            "baseRowId": base,
        }
        for path, size, records, tags, provider, deleted, base in zip(
            live["path"].to_pylist(),
            live["size"].to_pylist(),
            num_records(live).to_pylist(),
            live["tags_json"].to_pylist(),
            live["clustering_provider"].to_pylist(),
            deleted_rows(live).to_pylist(),
            live["base_row_id"].to_pylist(),
            strict=True,
        )
    }
    theirs = {file["path"]: dict(file) for file in expected["files"]}
    if ignore_provider:
        for file in [*found.values(), *theirs.values()]:
            file.pop("clusteringProvider")
    assert found == theirs
    assert len(set(decoded_paths(live).to_pylist())) == len(found)


VERSIONS = {
    path.parent.name: json.loads(path.read_text()) for path in sorted(LOGS.glob("*/versions.json"))
}


def test_there_are_hundreds_of_recorded_versions() -> None:
    recorded = [one for versions in VERSIONS.values() for one in versions.values()]
    assert len(recorded) - recorded.count(None) > 300


@pytest.mark.parametrize("case", VERSIONS)
def test_every_recorded_version_is_read_as_the_engine_reads_it(
    case: str, subtests: pytest.Subtests
) -> None:
    known = {"files"} if case in COMPACTED else set()
    for version, recorded in VERSIONS[case].items():
        with subtests.test(version=version):
            if recorded is None:
                with pytest.raises(VersionNotFoundError):
                    open_case(case).snapshot(int(version))
                continue
            found = digests(snapshot_facts(open_case(case).snapshot(int(version))))
            assert {n: found[n] for n in found.keys() - known} == {
                n: recorded[n] for n in recorded.keys() - known
            }


@pytest.mark.parametrize("case", [c for c in CASES if expectation(c)["history"]])
def test_history_agrees_with_the_engine(case: str) -> None:
    expected = expectation(case)["history"]
    found = open_case(case).history()
    assert [row["version"] for row in found] == [row["version"] for row in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert {name: ours.get(name) for name in theirs} == theirs


# Checkpoints of recorded logs: the table opens from them alone, to us and to delta-rs.


CASES_CHECKPOINTS = [
    "02_appends", "04_incremental_mixed", "06_optimize_full", "07_cluster_by_none",
    "09_cm_name_rename", "10_cm_id", "11_special_names", "12_dv_inline", "12_dv_live",
    "12_dv_then_optimize", "13_update_merge_dv", "15_row_tracking", "15_row_tracking_dv",
    "16_in_commit_timestamps", "16_in_commit_timestamps_enabled_later", "17_checkpoint_single",
    "17_checkpoint_multipart", "17_checkpoint_struct_stats", "18_v2_checkpoint_json",
    "18_v2_checkpoint_parquet", "18_v2_struct_stats", "20_crc_wrong_counts", "21_type_widening",
    "22_identity", "23_cdf_dv", "24_partitioned_special_values", "26_stats_missing",
    "27_file_names_special", "27_shallow_clone", "29_iceberg_compat_v1", "32_domain_removed",
    "32_junk_files", "32_other_provider", "32_remove_unknown_path", "32_unknown_action",
    "33_txn_append",
]  # fmt: skip
# Two actions about one thing in one commit: implementations differ in which of them counts.
AMBIGUOUS = {
    "32_add_remove_same_commit": ["4 live files instead of 5"],
    "32_add_then_remove_same_commit": ["5 live files instead of 4"],
    "32_domain_twice_same_commit": ["the domains"],
    "32_two_metadata": ["the metadata"],
}


def without_older_files(log: Path, version: int) -> None:
    for file in log.iterdir():
        if file.is_file() and file.name[:20].isdecimal() and int(file.name[:20]) < version:
            file.unlink()


@pytest.mark.parametrize("case", CASES_CHECKPOINTS)
def test_a_checkpoint_says_what_the_log_says_when_nothing_else_is_left(
    case: str, tmp_path: Path
) -> None:
    path = copy_logs(case, tmp_path)
    before = Table.open(str(path)).snapshot()
    bounds = Table.open(str(path)).files().drop_columns(["path"]).to_pylist()
    made = Table.open(str(path)).checkpoint()
    assert made.version == before.version
    assert made.files == before.files.num_rows
    log = path / "_delta_log"
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == before.version
    without_older_files(log, before.version)
    after = Table.open(str(path)).snapshot()
    assert after.version == before.version
    assert after.timestamp_ms == before.timestamp_ms
    assert state_differences(before, after, after.files) == []
    assert Table.open(str(path)).files().drop_columns(["path"]).to_pylist() == bounds
    require_agreement(after)
    assert not Table.open(str(path)).checkpoint().created


@pytest.mark.parametrize("case", sorted(AMBIGUOUS))
def test_a_log_that_two_engines_read_differently_gets_no_checkpoint(
    case: str, tmp_path: Path
) -> None:
    path = copy_logs(case, tmp_path)
    before = {file.name: file.read_bytes() for file in (path / "_delta_log").glob("*.*")}
    with pytest.raises(CheckpointMismatchError) as refusal:
        Table.open(str(path)).checkpoint()
    assert list(refusal.value.problems) == AMBIGUOUS[case]
    assert {file.name: file.read_bytes() for file in (path / "_delta_log").glob("*.*")} == before


@pytest.mark.parametrize("case", ["31_collations", "31_unknown_writer_feature"])
def test_features_that_are_not_written_get_no_checkpoint(case: str, tmp_path: Path) -> None:
    path = copy_logs(case, tmp_path)
    with pytest.raises(UnsupportedFeatureError):
        Table.open(str(path)).checkpoint()
    assert not list((path / "_delta_log").glob("*.checkpoint.*"))


def test_a_domain_that_was_removed_is_not_in_it(tmp_path: Path) -> None:
    path = copy_logs("32_domain_removed", tmp_path)
    version = Table.open(str(path)).checkpoint().version
    written = pq.read_table(path / "_delta_log" / f"{version:020d}.checkpoint.parquet")
    domains = written["domainMetadata"].combine_chunks().drop_null().to_pylist()
    assert "delta.clustering" not in {domain["domain"] for domain in domains}


def test_tables_with_v2_checkpoints_get_one_that_says_so(tmp_path: Path) -> None:
    path = copy_logs("18_v2_checkpoint_parquet", tmp_path)
    Table.open(str(path)).set_properties({"a": "b"})
    made = Table.open(str(path)).checkpoint()
    assert made.created
    written = pq.read_table(path / "_delta_log" / f"{made.version:020d}.checkpoint.parquet")
    (said,) = written["checkpointMetadata"].combine_chunks().drop_null().to_pylist()
    assert said["version"] == made.version


# A checkpoint that cannot be read gives way to an older one, or to commits; never to a guess.


WITH_SIDECARS = ["18_v2_checkpoint_json", "18_v2_checkpoint_parquet"]
CASES_DAMAGED_CHECKPOINTS = [*WITH_SIDECARS, "17_checkpoint_multipart"]


@pytest.fixture(params=CASES_DAMAGED_CHECKPOINTS)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    table = tmp_path / "table"
    shutil.copytree(LOGS / request.param / "table", table)
    return table / "_delta_log"


def checkpoint_files(log: Path) -> dict[int, list[Path]]:
    """Return the files of the log's checkpoints by version, the newest first, sidecars apart."""
    found: dict[int, list[Path]] = {}
    for path in sorted(log.glob("*.checkpoint.*"), reverse=True):
        found.setdefault(int(path.name[:20]), []).append(path)
    return found


def live(log: Path) -> list[str]:
    return list(Table.open(str(log.parent)).files()["path"].to_pylist())


def test_a_damaged_newest_checkpoint_gives_way_to_an_older_one(log: Path) -> None:
    before = live(log)
    versions = checkpoint_files(log)
    newest = max(versions)
    for path in versions[newest]:
        path.write_bytes(b"PAR1 cut off")
    if len(versions) > 1:
        assert live(log) == before
        return
    with pytest.raises(CorruptLogError) as error:
        live(log)
    assert "checkpoint" in error.value.detail


def test_without_any_readable_checkpoint_the_log_is_refused_naming_a_file(log: Path) -> None:
    sidecars = list(log.glob("_sidecars/*.parquet"))
    for path in [*sidecars, *(p for files in checkpoint_files(log).values() for p in files)]:
        if not sidecars or path in sidecars:
            path.unlink()
    with pytest.raises(CorruptLogError) as error:
        live(log)
    assert sidecars == [] or "_sidecars" in error.value.path


@pytest.mark.parametrize("log", WITH_SIDECARS, indirect=True)
def test_a_missing_sidecar_gives_way_to_an_older_checkpoint(log: Path) -> None:
    sidecars = sorted(log.glob("_sidecars/*.parquet"))
    before = live(log)
    sidecars[-1].unlink()
    assert live(log) == before


# What recorded commits wrote, by their own metrics.


def table(name: str) -> Table:
    return Table.open(str(LOGS / name / "table"))


def test_bytes_written_new_and_moved_are_those_of_the_recorded_metrics() -> None:
    opened = table("04_incremental_mixed")
    by_version = {row["version"]: row for row in opened.history()}
    rows = written_bytes(opened.opened.store)
    assert [row.version for row in rows] == list(range(10))
    for row in rows:
        metrics = by_version[row.version].get("operationMetrics", {})
        if row.operation == "OPTIMIZE":
            assert (row.new_bytes, row.moved_bytes) == (0, int(metrics["numAddedBytes"]))
        else:
            assert (row.new_bytes, row.moved_bytes) == (int(metrics.get("numOutputBytes", 0)), 0)
    new, moved = sum(row.new_bytes for row in rows), sum(row.moved_bytes for row in rows)
    assert rows[-1].write_amplification == pytest.approx(moved / new, abs=1e-4)
    assert rows[0].write_amplification is None


def test_a_new_deletion_vector_writes_no_data_file() -> None:
    rows = written_bytes(table("12_dv_live").opened.store)
    deletes = [row for row in rows if row.operation == "DELETE"]
    assert deletes
    assert all(row.new_bytes == row.moved_bytes == 0 for row in deletes)
