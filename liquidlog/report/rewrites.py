"""Documents of rewrites, done or planned, with the same fields.

A planned rewrite has null for what only the rewrite can tell.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from msgspec import UNSET, to_builtins

from liquidlog.foresee.reads import Prediction
from liquidlog.operations.batches import ReconciledRows, reconcile_limits
from liquidlog.operations.optimize import Round, average_depth, depth_after_round, expected_metrics
from liquidlog.operations.planned import MigrationNotice
from liquidlog.operations.rewrite import CommitReport, default_groups_per_commit
from liquidlog.plan import RESULT_FORMAT_VERSION, ClusteringPlan, RewriteResult, RewrittenGroup
from liquidlog.report.jsonable import policy_document
from liquidlog.spec.schema import quote_path
from liquidlog.table import Table


def commit_policy(plan: ClusteringPlan, commits: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return each setting of a commit and who chose it; `commits` are the given settings."""
    limits = reconcile_limits(commits.get("max_reconciled_share"), commits.get("reconcile_limit"))
    most = commits.get("groups_per_commit") or default_groups_per_commit(plan)
    settings = (
        ("groups_per_commit", "groups_per_commit", most),
        ("max_reconciled_share", "max_reconciled_share", limits.max_share),
        ("reconcile_limit_bytes", "reconcile_limit", limits.limit_bytes),
    )
    return {
        name: {"value": value, "from": "option" if given in commits else "default"}
        for name, given, value in settings
    }


def reconciled_document(found: ReconciledRows) -> Mapping[str, Any]:
    """Return the document of rows that others deleted meanwhile; null is not known."""
    return {
        "rows": found.rows,
        "files": found.files,
        "bytes_read": found.bytes_read,
        "seconds": None if found.seconds is None else round(found.seconds, 3),
        "versions": found.versions,
    }


def round_document(
    plan: ClusteringPlan,
    report: CommitReport,
    metrics: Mapping[str, Any],
    seconds: float,
    commits: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Return the document of an OPTIMIZE; `seconds` include planning."""
    costs = {group.group_id: group.costs for group in report.finished}
    proofs = _proofs(report)
    groups = [
        {**_group(plan, group_id, version), "costs": costs[group_id], **proofs[group_id]}
        for group_id, version in report.group_versions.items()
    ]
    return {
        "versions": report.versions,
        "groups": groups,
        "policy": {**policy_document(plan), **commit_policy(plan, commits)},
        "metrics": metrics,
        "rows_verified": report.rows_verified,
        "reconciled": reconciled_document(report.reconciled),
        "seconds": round(seconds, 3),
    }


def _group(plan: ClusteringPlan, group_id: int, version: int) -> Mapping[str, Any]:
    group = plan.groups[group_id]
    return {
        "group_id": group_id,
        "zcube_id": group.zcube_id,
        "version": version,
        "inputs": len(group.inputs),
    }


def migration_document(
    plan: ClusteringPlan,
    done: Mapping[str, Any],
    notice: MigrationNotice,
    predicted: Prediction | None,
) -> Mapping[str, Any]:
    change = notice.protocol_change
    return {
        **done,
        "partition_columns": notice.partition_columns,
        "clustering_columns": [quote_path(column.logical) for column in plan.columns],
        "protocol_change": None
        if change is None
        else {"before": change.before, "after": change.after},
        "prediction": predicted,
    }


def _proofs(report: CommitReport) -> Mapping[int, Mapping[str, Any]]:
    """Return `read_back` by group id, and nothing for a group with a whole proof."""
    return {
        group.group_id: {} if group.read_back is UNSET else {"read_back": group.read_back}
        for group in report.finished
    }


def rounds_document(
    opened: Table, plan: ClusteringPlan, rounds: Sequence[Round[Mapping[str, Any]]]
) -> Mapping[str, Any]:
    """Return the document of rounds, done or planned; `plan` is the plan of the first."""
    documents = [{**one.done, "average_depth": one.average_depth} for one in rounds]
    depth = rounds[-1].average_depth if rounds else average_depth(opened.opened, plan.policy.where)
    rows = [one["rows_verified"] for one in documents]
    found = (ReconciledRows(**one["reconciled"]) for one in documents)
    reconciled = reduce(ReconciledRows.plus, found, ReconciledRows())
    return {
        "versions": [version for one in documents for version in one["versions"]],
        "rounds": documents,
        "average_depth": depth,
        "rows_verified": None if None in rows else sum(rows),
        "reconciled": reconciled_document(reconciled),
        "seconds": round(sum(one["seconds"] for one in documents), 3),
    }


def committed_document(
    plan: ClusteringPlan, report: CommitReport, commits: Mapping[str, Any]
) -> Mapping[str, Any]:
    proofs = _proofs(report)
    return {
        "versions": report.versions,
        "committed_groups": report.committed_groups,
        "skipped_groups": report.skipped_groups,
        "groups": [
            {"group_id": group_id, "version": version, **proofs[group_id]}
            for group_id, version in report.group_versions.items()
        ],
        "reconciled": reconciled_document(report.reconciled),
        "policy": commit_policy(plan, commits),
    }


def would_do(
    opened: Table,
    made: ClusteringPlan,
    seconds: float,
    min_gain: float | None,
    commits: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Return the document of a planned OPTIMIZE; `seconds` is the duration of planning.

    With a `min_gain`, it has only the first round, if that gains enough: later rounds depend on it.
    """
    first = _would_do_round(opened, made, seconds, commits)
    if min_gain is None:
        return first
    depth = average_depth(opened.opened, made.policy.where)
    after = depth_after_round(opened.opened, made, depth, min_gain)
    rounds = () if after is None else (Round(done=first, average_depth=after),)
    return rounds_document(opened, made, rounds)


def _would_do_round(
    opened: Table, made: ClusteringPlan, seconds: float, commits: Mapping[str, Any]
) -> Mapping[str, Any]:
    first = (opened.opened.seen_version or 0) + 1
    groups_per_commit = commits.get("groups_per_commit")
    most = groups_per_commit or default_groups_per_commit(made)
    versions = {group.group_id: first + n // most for n, group in enumerate(made.groups)}
    definition = [first] if made.is_migration and not made.groups else []
    return {
        "versions": definition or list(dict.fromkeys(versions.values())),
        "groups": [{**_group(made, *each), "costs": None} for each in versions.items()],
        "policy": {**policy_document(made), **commit_policy(made, commits)},
        "metrics": expected_metrics(opened.opened, made, {"groups_per_commit": groups_per_commit}),
        "rows_verified": made.live_rows,
        "reconciled": reconciled_document(ReconciledRows()),
        "seconds": round(seconds, 3),
    }


def would_run(made: ClusteringPlan, finished: RewriteResult) -> Mapping[str, Any]:
    """Return the document of a result: the finished groups, and the others as planned."""
    done = {group.group_id: to_builtins(group) for group in finished.groups}
    unknown = dict.fromkeys(RewrittenGroup.__struct_fields__)
    for name in ("read_back", "partition_values"):
        del unknown[name]  # only there if they say something
    planned = {
        group.group_id: {
            **unknown,
            **({"partition_values": group.partition_values} if made.partitioned_by else {}),
            "format_version": RESULT_FORMAT_VERSION,
            "plan_id": made.plan_id,
            "group_id": group.group_id,
            "rows_read": group.live_rows,
            "rows_written": group.live_rows,
        }
        for group in made.groups
    }
    return {"plan_id": made.plan_id, "groups": list({**planned, **done}.values())}
