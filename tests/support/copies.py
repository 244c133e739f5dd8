"""Copies of recorded tables that a test may write to, and what is in them."""

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from liquidlog.clustering.choice import TAKEN, Choice, build_plan
from liquidlog.clustering.columns import clustering_state
from liquidlog.plan import ClusteringPlan, ClusteringPolicy, RewriteMode
from liquidlog.snapshot import Snapshot
from liquidlog.spec.arrow import arrow_schema
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
    count = snapshot.files.num_rows
    ids = iter([plan_id, f"cube of {plan_id}"])
    return build_plan(
        snapshot,
        ClusteringPolicy(),
        mode=RewriteMode.CLUSTERING,
        strategy="cube",
        columns=clustering_state(snapshot).columns,
        choice=Choice(
            groups=(np.arange(count),),
            reasons=np.full(count, TAKEN, np.int64),
            expected_outputs=(outputs,),
        ),
        new_id=lambda: next(ids),
    )


def delta_rs_rows(path: Path, snapshot: Snapshot) -> pa.Table:
    """Return the rows of the newest version as delta-rs reads them, in the table's types."""
    rows: Any = pa.table(DeltaTable(str(path)).scan().read_all())
    return rows.cast(arrow_schema(snapshot.schema))
