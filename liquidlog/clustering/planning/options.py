"""Options of a plan that would have no effect: refused, never recorded and ignored.

What a plan listens to depends on the table and on the strategy. An option counts as given if the
caller named it, even with its default, or if it differs from its default.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from liquidlog.clustering.columns import ClusteringColumn
from liquidlog.errors import UsageError
from liquidlog.plan import ClusteringPolicy
from liquidlog.spec.arguments import column_paths, one, whole_number
from liquidlog.spec.sizes import parse_size, render_size

STRATEGY: Final = "strategy"
"""The option that is no field of the policy."""

ALL_OPTIONS: Final = frozenset({STRATEGY, *ClusteringPolicy.__struct_fields__})

SPELLING: Final[Mapping[str, str]] = {
    "min_cube_bytes": "min_cube_size",
    "target_cube_bytes": "target_cube_size",
    "max_file_bytes": "max_file_size",
    "budget_bytes": "budget",
}
"""What callers name a field of the policy whose own name says its unit."""

CLUSTERING_OPTIONS: Final = frozenset(
    {STRATEGY, "full", "curve", "min_cube_bytes", "target_cube_bytes", "max_file_bytes"}
)
"""What every strategy of ours listens to."""

CUBE_OPTIONS: Final = CLUSTERING_OPTIONS
OVERLAP_OPTIONS: Final = ALL_OPTIONS - {"zorder_by"}
COMPACTION_OPTIONS: Final = frozenset({"max_file_bytes"})
ZORDER_OPTIONS: Final = frozenset({"max_file_bytes", "zorder_by"})

MIN_FILE_BYTES: Final = 128
"""Least size that can be asked of files: no Parquet file is smaller."""

_DEFAULTS: Final = ClusteringPolicy()


def policy_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of the policy by name, of the arguments that are not None.

    Args:
        given: Arguments under the names that callers use; sizes and columns as people write them.

    Raises:
        UsageError: If one has a value that it cannot have.
    """
    found = {name: value for name, value in given.items() if value is not None}
    fields = {public: field for field, public in SPELLING.items()}
    return {fields.get(name, name): _setting(name, value) for name, value in found.items()}


def _setting(name: str, value: Any) -> Any:  # noqa: ANN401  a field's value
    match name:
        case "min_cube_size" | "target_cube_size" | "budget":
            return parse_size(value)
        case "max_file_size":
            return _file_size(value)
        case "zorder_by":
            return column_paths(value, argument=name)
        case "full":
            return one(value, bool, argument=name, expected="True or False")
        case "min_overlapping_files":
            return whole_number(value, argument=name)
        case "tolerance" | "min_overlap":
            return float(one(value, (int, float), argument=name, expected="a number"))
        case _:
            return one(value, str, argument=name, expected="text")


def _file_size(value: Any) -> int:  # noqa: ANN401  as a caller gives it
    size_bytes = parse_size(value)
    if size_bytes < MIN_FILE_BYTES:
        raise UsageError(
            f"max_file_size must be at least {render_size(MIN_FILE_BYTES)}, found"
            f" {render_size(size_bytes)}: no Parquet file is smaller",
            option="max_file_size",
        )
    return size_bytes


def require_effect(
    policy: ClusteringPolicy,
    columns: tuple[ClusteringColumn, ...],
    *,
    named: Collection[str],
    strategy: str,
    listens: frozenset[str],
) -> None:
    """Refuse options that have no effect on a plan of a table with these clustering columns.

    Args:
        policy: What all options come to.
        columns: The table's clustering columns.
        named: The options that the caller named.
        strategy: Its name.
        listens: The options that this strategy uses.

    Raises:
        UsageError: With the reason; names every such option.
    """
    given = {*named, *_changed(policy)}
    if policy.zorder_by:
        _refuse(given, ZORDER_OPTIONS, "with zorder_by, which orders all files by these columns")
    elif not columns:
        reason = (
            "on a table without clustering columns, whose small files are only joined;"
            " set some with cluster-by"
        )
        _refuse(given, COMPACTION_OPTIONS, reason)
    else:
        _refuse(given, listens, _other_strategy(strategy))
        _require_effect_of_values(named, policy, columns)


def _changed(policy: ClusteringPolicy) -> Iterator[str]:
    for name in ClusteringPolicy.__struct_fields__:
        if getattr(policy, name) != getattr(_DEFAULTS, name):
            yield name


def _require_effect_of_values(
    named: Collection[str], policy: ClusteringPolicy, columns: tuple[ClusteringColumn, ...]
) -> None:
    if "curve" in named and len(columns) == 1:
        name = columns[0].name
        raise UsageError(
            f"curve has no effect on a table clustered by one column, {name}: one column is"
            " always in linear order",
            option="curve",
        )
    target, least = policy.target_cube_bytes, policy.min_cube_bytes
    if "target_cube_bytes" in named and target < least:
        raise UsageError(
            f"target_cube_size has no effect below min_cube_size: {render_size(target)} is less"
            f" than {render_size(least)}; give a smaller min_cube_size too",
            option="target_cube_size",
        )
    pair = ("min_overlapping_files", "min_overlap")
    for name, other in (pair, pair[::-1]):
        if name in named and getattr(policy, other) == 0:
            raise UsageError(f"{name} has no effect with a {other} of 0", option=name)


def _other_strategy(strategy: str) -> str:
    if strategy == "cube":
        return "with the strategy cube, which always takes whole cubes; the strategy overlap has it"
    return f"with the strategy {strategy} on a table with clustering columns"


def _refuse(given: Collection[str], listens: frozenset[str], reason: str) -> None:
    names = sorted(SPELLING.get(name, name) for name in set(given) - listens)
    if names:
        verb = "has" if len(names) == 1 else "have"
        raise UsageError(f"{', '.join(names)} {verb} no effect {reason}", option=names[0])
