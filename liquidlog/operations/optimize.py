"""OPTIMIZE in one call: plan, rewrite, commit; and what a statement OPTIMIZE may say."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from liquidlog.clustering.columns import clustering_state
from liquidlog.errors import UsageError
from liquidlog.operations.executors import Executor, open_executor
from liquidlog.operations.rewrite import CommitReport
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.conditions import parse_condition, referenced_columns
from liquidlog.snapshot import Snapshot
from liquidlog.spec.markup import Summary
from liquidlog.spec.schema import quote_path
from liquidlog.storage.options import OptionsSource, StorageOptions


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Optimized(Summary):
    """What an OPTIMIZE did: the plan, the report of its commits, and Delta's metrics by name."""

    plan: ClusteringPlan
    report: CommitReport
    metrics: Mapping[str, Any]

    @property
    def versions(self) -> tuple[int, ...]:
        """The commits made, in order."""
        return self.report.versions

    def _facts(self) -> Mapping[str, object]:
        return {"versions": self.versions, "groups": len(self.report.committed_groups)}


def partition_where(snapshot: Snapshot, where: str) -> str:
    """Return the WHERE of an OPTIMIZE, which may only name partition columns, as Table.plan has it.

    Source: Delta Spark, OptimizeTableCommand.
    """
    if clustering_state(snapshot).columns:
        raise UsageError(
            f"OPTIMIZE of a clustered table takes no WHERE, found {where}: leave it out, or rewrite"
            " what it matches with ALTER TABLE … RECLUSTER WHERE",
            where=where,
        )
    partitions = snapshot.metadata.partition_columns
    named = referenced_columns(parse_condition(where), snapshot.schema).values()
    others = [quote_path(path) for path in named if path[0] not in partitions]
    if others or not partitions:
        listed = ", ".join(partitions) or "none"
        raise UsageError(
            f"WHERE of OPTIMIZE may name partition columns only ({listed}),"
            f" found {', '.join(others) or where}: leave it out",
            where=where,
        )
    return where


def open_executor_at(
    name: str, session: object, storage: StorageOptions, limit_bytes: int | None
) -> AbstractContextManager[Executor]:
    """Return a context manager that starts an executor with the storage options of a table."""

    def latest() -> Mapping[str, str]:
        return dict(storage.latest().items)

    given: OptionsSource = dict(storage.items) if storage.supply is None else latest
    return open_executor(name, {}, given, verb="optimize", session=session, limit_bytes=limit_bytes)


def no_progress(*_: object) -> None:
    """Do nothing with the progress of a group."""
