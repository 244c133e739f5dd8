"""Every OPTIMIZE commit in the recorded logs, rebuilt here from the table before it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
import numpy as np
import pytest

from liquidlog.clustering.change import rewrite_change
from liquidlog.log.loader import list_recent_log, load_snapshot, open_store, read_commits
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import AddFile, Commit, DomainMetadata, RemoveFile, decode_line
from support.copies import plan_of
from support.plans import finished, output

T = TypeVar("T", AddFile, RemoveFile, DomainMetadata)

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOGS = [
    *sorted((FIXTURES / "plans").glob("*/")),
    *sorted((FIXTURES / "logs").glob("12_dv_*/table")),
    *sorted((FIXTURES / "logs").glob("15_row_tracking*/table")),
]
REBASED = sorted((FIXTURES / "logs").glob("33_row_tracking_*/rebased.json"))
ROW_TRACKING = "delta.rowTracking"


def _of(commit: Commit, kind: type[T]) -> list[T]:
    return [action for action in commit.actions if isinstance(action, kind)]


def _name(directory: Path) -> str:
    return (directory.parent if directory.name == "table" else directory).name


def _load_cases() -> Iterator[Any]:
    for directory in (log for log in LOGS if (log / "_delta_log").exists()):
        store = open_store(str(directory))
        for commit in read_commits(store, range(1, list_recent_log(store).newest + 1)):
            adds = _of(commit, AddFile)
            cubes = {(add.tags or {}).get("ZCUBE_ID") for add in adds}
            # One of the tables was made to write no statistics; we always write them.
            has_stats = all(add.stats for add in adds)
            if commit.info.operation == "OPTIMIZE" and len(cubes) == 1 and has_stats:
                yield pytest.param(directory, commit, id=f"{_name(directory)}-{commit.version}")


CASES = list(_load_cases())


def _rows(add: AddFile) -> int:
    document = msgspec.json.decode(add.stats or "{}", type=dict[str, Any])
    return int(document["numRecords"])


def _row_ids(domains: list[DomainMetadata]) -> list[object]:
    assert {domain.domain for domain in domains} <= {ROW_TRACKING}
    return [
        msgspec.json.decode(domain.configuration, type=dict[str, Any])["rowIdHighWaterMark"]
        for domain in domains
    ]


def test_there_are_commits_to_rebuild() -> None:
    assert len(CASES) > 60
    assert len(REBASED) == 2


@pytest.mark.parametrize(("directory", "commit"), CASES)
def test_rebuilds_the_reference_engines_commit(directory: Path, commit: Commit) -> None:
    snapshot = load_snapshot(open_store(str(directory)), commit.version - 1)
    check_rebuilt(snapshot, snapshot, commit)


@pytest.mark.parametrize("recorded", REBASED, ids=lambda path: path.parent.name)
def test_rebuilds_the_commit_that_lost_a_race_first(recorded: Path) -> None:
    store = open_store(str(recorded.parent / "table"))
    newest = load_snapshot(store)
    lines = [decode_line(line) for line in recorded.read_bytes().splitlines()]
    actions = tuple(action for action in lines if action is not None)
    commit = Commit(newest.version + 1, actions)
    check_rebuilt(load_snapshot(store, commit.info.read_version), newest, commit)


def check_rebuilt(planned_on: Snapshot, snapshot: Snapshot, commit: Commit) -> None:
    adds, removes = _of(commit, AddFile), _of(commit, RemoveFile)
    info = commit.info
    paths = planned_on.files["path"].to_pylist()
    files = np.array([paths.index(remove.path) for remove in removes])
    plan = plan_of(planned_on, files, (adds[0].tags or {}).get("ZCUBE_ID"), outputs=1)
    rows = sum(map(_rows, adds))
    group = finished(
        plan_id=plan.plan_id,
        outputs=tuple(
            output(
                unquote(add.path),
                size_bytes=add.size,
                modification_time_ms=add.modification_time,
                num_records=_rows(add),
                stats=add.stats or "",
            )
            for add in adds
        ),
        rows_read=rows,
        rows_written=rows,
    )
    change = rewrite_change(snapshot, plan, group, now_ms=removes[0].deletion_timestamp or 0)
    domains = [action for action in change.actions if isinstance(action, DomainMetadata)]
    assert change.actions == (*adds, *removes, *domains)
    assert _row_ids(domains) == _row_ids(_of(commit, DomainMetadata))
    assert {**change.tags, **(info.tags or {})} == change.tags
    assert change.operation == info.operation
    assert change.parameters == info.operation_parameters
    assert change.metrics == info.operation_metrics
    assert (change.isolation_level, change.is_blind_append) == (
        info.isolation_level,
        info.is_blind_append,
    )
