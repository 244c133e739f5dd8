"""The columns of a table that predicates name."""

from collections.abc import Sequence

from sqlglot import exp

from liquidlog.errors import UsageError
from liquidlog.predicates.conditions import parse_condition, referenced_columns
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import Leaf, Path, leaves


def condition_on(
    predicate: str, snapshot: Snapshot
) -> tuple[exp.Expression, dict[Path, Path]] | UsageError:
    """Return the tree of a condition and the columns that it names, or why it is none on a table.

    The columns are as `referenced_columns` returns them.
    """
    try:
        condition = parse_condition(predicate)
        return condition, referenced_columns(condition, snapshot.schema)
    except UsageError as error:
        return error


def referenced_leaves(snapshot: Snapshot, predicates: Sequence[str]) -> tuple[Leaf, ...]:
    """Return the leaves whose statistics the predicates need, each once."""
    found = referenced_leaves_each(snapshot, predicates)
    for one in found:
        if isinstance(one, UsageError):
            raise one
    return tuple(
        dict.fromkeys(leaf for one in found if not isinstance(one, UsageError) for leaf in one)
    )


def referenced_leaves_each(
    snapshot: Snapshot, predicates: Sequence[str]
) -> tuple[tuple[Leaf, ...] | UsageError, ...]:
    """Return the leaves whose statistics each predicate needs, or why it is no condition."""
    partitions = {(name,) for name in snapshot.metadata.partition_columns}
    known = {leaf.logical: leaf for leaf in leaves(snapshot.schema)}
    conditions = [condition_on(predicate, snapshot) for predicate in predicates]
    return tuple(
        found
        if isinstance(found, UsageError)
        else tuple(
            known[path]
            for path in dict.fromkeys(found[1].values())
            if path in known and path not in partitions
        )
        for found in conditions
    )
