"""What a table remembers of its layout: table properties that stand for options of a plan.

An option that the caller gives wins over the table's property, and the property over the default. A
property is read only where its setting has an effect: one for another strategy, or for tables
without clustering columns, is the table's memory and no mistake.

Any engine can set these properties, to any text. A wrong value is refused when it is read, and an
unknown name, perhaps of a later release, is noted.
"""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from liquidlog.clustering.columns import clustering_state, resolve_columns
from liquidlog.clustering.filters import filtered_leaves
from liquidlog.clustering.planning.choice import check_policy
from liquidlog.clustering.planning.planner import (
    CLUSTERING_OPTIONS,
    COMPACTION_OPTIONS,
    LISTENS,
    STRATEGY,
    ZORDER_OPTIONS,
    check_known,
    policy_settings,
    prefix_among,
)
from liquidlog.clustering.properties import (
    BLOOM_FILTER_PROPERTY,
    BY_NAME,
    LAYOUT_PROPERTIES,
    PREFIX_PROPERTY,
    SETTINGS,
    WEIGHTS,
    WEIGHTS_PROPERTY,
    ZORDER_PROPERTY,
    LayoutProperty,
    StrategyNames,
    built_in,
    deciding_property,
    default_of,
)
from liquidlog.curve.curves import Curve
from liquidlog.errors import UsageError
from liquidlog.plan import OPTION, ClusteringPolicy, FittedWorkload, weighted_columns
from liquidlog.snapshot import Snapshot
from liquidlog.spec.codecs import CODEC_PROPERTY
from liquidlog.spec.near import unknown_columns
from liquidlog.spec.schema import Path, StructType, find_column, quote_path


def parse_property(
    known: LayoutProperty,
    text: str,
    *,
    schema: StructType,
    configuration: Mapping[str, str],
    strategies: StrategyNames = built_in,
) -> Any:  # noqa: ANN401  any setting's value
    """Return the value of the property's setting, as the option's own parser reads it.

    Args:
        known: The property.
        text: Its value in the table.
        schema: The table's schema.
        configuration: The table's properties; they say which columns have statistics.
        strategies: The strategies that the property may name.
    """
    read = known.read(text)
    if known.setting == WEIGHTS:
        _require_columns(schema, [path for path, _ in read])
        return read
    (value,) = policy_settings({known.argument: read}).values()
    if known.setting == STRATEGY:
        check_known(STRATEGY, value, tuple(strategies()))
        return value
    policy = ClusteringPolicy(**{known.setting: value})
    check_policy(policy)
    check_known("curve", policy.curve, tuple(Curve))
    if known.name == BLOOM_FILTER_PROPERTY:
        filtered_leaves(schema, value)
    elif known.name == PREFIX_PROPERTY:
        _require_columns(schema, value)
    elif known.name == ZORDER_PROPERTY:
        resolve_columns(
            schema, value, configuration=configuration, partition_columns=(), limit=len(value)
        )
    return value


def _require_columns(schema: StructType, paths: Sequence[Path]) -> None:
    """Refuse names of columns that a table does not have, and one that is named twice."""
    unknown = [quote_path(path) for path in paths if find_column(schema, path) is None]
    problems = [*unknown_columns(unknown, schema)]
    if len({tuple(map(str.casefold, path)) for path in paths}) < len(paths):
        problems.append("a column is named twice; name each once")
    if problems:
        raise UsageError("; ".join(problems))


def wrong_value(
    known: LayoutProperty,
    text: str,
    *,
    schema: StructType,
    configuration: Mapping[str, str],
    strategies: StrategyNames = built_in,
) -> str | None:
    """Return what is wrong with a property's value, None if it can be used; see parse_property."""
    try:
        parse_property(
            known, text, schema=schema, configuration=configuration, strategies=strategies
        )
    except UsageError as error:
        return error.message
    return None


def wrong_values(snapshot: Snapshot, strategies: StrategyNames = built_in) -> Mapping[str, str]:
    """Return what is wrong with the values of a table's properties, by the properties' names."""
    schema, configuration = snapshot.schema, snapshot.metadata.configuration
    found = {
        known.name: wrong_value(
            known,
            configuration[known.name],
            schema=schema,
            configuration=configuration,
            strategies=strategies,
        )
        for known in LAYOUT_PROPERTIES
        if known.name in configuration
    }
    return {name: problem for name, problem in found.items() if problem is not None}


class _Recall:
    """Reads settings from the properties of a table at one version."""

    def __init__(self, snapshot: Snapshot, strategies: StrategyNames = built_in) -> None:
        self._snapshot = snapshot
        self._strategies = strategies
        self._configuration = snapshot.metadata.configuration

    def value_of(self, setting: str) -> Any:  # noqa: ANN401  any setting's value
        """Return what the table remembers of a setting, its default if there is no property."""
        name = deciding_property(self._configuration, setting)
        if name is None:
            return default_of(setting)
        with self.blaming(name):
            return parse_property(
                BY_NAME[name],
                self._configuration[name],
                schema=self._snapshot.schema,
                configuration=self._configuration,
                strategies=self._strategies,
            )

    @contextmanager
    def blaming(self, name: str) -> Iterator[None]:
        """Context manager: an error inside becomes one that names the property."""
        try:
            yield
        except UsageError as error:
            value, uri = self._configuration[name], shlex.quote(self._snapshot.uri)
            raise UsageError(
                f"the table's property {name} cannot be {value!r}: {error.message}; set another"
                f" value with liquidlog set-properties {uri} {name}=..., or remove it with --unset"
                f" {name}",
                property=name,
                value=value,
            ) from error


def remembered(snapshot: Snapshot, setting: str, strategies: StrategyNames = built_in) -> Any:  # noqa: ANN401  any setting's value
    """Return what a table remembers of one setting, its default if there is no property."""
    return _Recall(snapshot, strategies).value_of(setting)


def remembered_among(snapshot: Snapshot, settings: Collection[str]) -> Mapping[str, Any]:
    """Return those of the settings that properties of a table decide."""
    recall = _Recall(snapshot)
    found = [
        setting
        for setting in SETTINGS
        if setting in settings and deciding_property(snapshot.metadata.configuration, setting)
    ]
    return {setting: recall.value_of(setting) for setting in found}


def remembered_if_right(snapshot: Snapshot, setting: str) -> Any:  # noqa: ANN401  any setting's value
    """Return what a table remembers of one setting, its default if the value is wrong."""
    try:
        return remembered(snapshot, setting)
    except UsageError:
        return default_of(setting)


def remembered_readers(snapshot: Snapshot) -> FittedWorkload | None:
    """Return the readers that the property for weights stands for, None without it or columns."""
    columns = clustering_state(snapshot).columns
    if not columns or WEIGHTS_PROPERTY not in snapshot.metadata.configuration:
        return None
    recall = _Recall(snapshot)
    weights = recall.value_of(WEIGHTS)
    with recall.blaming(WEIGHTS_PROPERTY):
        names = prefix_among([path for path, _ in weights], columns, option=WEIGHTS)
    by_name = dict(zip(names, (weight for _, weight in weights), strict=True))
    return weighted_columns([by_name.get(column.logical, 0.0) for column in columns])


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The settings of a plan, and who decided them.

    `settings` are fields of the policy; those that nobody decided are left out. `named` are the
    options that the caller gave. `decided_by` maps each setting that does not have its default to
    OPTION or to the name of a property.
    """

    strategy: str
    settings: Mapping[str, Any]
    named: frozenset[str]
    decided_by: Mapping[str, str]


def settle(
    snapshot: Snapshot, given: Mapping[str, Any], strategies: StrategyNames = built_in
) -> Settled:
    """Return the settings of a plan of the table: options, then properties, then defaults.

    Args:
        snapshot: The table.
        given: What the caller gave: fields of the policy, and perhaps STRATEGY.
        strategies: The strategies that a property may name.
    """
    recall = _Recall(snapshot, strategies)
    columns = len(clustering_state(snapshot).columns)
    found, decided_by = dict(given), dict.fromkeys(given, OPTION)

    def remember(setting: str) -> None:
        name = (
            None
            if setting in found
            else deciding_property(snapshot.metadata.configuration, setting)
        )
        if name is not None:
            found[setting] = recall.value_of(setting)
            decided_by[setting] = name

    remember(STRATEGY if columns else "zorder_by")
    listening = _listening(columns, found)
    for setting in SETTINGS:
        if setting in listening:
            remember(setting)
    if decided_by.get("prefix") == PREFIX_PROPERTY:
        with recall.blaming(PREFIX_PROPERTY):
            found["prefix"] = prefix_among(found["prefix"], clustering_state(snapshot).columns)
    if "compression" not in found and CODEC_PROPERTY in snapshot.metadata.configuration:
        decided_by["compression"] = CODEC_PROPERTY
    return Settled(
        strategy=found.pop(STRATEGY, default_of(STRATEGY)),
        settings=found,
        named=frozenset(given),
        decided_by=decided_by,
    )


def _listening(columns: int, found: Mapping[str, Any]) -> frozenset[str]:
    """Return the settings that have an effect beside those found so far.

    A strategy of another package may refuse what only some strategies use.
    """
    if not columns:
        return ZORDER_OPTIONS if found.get("zorder_by") else COMPACTION_OPTIONS
    used = LISTENS.get(found.get(STRATEGY, default_of(STRATEGY)), CLUSTERING_OPTIONS)
    return used if columns > 1 else used - {"curve"}
