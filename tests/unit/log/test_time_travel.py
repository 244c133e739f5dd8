"""Versions by time: recorded in-commit timestamps, and file times in every order."""

import os
from pathlib import Path

import pytest

from liquidlog.errors import TimestampNotFoundError, UsageError
from liquidlog.spec.paths import commit_name
from liquidlog.spec.text import parse_time
from liquidlog.table import Table
from support.copies import copy_table
from support.repository import ROOT

RECORDED = ROOT / "fixtures" / "logs"
HOUR_S = 3600


def with_file_times(tmp_path: Path, hours: list[int], case: str = "02_appends") -> Table:
    """A copy of a recorded log whose commits have these file times."""
    path = copy_table("logs", case, tmp_path)
    for version, hour in enumerate(hours):
        os.utime(path / "_delta_log" / commit_name(version), (hour * HOUR_S, hour * HOUR_S))
    return Table.open(str(path))


@pytest.mark.parametrize(
    ("time", "version"),
    [
        ("1970-01-01T01:00:00Z", 0),
        ("1970-01-01T01:59:59.999Z", 0),
        ("1970-01-01T02:00:00Z", 1),
        ("1970-01-01T05:30:00+02:00", 2),
        ("1970-01-01T05:00:00", 4),
    ],
)
def test_the_last_commit_at_or_before_the_time_counts(
    time: str, version: int, tmp_path: Path
) -> None:
    table = with_file_times(tmp_path, [1, 2, 3, 4, 5])
    assert table.at(time).version == version


def test_a_clock_that_ran_backwards_does_not_hide_a_commit(tmp_path: Path) -> None:
    table = with_file_times(tmp_path, [1, 4, 2, 3, 5])
    assert table.at("1970-01-01T03:59:59.999Z").version == 0
    assert table.at("1970-01-01T04:00:00.000Z").version == 1
    assert table.at("1970-01-01T04:00:00.001Z").version == 2
    assert table.at("1970-01-01T04:59:00Z").version == 3


@pytest.mark.parametrize("time", ["1970-01-01T00:59:59.999Z", "1970-01-01T05:00:00.001Z"])
def test_a_time_outside_of_the_log_is_an_error_that_names_its_ends(
    time: str, tmp_path: Path
) -> None:
    table = with_file_times(tmp_path, [1, 2, 3, 4, 5])
    with pytest.raises(TimestampNotFoundError) as error:
        table.at(time)
    assert error.value.fields["oldest"] == "1970-01-01T01:00:00.000Z"
    assert error.value.fields["newest"] == "1970-01-01T05:00:00.000Z"


ENABLED_LATER = {
    "2026-11-21T02:40:26.886Z": 2,
    "2026-11-21T02:40:27.330Z": 2,
    "2026-11-21T02:40:27.331Z": 3,
    "2046-11-16T02:40:29.021Z": 4,
    "2046-11-16T02:40:29.022Z": 5,
}


@pytest.mark.parametrize("time", ENABLED_LATER)
def test_commits_own_times_count_from_where_they_were_enabled(time: str, tmp_path: Path) -> None:
    # As the engine's DESCRIBE HISTORY showed them; the file times contradict them.
    table = with_file_times(tmp_path, [1, 2, 9, 8, 7, 6], "16_in_commit_timestamps_enabled_later")
    assert table.at(time).version == ENABLED_LATER[time]
    assert table.at("1970-01-01T01:30:00Z").version == 0
    assert table.at("2026-11-21T02:40:26.885Z").version == 1
    with pytest.raises(TimestampNotFoundError):
        table.at("2046-11-16T02:40:29.023Z")


def test_commits_before_the_oldest_checkpoint_cannot_be_loaded(tmp_path: Path) -> None:
    path = copy_table("logs", "17_checkpoint_no_last_checkpoint", tmp_path)
    log = path / "_delta_log"
    first = min(int(file.name[:20]) for file in log.glob("*.checkpoint.parquet"))
    for file in log.glob("*.json"):
        hour = int(file.name[:20]) + 1
        os.utime(file, (hour * HOUR_S, hour * HOUR_S))
    table = Table.open(str(path))
    assert table.at(f"1970-01-01T{first + 1:02d}:00:00Z").version == first
    with pytest.raises(TimestampNotFoundError):
        table.at(f"1970-01-01T{first:02d}:59:59Z")


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "12:00"])
def test_what_is_no_time_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_time(text)
