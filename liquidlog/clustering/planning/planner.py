"""From snapshot to plan: the rewrite mode that suits the table, and the strategies by name.

An option that would have no effect on the plan is refused, never recorded and ignored. Which
options have an effect depends on the table and on the strategy. An option counts as given if the
caller named it, even with its default, or if it differs from its default.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Any, Final

import pyarrow as pa
from msgspec import structs

from liquidlog.clustering.columns import ClusteringColumn, ClusteringState
from liquidlog.clustering.planning import cube, overlap
from liquidlog.clustering.planning.choice import (
    NewId,
    Strategy,
    check_policy,
    check_table,
)
from liquidlog.clustering.planning.compaction import plan_compaction, plan_zorder
from liquidlog.curve.curves import Curve
from liquidlog.errors import UsageError
from liquidlog.plan import (
    OPTION,
    ClusteringPlan,
    ClusteringPolicy,
    FittedWorkload,
    repeated_inputs,
    repeated_message,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.arguments import column_paths, one, whole_number
from liquidlog.spec.bounds import BoundsOf
from liquidlog.spec.codecs import parse_codec
from liquidlog.spec.schema import Leaf, Path, quote_path
from liquidlog.spec.sizes import parse_size, render_size

STRATEGY: Final = "strategy"
"""The one option that is not a field of the policy."""

ALL_OPTIONS: Final = frozenset({STRATEGY, *ClusteringPolicy.__struct_fields__})

SPELLING: Final[Mapping[str, str]] = {
    "min_cube_bytes": "min_cube_size",
    "target_cube_bytes": "target_cube_size",
    "max_file_bytes": "max_file_size",
    "budget_bytes": "budget",
}
"""The callers' name of a field of the policy; the field's own name states its unit."""

CLUSTERING_OPTIONS: Final = frozenset(
    {
        STRATEGY,
        "full",
        "curve",
        "min_cube_bytes",
        "target_cube_bytes",
        "max_file_bytes",
        "compression",
        "bloom_filter",
        "prefix",
    }
)
"""The options that every built-in strategy uses."""

CUBE_OPTIONS: Final = CLUSTERING_OPTIONS | {"skip_clustered"}
OVERLAP_OPTIONS: Final = ALL_OPTIONS - {"zorder_by", "skip_clustered"}
COMPACTION_OPTIONS: Final = frozenset({"max_file_bytes", "compression", "bloom_filter"})
ZORDER_OPTIONS: Final = COMPACTION_OPTIONS | {"target_cube_bytes", "zorder_by"}
PARTITION_OPTIONS: Final = frozenset({"where"})
"""The options that plans of partitioned tables use besides those of others."""

MIN_FILE_BYTES: Final = 128
"""The smallest file size that can be asked for: no Parquet file is smaller."""

_DEFAULTS: Final = ClusteringPolicy()


def policy_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the policy, by name, that the arguments other than None set.

    Args:
        given: Arguments by the names that callers use; sizes and columns as people write them.
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
        case "zorder_by" | "bloom_filter" | "prefix":
            return column_paths(value, argument=name)
        case "compression":
            return parse_codec(one(value, str, argument=name, expected="a codec")).value
        case "full" | "skip_clustered":
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
    decided_by: Mapping[str, str],
    is_partitioned: bool = False,
) -> None:
    """Refuse options that have no effect on a plan of a table with these clustering columns.

    Args:
        policy: All options, with defaults for those that are not given.
        columns: The table's clustering columns.
        named: The options that the caller named.
        strategy: The name of the strategy.
        listens: The options that the strategy uses.
        decided_by: The names of properties of the table that decided options, by option.
        is_partitioned: Whether the table has partition columns.
    """
    given = {*named, *_changed(policy)}
    inside = PARTITION_OPTIONS if is_partitioned else frozenset()
    if policy.zorder_by:
        by = decided_by.get("zorder_by", OPTION)
        source = "zorder_by" if by == OPTION else f"the table's property {by}"
        _refuse(
            given,
            ZORDER_OPTIONS | inside,
            f"with {source}, which orders all files by these columns",
        )
    elif is_partitioned:
        reason = (
            "on a partitioned table, which has no clustering columns and whose small files are"
            " joined inside partitions; order them with zorder_by"
        )
        _refuse(given, COMPACTION_OPTIONS | inside, reason)
    elif not columns:
        reason = (
            "on a table without clustering columns, whose small files are only joined;"
            " set some with cluster-by"
        )
        _refuse(given, COMPACTION_OPTIONS, reason)
    else:
        by = decided_by.get(STRATEGY, OPTION)
        source = "" if by == OPTION else f"; {strategy} is the table's property {by}"
        _refuse(given, listens, _other_strategy(strategy) + source)
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


def prefix_among(
    named: Sequence[Path], columns: Sequence[ClusteringColumn], *, option: str = "prefix"
) -> tuple[Path, ...]:
    """Return the names of some clustering columns as the table has them."""
    known = {tuple(map(str.casefold, column.logical)): column.logical for column in columns}
    found = [(path, known.get(tuple(map(str.casefold, path)))) for path in named]
    unknown = [quote_path(path) for path, own in found if own is None]
    if unknown:
        names = ", ".join(column.name for column in columns)
        raise UsageError(
            f"{option} names {', '.join(unknown)}, which the table is not clustered by; expected"
            f" some of its clustering columns: {names}",
            option=option,
        )
    own_names = tuple(own for _, own in found if own is not None)
    if len(set(own_names)) < len(own_names):
        raise UsageError(f"{option} names a column twice; name each once", option=option)
    return own_names


def _other_strategy(strategy: str) -> str:
    if strategy == "cube":
        return "with the strategy cube, which takes whole cubes; use the strategy overlap"
    return f"with the strategy {strategy} on a table with clustering columns"


def _refuse(given: Collection[str], listens: frozenset[str], reason: str) -> None:
    names = sorted(SPELLING.get(name, name) for name in set(given) - listens)
    if names:
        verb = "has" if len(names) == 1 else "have"
        raise UsageError(f"{', '.join(names)} {verb} no effect {reason}", option=names[0])


def no_bounds(_: Sequence[Leaf]) -> pa.Table:
    """Refuse to return bounds: the default for callers that cannot load any."""
    raise UsageError("this strategy needs the statistics of the files")


STRATEGIES: Final[Mapping[str, Strategy]] = {
    cube.NAME: cube.plan_cubes,
    overlap.NAME: overlap.plan_overlap,
}
"""The built-in strategies by name."""

LISTENS: Final[Mapping[str, frozenset[str]]] = {
    cube.NAME: CUBE_OPTIONS,
    overlap.NAME: OVERLAP_OPTIONS,
}
"""The options that each built-in strategy uses. A strategy of another package gets every option of
a clustered table, and has to refuse with UsageError those that it does not use."""


def plan(
    snapshot: Snapshot,
    policy: ClusteringPolicy,
    *,
    new_id: NewId,
    strategy: str = cube.NAME,
    strategies: Mapping[str, Strategy] = STRATEGIES,
    bounds_of: BoundsOf = no_bounds,
    named: Collection[str] = (),
    decided_by: Mapping[str, str] | None = None,
    readers: FittedWorkload | None = None,
) -> ClusteringPlan:
    """Return the plan for a rewrite of the table at the snapshot's version.

    A table with clustering columns is clustered by the named strategy; another table is compacted,
    or ordered by `policy.zorder_by`. Files are considered in the order of `snapshot.files`; the
    same snapshot and policy give the same groups. `new_id` makes the id of the plan, then that of
    each group's cube. Strategies that need bounds load them with `bounds_of`. `named` lists the
    options that the caller gave, perhaps with their default values; `decided_by` says which options
    properties of the table decided, as the plan does. Strategies that take `readers` judge files by
    them, if they ask anything.
    """
    check_known("strategy", strategy, tuple(strategies))
    check_known("curve", policy.curve, tuple(Curve))
    check_policy(policy)
    state = check_table(snapshot)
    listens = LISTENS.get(strategy, ALL_OPTIONS - {"zorder_by"})
    require_effect(
        policy,
        state.columns,
        named=named,
        strategy=strategy,
        listens=listens,
        decided_by=decided_by or {},
        is_partitioned=bool(snapshot.metadata.partition_columns),
    )
    if policy.zorder_by:
        _require_unclustered(state)
        return plan_zorder(snapshot, policy, new_id, bounds_of)
    if not state.columns:
        return plan_compaction(snapshot, policy, new_id, bounds_of)
    if policy.prefix:
        policy = structs.replace(policy, prefix=prefix_among(policy.prefix, state.columns))
    chosen: Callable[..., ClusteringPlan] = strategies[strategy]
    if readers is not None and readers.asks and "readers" in signature(chosen).parameters:
        chosen = partial(chosen, readers=readers)
    made = chosen(snapshot, state.columns, policy, new_id, bounds_of)
    repeated = repeated_inputs(made.groups)
    if repeated:
        raise UsageError(f"the plan of the strategy {strategy} {repeated_message(repeated)}")
    return made


def _require_unclustered(state: ClusteringState) -> None:
    if state.columns:
        raise UsageError(
            f"the table is clustered by {', '.join(state.names)} and cannot be ordered by"
            " ZORDER BY; plan it without ZORDER BY, or clear its columns with cluster-by --none",
            columns=list(state.names),
        )


def check_known(kind: str, name: str, known: tuple[str, ...]) -> None:
    """Refuse an unknown name."""
    if name not in known:
        listed = ", ".join(sorted(known))
        raise UsageError(f"there is no {kind} {name!r}; known are {listed}", name=name)
