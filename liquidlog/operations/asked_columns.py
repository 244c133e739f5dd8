"""Find the columns by which a table is measured for the readers of a workload."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from liquidlog.clustering.columns import ClusteringColumn, resolve_columns
from liquidlog.errors import ClusteringColumnError, UsageError
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.predicates.workload import NotUsable, Workload, shares
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import Path, quote_path

MOST_COLUMNS: Final = 4
"""The most columns of a workload by which a table is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedColumns:
    """The columns that a workload compares, the most often compared first.

    `notes` says in sentences which they are, and which others cannot be measured. `not_usable` has
    the predicates that are no condition on this table.
    """

    columns: tuple[ClusteringColumn, ...]
    notes: tuple[str, ...]
    not_usable: tuple[NotUsable, ...]


NOTHING_ASKED: Final = AskedColumns(columns=(), notes=(), not_usable=())


def asked_columns(store: TableStore, snapshot: Snapshot, workload: Workload) -> AskedColumns:
    """Return at most MOST_COLUMNS columns with statistics, by the weight of their predicates."""
    weights, not_usable = _weights(snapshot, workload)
    ranked = sorted(weights, key=lambda path: (-weights[path], path))
    possible = [(path, _column(snapshot, path)) for path in ranked]
    columns = [column for _, column in possible if column is not None]
    bounds = load_bounds(store, snapshot, [column.leaf for column in columns])
    there = [
        column
        for number, column in enumerate(columns)
        if bounds.known(number).any() or not len(bounds)
    ]
    taken = there[:MOST_COLUMNS]
    without = [path for path in ranked if path not in {column.logical for column in there}]
    if not taken:
        named = f": {_listed(without)} have none" if without else ""
        raise UsageError(
            f"the workload compares no column that has statistics{named}; name columns instead"
        )
    measured = ", ".join(f"{one.name} ({weights[one.logical]:.0%} of readings)" for one in taken)
    notes = [f"measured by the columns that the workload compares most: {measured}"]
    if without:
        notes.append(f"the workload also compares columns without statistics: {_listed(without)}")
    return AskedColumns(columns=tuple(taken), notes=tuple(notes), not_usable=not_usable)


def _weights(
    snapshot: Snapshot, workload: Workload
) -> tuple[dict[Path, float], tuple[NotUsable, ...]]:
    """Return the share of the readings that compare each column, and the predicates left out."""
    # Importing the SQL parser takes a third of a command's start-up; most need no predicate.
    from liquidlog.predicates.conditions import referenced_leaves_each

    weights: dict[Path, float] = {}
    refused: list[NotUsable] = []
    named = referenced_leaves_each(snapshot, [predicate.where for predicate in workload])
    for predicate, share, leaves in zip(workload, shares(workload), named, strict=True):
        problem = predicate.problem
        if problem is None and isinstance(leaves, UsageError):
            problem = leaves.message
        if problem is not None:
            refused.append(
                NotUsable(where=predicate.where, weight=predicate.weight, reason=problem)
            )
        elif not isinstance(leaves, UsageError):
            for leaf in leaves:
                weights[leaf.logical] = weights.get(leaf.logical, 0.0) + share
    if len(refused) == len(workload):
        raise UsageError(
            f"none of {len(refused)} predicates is a condition on this table; the first:"
            f" {refused[0].reason}"
        )
    return weights, tuple(refused)


def _column(snapshot: Snapshot, path: Path) -> ClusteringColumn | None:
    """Return a column as one to cluster by, None if its type or its statistics forbid that."""
    try:
        (found,) = resolve_columns(
            snapshot.schema,
            [path],
            configuration=snapshot.metadata.configuration,
            partition_columns=(),
        )
    except ClusteringColumnError:
        return None
    return found


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(quote_path(path) for path in paths)
