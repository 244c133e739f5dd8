"""Recorded races: what the engine's stale OPTIMIZE did, and what ours would do."""

import json
from pathlib import Path
from typing import Any

import pytest

from liquidlog.clustering.planner import Reconcilable, written_for
from liquidlog.clustering.planner import plan as make_plan
from liquidlog.commit import Winners
from liquidlog.log.loader import load_snapshot, open_store, read_commits
from liquidlog.operations.batches import read_set_of
from liquidlog.plan import ClusteringPolicy
from liquidlog.spec.features import unsupported_for_writing
from support.plans import check_conflicts, staleness

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
RACES = sorted(p.name for p in LOGS.glob("33_*") if "_base_" not in p.name)
PREFIX = "spark.databricks.delta.optimize."

# The engine commits in these, we refuse: outputs written for one schema, way to keep row ids or
# choice of clustering columns are not committed under another.
STRICTER = {
    "33_cluster_by_none",
    "33_cluster_by_other",
    "33_cm_drop_column",
    "33_cm_rename_clustering_column",
    "33_enabled_column_mapping",
    "33_enabled_row_tracking",
    "33_enabled_row_tracking_supported",
    "33_enabled_type_change",
}

# Both commit in these, on top of changed metadata or another protocol.
OUTLASTED = {
    "33_append_only_set",
    "33_enabled_cdf",
    "33_enabled_check_constraint",
    "33_enabled_ict",
    "33_metadata_property",
    "33_protocol_only",
    "33_protocol_upgrade",
    "33_schema_add_column",
}


# The engine refuses these, we commit: rows were deleted of inputs, and are deleted of outputs.
FOLLOWED = {"33_delete_candidate", "33_dv_delete_candidate", "33_update_candidate"}


def race(case: str) -> Any:
    return json.loads((LOGS / case / "expected.json").read_text())["race"]


def policy(recorded: Any) -> ClusteringPolicy:
    conf = recorded["optimize_conf"]
    merge = f"{PREFIX}clustering.mergeStrategy.minCubeSize."
    return ClusteringPolicy(
        min_cube_bytes=int(conf[f"{merge}threshold"]),
        target_cube_bytes=int(conf[f"{merge}targetCubeSize"]),
        max_file_bytes=int(conf[f"{PREFIX}maxFileSize"]),
    )


def test_there_are_races() -> None:
    assert len(RACES) > 30
    assert set(RACES) >= STRICTER | OUTLASTED | FOLLOWED
    assert not any(race(case)["commits"] for case in FOLLOWED)
    assert all(race(case)["commits"] for case in STRICTER | OUTLASTED)


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("case", RACES)
def test_a_stale_rewrite_commits_where_the_engine_does_or_refuses_for_a_known_reason(
    case: str, share: float
) -> None:
    recorded = race(case)
    store = open_store(str(LOGS / case / "table"))
    base = load_snapshot(store, recorded["base_version"])
    plan = make_plan(base, policy(recorded), new_id=lambda: "id")
    taken = {file.path for group in plan.groups for file in group.inputs}
    if case != "33_full_append":
        assert taken == set(recorded["optimize_candidates_at_base"])
    newest = load_snapshot(store)
    winners = list(read_commits(store, range(base.version + 1, newest.version + 1)))
    known = Winners(base.version, written_for(plan))
    known.take(winners)
    follows = Reconcilable(course=known.course, max_share=share) if share else None
    reads = [read_set_of(plan, group, reconciled=share > 0) for group in plan.groups]
    conflicts = [c for read in reads for c in check_conflicts(read, winners)]
    stale = [c for g in plan.groups for c in staleness(newest, plan, g, follows).conflicts]
    refused = unsupported_for_writing(newest.protocol, newest.metadata.configuration)
    commits = (recorded["commits"] and case not in STRICTER) or (share > 0 and case in FOLLOWED)
    assert bool(conflicts or stale) != commits, (conflicts, stale, refused)
