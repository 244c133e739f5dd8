"""ALTER TABLE ... SET and UNSET TBLPROPERTIES as one change. No data is ever rewritten.

Source: Delta Spark, AlterTableSetPropertiesDeltaCommand; PROTOCOL.md, "Column Mapping".
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.settings import StrategyNames, built_in
from liquidlog.definition.property_rules import (
    ADDABLE,
    asked_features,
    asks_for_protocol,
    canonical_key,
    layout_problems,
    refusal,
    value_problems,
)
from liquidlog.definition.schema_changes import unwritable
from liquidlog.errors import SchemaChangeError, SchemaProblem, SchemaProblemKind
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Protocol
from liquidlog.spec.change import Change
from liquidlog.spec.features import (
    PREVIEW,
    column_mapping_upgrade,
    switched_feature,
    table_features,
    with_features,
)
from liquidlog.spec.mapping import MAX_COLUMN_ID, MODE, MappingMode, mapping_mode, with_own_names
from liquidlog.spec.schema import StructType, schema_json
from liquidlog.spec.stats import indexed_leaves


def properties_change(
    snapshot: Snapshot,
    properties: Mapping[str, str],
    unset: Sequence[str],
    strategies: StrategyNames = built_in,
) -> Change | None:
    """Return the change that sets and removes properties, None if nothing changes.

    Features that the properties need come with them, in the same commit, and so do features and
    versions that properties ask for by name, which are not kept. The change can turn column mapping
    by name on: columns get ids, and their names as physical names. `strategies` are those that a
    property may name.
    """
    given = {canonical_key(name): value for name, value in properties.items()}
    asked = {name: value for name, value in given.items() if asks_for_protocol(name)}
    setting = {name: value for name, value in given.items() if name not in asked}
    before = snapshot.metadata.configuration
    removing = tuple(
        dict.fromkeys(name if name in before else canonical_key(name) for name in unset)
    )
    features, problems = _features(snapshot, asked, setting)
    problems.extend(_problems(snapshot, setting, removing, asked))
    after = {name: value for name, value in {**before, **setting}.items() if name not in removing}
    problems.extend(_mode_problems(before, after))
    kept = [name for name in setting if name in after]
    problems.extend(layout_problems(kept, after, snapshot.schema, strategies))
    if problems:
        raise SchemaChangeError(tuple(dict.fromkeys(problems)))
    schema, after, protocol = _with_mapping(snapshot, after)
    protocol = with_features(protocol, features)
    if after == dict(before) and protocol == snapshot.protocol:
        return None
    metadata = structs.replace(
        snapshot.metadata, schema_string=schema_json(schema), configuration=after
    )
    _check(snapshot, schema, after, protocol)
    return Change(
        operation="SET TBLPROPERTIES" if given else "UNSET TBLPROPERTIES",
        parameters=_parameters(given, removing),
        actions=(metadata,) if protocol == snapshot.protocol else (metadata, protocol),
        is_blind_append=True,
    )


def _features(
    snapshot: Snapshot, asked: Mapping[str, str], setting: Mapping[str, str]
) -> tuple[frozenset[str], list[SchemaProblem]]:
    """Return the features to add, and why some cannot be; those of column mapping are not here."""
    named, problems = asked_features(asked, snapshot.protocol)
    switched = {switched_feature(name, value) for name, value in setting.items() if name != MODE}
    there = {name.removesuffix(PREVIEW) for name in table_features(snapshot.protocol)}
    return named | {name for name in switched if name in ADDABLE and name not in there}, [*problems]


def _problems(
    snapshot: Snapshot,
    setting: Mapping[str, str],
    removing: Sequence[str],
    asked: Mapping[str, str],
) -> Iterator[SchemaProblem]:
    if not setting and not removing and not asked:
        yield SchemaProblem(SchemaProblemKind.PROPERTY_MISSING, "no property is given")
    for name in (*setting, *removing):
        reason = refusal(name)
        if reason is not None:
            yield reason
        elif name in setting and name in removing:
            text = f"{name} is both set and unset"
            yield SchemaProblem(SchemaProblemKind.PROPERTY_SET_AND_UNSET, text, property=name)
        elif name in setting:
            yield from value_problems(name, setting[name], schema=snapshot.schema)


def _mode_problems(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[SchemaProblem]:
    old, new = before.get(MODE, "none").lower(), after.get(MODE, "none").lower()
    if old != new and (old, new) != ("none", "name"):
        text = f"{MODE} cannot change from {old} to {new}: data files would have to be rewritten"
        yield SchemaProblem(SchemaProblemKind.COLUMN_MAPPING_IS_FIXED, text, property=MODE)


def _with_mapping(
    snapshot: Snapshot, configuration: dict[str, str]
) -> tuple[StructType, dict[str, str], Protocol]:
    """Return schema, properties and protocol, with column mapping if it is turned on."""
    before = mapping_mode(snapshot.metadata.configuration)
    if before is not MappingMode.NONE or mapping_mode(configuration) is MappingMode.NONE:
        return snapshot.schema, configuration, snapshot.protocol
    schema, largest = with_own_names(snapshot.schema)
    protocol = column_mapping_upgrade(snapshot.protocol)
    return schema, {**configuration, MAX_COLUMN_ID: str(largest)}, protocol


def _check(
    snapshot: Snapshot,
    schema: StructType,
    configuration: Mapping[str, str],
    protocol: Protocol,
) -> None:
    problems = list(unwritable(protocol, configuration, schema))
    indexed = {leaf.physical for leaf in indexed_leaves(schema, configuration)}
    for column in clustering_state(snapshot).columns:
        if column.physical not in indexed and column.physical in _indexed(snapshot):
            text = (
                f"the clustering column {column.name} would have no statistics in files of other"
                " engines"
            )
            kind = SchemaProblemKind.COLUMN_LOSES_STATISTICS
            problems.append(SchemaProblem(kind, text, column=column.name))
    if problems:
        raise SchemaChangeError(problems)


def _indexed(snapshot: Snapshot) -> frozenset[tuple[str, ...]]:
    found = indexed_leaves(snapshot.schema, snapshot.metadata.configuration)
    return frozenset(leaf.physical for leaf in found)


def _parameters(setting: Mapping[str, str], removing: Sequence[str]) -> dict[str, Any]:
    if not setting:
        return {"properties": _json(removing), "ifExists": "true"}
    unset = {"unset": _json(removing)} if removing else {}
    return {"properties": _json(setting), **unset}


def _json(value: Any) -> str:  # noqa: ANN401  any JSON value
    return msgspec.json.encode(value).decode()
