"""Copies of recorded tables that a test may write to, and what is in them."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from shutil import copytree
from typing import Any, Final
from urllib.parse import quote

import msgspec
import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from numpy.typing import NDArray

from liquidlog.clustering.building import TAKEN, Choice, build_plan
from liquidlog.clustering.columns import clustering_state
from liquidlog.plan import ClusteringPlan, ClusteringPolicy, RewriteMode
from liquidlog.snapshot import Snapshot
from liquidlog.spec.arrow import arrow_schema
from liquidlog.table import Table
from support.logs import actions_of, commit_actions
from support.plain_table import PlainLog
from support.playground import DiskFiles
from support.repository import ROOT

_MOVED = "file:/golden/dev/"
"""Where the tables of `fixtures/clones` say that they were written."""


def copy_table(kind: str, case: str, directory: Path) -> Path:
    """Copy a table, its data files too, and return where it is; a clone with its source."""
    if kind != "clones":
        target = directory / case
        shutil.copytree(ROOT / "fixtures" / kind / case / "table", target)
        return target
    shutil.copytree(ROOT / "fixtures" / kind, directory / kind)
    for log in (directory / kind).glob("*/table/_delta_log/*.json"):
        moved = f"file:{quote(str(directory / kind))}/"
        log.write_text(log.read_text().replace(_MOVED, moved))
    return directory / kind / case / "table"


def copy_logs(case: str, directory: Path) -> Path:
    """Copy a recorded log, which has no data files, and return where it is."""
    target = directory / case
    shutil.copytree(ROOT / "fixtures" / "logs" / case / "table", target)
    return target


def plan_of_all(snapshot: Snapshot, *, outputs: int = 2, plan_id: str = "plan") -> ClusteringPlan:
    """Return a plan that rewrites every live file together."""
    rows = np.arange(snapshot.files.num_rows)
    return plan_of(snapshot, rows, f"cube of {plan_id}", outputs=outputs, plan_id=plan_id)


def plan_of(
    snapshot: Snapshot,
    rows: NDArray[np.int64],
    cube: str | None,
    *,
    outputs: int,
    plan_id: str = "plan",
) -> ClusteringPlan:
    """Return a plan that rewrites the files of these rows together, into a cube if one is named."""
    ids = iter([plan_id, cube or "unused"])
    return build_plan(
        snapshot,
        ClusteringPolicy(),
        mode=RewriteMode.CLUSTERING if cube else RewriteMode.COMPACTION,
        strategy="cube",
        columns=clustering_state(snapshot).columns,
        choice=Choice(
            groups=(rows,),
            reasons=np.full(snapshot.files.num_rows, TAKEN, np.int64),
            expected_outputs=(outputs,),
        ),
        new_id=lambda: next(ids),
    )


def delta_rs_rows(path: Path, snapshot: Snapshot) -> pa.Table:
    """Return the rows of the newest version as delta-rs reads them, in the table's types."""
    rows: Any = pa.table(DeltaTable(str(path)).scan().read_all())
    return rows.cast(arrow_schema(snapshot.schema))


# Copies of recorded logs with all the files that they name, none of which has any data in it

OLD_S: Final = 1_500_000_000
"""A time before that of every recorded table."""


def filled(source: Path, root: Path) -> Path:
    """Copy a log to a new directory, put the files there that it names, make all old; return it."""
    copytree(source, root)
    for name in PlainLog(DiskFiles(root)).named:
        if name.startswith(("/", "file:")) or "/../" in name:
            continue
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"filled")
    make_old(root)
    return root


def make_old(root: Path) -> None:
    """Let all that is below a directory be from before every recorded table."""
    for path in root.rglob("*"):
        os.utime(path, (OLD_S, OLD_S))


# A file that another writer removes and adds back: whoever read it cannot know which rows it has.
#
# Whatever a commit can follow of removals and deletions, this it cannot.


def remove_and_restore(table: Table, path: str) -> int:
    """Commit the removal of a file, and then the file as it was; return the last version."""
    adds = (action["add"] for action in actions_of(table) if "add" in action)
    added = [add for add in adds if add["path"] == path][-1]
    removal = {"path": path, "deletionTimestamp": 0, "dataChange": True}
    commit_actions(table, {"remove": removal})
    table.snapshot()  # which sees the removal
    return commit_actions(table, {"add": {**added, "dataChange": True}})


# Table properties as another engine sets them: any text, unchecked


def set_elsewhere(table: Table, properties: Mapping[str, str | None]) -> int:
    """Commit properties to a local table, None to remove one; return the new version."""
    snapshot = table.snapshot()
    changed = {**snapshot.metadata.configuration, **properties}
    kept = {name: value for name, value in changed.items() if value is not None}
    metadata = msgspec.to_builtins(msgspec.structs.replace(snapshot.metadata, configuration=kept))
    return commit_actions(table, {"metaData": metadata})
