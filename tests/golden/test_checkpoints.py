"""Checkpoints of recorded logs: the table opens from them alone, to us and to delta-rs."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from liquidlog.errors import CheckpointMismatchError, UnsupportedFeatureError
from liquidlog.log.checkpointing import state_differences
from liquidlog.log.checkpoints import CheckpointState
from liquidlog.log.second_opinion import require_agreement
from liquidlog.snapshot import Snapshot
from liquidlog.table import Table
from support.copies import copy_logs

CASES = [
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


def state_of(snapshot: Snapshot) -> CheckpointState:
    return CheckpointState(
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        domains=snapshot.domains,
        transactions=snapshot.transactions,
        files=snapshot.files,
    )


@pytest.mark.parametrize("case", CASES)
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
    assert state_differences(before, state_of(after), after.files) == []
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


@pytest.mark.parametrize("case", ["29_iceberg_compat_v2", "31_unknown_writer_feature"])
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


def test_delta_rs_opens_what_is_left(tmp_path: Path) -> None:
    path = copy_logs("12_dv_live", tmp_path)
    made = Table.open(str(path)).checkpoint()
    without_older_files(path / "_delta_log", made.version)
    assert DeltaTable(str(path)).version() == made.version
