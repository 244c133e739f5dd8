"""Migrations of small tables, with an executor for tests, and the rows before and after."""

from collections.abc import Sequence
from typing import Any

from liquidlog.operations.rewrite import CommitReport, require_rewritable
from liquidlog.plan import ClusteringPlan
from liquidlog.table import Table
from support.arrow_executor import execute


def migrate(table: Table, cluster_by: Sequence[str], **policy: Any) -> CommitReport:
    """Migrate a table as Table.migrate does, without a JVM."""
    plan = table.plan_migration(cluster_by, **policy)
    require_rewritable(table.opened, plan)
    return table.commit(plan, execute(plan))


def rewritten(plan: ClusteringPlan, table: Table) -> CommitReport:
    """Execute a plan that may be of an earlier version, and commit it."""
    return table.commit(plan, execute(plan))
