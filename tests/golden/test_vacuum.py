"""What a vacuum would delete of recorded tables, beside what delta-rs would."""

import os
import shutil
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable

from liquidlog.errors import LiquidlogError
from liquidlog.table import Table
from support.copies import OLD_S, filled
from support.effort import effort
from support.plain_table import PlainLog
from support.playground import DiskFiles
from support.repository import ROOT

LOGS: Final = ROOT / "fixtures" / "logs"
CASES: Final = sorted(
    path.parents[1].name
    for path in LOGS.glob("*/table/_delta_log")
    if not path.parents[1].name.startswith("32_")  # broken ones, which the model cannot read
)


@pytest.mark.parametrize("case", effort(CASES[::20], CASES))
def test_what_recorded_versions_hold_stays_and_the_rest_goes(case: str, tmp_path: Path) -> None:
    root = filled(LOGS / case / "table", tmp_path / "table")
    log = PlainLog(DiskFiles(root))
    held = log._named_by_newest
    try:
        done = Table.open(root).vacuum(retain="0s", allow_short_retention=True, dry_run=True)
        kept = Table.open(root).vacuum(retain="9999d", dry_run=True)
    except LiquidlogError as error:
        pytest.skip(f"{type(error).__name__}: {error}")
    gone = {file.path for file in done.files}
    if min(log.commits, default=1) == 0:  # the model reads commits only
        assert not gone & held
    assert not {file.path for file in kept.files}
    recent = Table.open(root).vacuum(dry_run=True)
    assert {file.path for file in recent.files} <= gone
    for path in root.rglob("*"):
        os.utime(path)
    assert Table.open(root).vacuum(dry_run=True).deleted_files == 0


@pytest.mark.parametrize("case", ["03_optimize_once", "24_partitioned_types"])
def test_delta_rs_would_delete_the_same(case: str, tmp_path: Path) -> None:
    root = filled(LOGS / case / "table", tmp_path / "table")
    leave(root)
    ours = unneeded(root)
    assert ours == by_delta_rs(root)
    assert "part-left.parquet" in ours


def test_vectors_of_live_files_stay_which_delta_rs_would_delete(tmp_path: Path) -> None:
    root = filled(LOGS / "12_dv_live" / "table", tmp_path / "table")
    leave(root)
    log = PlainLog(DiskFiles(root))
    vectors = log._named_by_newest - log.live.keys()
    assert vectors
    assert by_delta_rs(root) - unneeded(root) == vectors


def unneeded(root: Path) -> set[str]:
    done = Table.open(root).vacuum(retain="0s", allow_short_retention=True, dry_run=True)
    return {file.path for file in done.files}


def by_delta_rs(root: Path) -> set[str]:
    found = DeltaTable(root).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=True, full=True
    )
    return set(map(unquote, found))


def leave(root: Path) -> None:
    shutil.copy(next(root.rglob("*.parquet")), root / "part-left.parquet")
    os.utime(root / "part-left.parquet", (OLD_S, OLD_S))
