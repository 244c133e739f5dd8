"""Every OPTIMIZE commit in the recorded logs, rebuilt here from the table before it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
import numpy as np
import pytest

from liquidlog.clustering.domain import clustering_state
from liquidlog.clustering.outputs import rewrite_change
from liquidlog.clustering.planning import TAKEN, Choice, build_plan
from liquidlog.log.loader import load_commits, load_snapshot, newest_version
from liquidlog.log.store import open_store
from liquidlog.plan import (
    ClusteringPlan,
    ClusteringPolicy,
    RewriteMode,
    RewrittenGroup,
    WrittenFile,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import AddFile, Commit, RemoveFile

T = TypeVar("T", AddFile, RemoveFile)

FIXTURES = Path(__file__).parents[2] / "fixtures" / "plans"


def _of(commit: Commit, kind: type[T]) -> list[T]:
    return [action for action in commit.actions if isinstance(action, kind)]


def _load_cases() -> Iterator[Any]:
    for directory in sorted(path.parent for path in FIXTURES.glob("*/_delta_log")):
        store = open_store(str(directory))
        for commit in load_commits(store, 1, newest_version(store)):
            adds = _of(commit, AddFile)
            cubes = {(add.tags or {}).get("ZCUBE_ID") for add in adds}
            # One of the tables was made to write no statistics; we always write them.
            has_stats = all(add.stats for add in adds)
            if commit.info.operation == "OPTIMIZE" and len(cubes) == 1 and has_stats:
                yield pytest.param(directory, commit, id=f"{directory.name}-{commit.version}")


CASES = list(_load_cases())


def _plan(snapshot: Snapshot, commit: Commit, cube: str | None) -> ClusteringPlan:
    removed = [remove.path for remove in _of(commit, RemoveFile)]
    paths = snapshot.files["path"].to_pylist()
    rows = np.array([paths.index(path) for path in removed])
    ids = iter(["plan", cube or "unused"])
    return build_plan(
        snapshot,
        ClusteringPolicy(),
        mode=RewriteMode.CLUSTERING if cube else RewriteMode.COMPACTION,
        strategy="cube",
        columns=clustering_state(snapshot).columns,
        choice=Choice(
            groups=(rows,),
            reasons=np.full(len(paths), TAKEN, np.int64),
            expected_outputs=(1,),
        ),
        new_id=lambda: next(ids),
    )


def _rows(add: AddFile) -> int:
    document = msgspec.json.decode(add.stats or "{}", type=dict[str, Any])
    return int(document["numRecords"])


def test_there_are_commits_to_rebuild() -> None:
    assert len(CASES) > 20


@pytest.mark.parametrize(("directory", "commit"), CASES)
def test_rebuilds_the_reference_engines_commit(directory: Path, commit: Commit) -> None:
    snapshot = load_snapshot(open_store(str(directory)), commit.version - 1)
    adds, removes = _of(commit, AddFile), _of(commit, RemoveFile)
    info = commit.info
    plan = _plan(snapshot, commit, (adds[0].tags or {}).get("ZCUBE_ID"))
    rows = sum(map(_rows, adds))
    group = RewrittenGroup(
        plan_id=plan.plan_id,
        group_id=0,
        outputs=tuple(
            WrittenFile(
                path=unquote(add.path),
                size_bytes=add.size,
                modification_time_ms=add.modification_time,
                num_records=_rows(add),
                stats=add.stats or "",
            )
            for add in adds
        ),
        rows_read=rows,
        rows_written=rows,
        checksum_read="0" * 32,
        checksum_written="0" * 32,
        seconds=1.0,
    )
    change = rewrite_change(snapshot, plan, group, now_ms=removes[0].deletion_timestamp or 0)
    assert change.actions == (*adds, *removes)
    assert change.operation == info.operation
    assert change.parameters == info.operation_parameters
    assert change.metrics == info.operation_metrics
    assert (change.isolation_level, change.is_blind_append) == (
        info.isolation_level,
        info.is_blind_append,
    )
