"""Rules on properties of an existing table: which of them a user can set, and to which values.

Source: Delta Spark, DeltaConfigs and AlterTableSetPropertiesDeltaCommand.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from liquidlog.clustering.settings import (
    BY_PROPERTY,
    StrategyNames,
    built_in,
    is_unknown,
    unknown_text,
    wrong_value,
)
from liquidlog.errors import SchemaProblem, SchemaProblemKind, UsageError
from liquidlog.spec.actions import Protocol
from liquidlog.spec.arguments import CODEC_NAMES, CODEC_PROPERTY
from liquidlog.spec.bounds import NUM_INDEXED_COLUMNS, STATS_COLUMNS
from liquidlog.spec.evolution import FREE_FEATURES, MANIFESTS
from liquidlog.spec.features import (
    COLUMN_MAPPING,
    READER_FEATURE_VERSION,
    WRITER_FEATURE_VERSION,
    feature_named,
    implied_features,
    table_features,
)
from liquidlog.spec.schema import MODE, StructType, find_column, quote_path, split_paths
from liquidlog.spec.text import near_names

DELTA_PREFIX: Final = "delta."
FEATURE_PREFIX: Final = "delta.feature."
_REQUESTS: Final = ("supported", "enabled")
_VERSIONS: Final[Mapping[str, tuple[str, int]]] = {
    "delta.minreaderversion": ("reader", READER_FEATURE_VERSION),
    "delta.minwriterversion": ("writer", WRITER_FEATURE_VERSION),
}
"""Properties in lower case that ask for a version: whose, and the highest that there is."""

ADDABLE: Final = (*FREE_FEATURES, COLUMN_MAPPING)
"""Features that a table with files can be given: they ask nothing of files that are there."""


_INTERVAL: Final = re.compile(
    r"(interval\s+)?(\d+\s+(week|day|hour|minute|second|millisecond|microsecond)s?\s*)+",
    re.IGNORECASE,
)

Check = Callable[[str], str | None]
"""Returns what a value must be, None if it is valid."""


def _is_boolean(value: str) -> str | None:
    return None if value.lower() in {"true", "false"} else "true or false"


def _is_interval(value: str) -> str | None:
    found = _INTERVAL.fullmatch(value.strip())
    return None if found else "an interval such as '2 weeks', without months and years"


def _is_integer(least: int) -> Check:
    def check(value: str) -> str | None:
        number = int(value) if re.fullmatch(r"-?\d{1,9}", value) else None
        return None if number is not None and number >= least else f"a whole number from {least}"

    return check


def _is_one_of(*values: str) -> Check:
    def check(value: str) -> str | None:
        listed = ", ".join(values)
        return None if value in values else listed if len(values) == 1 else f"one of {listed}"

    return check


def _is_codec(value: str) -> str | None:
    return None if value.lower() in CODEC_NAMES else f"one of {', '.join(CODEC_NAMES)}"


def _is_text(_: str) -> str | None:
    return None


_SETTABLE: Final[Mapping[str, Check]] = {
    **dict.fromkeys(
        (
            "delta.appendOnly",
            "delta.autoOptimize",
            "delta.autoOptimize.optimizeWrite",
            "delta.checkpoint.writeStatsAsJson",
            "delta.checkpoint.writeStatsAsStruct",
            "delta.enableChangeDataFeed",
            "delta.enableDeletionVectors",
            "delta.enableExpiredLogCleanup",
            "delta.enableFullRetentionRollback",
            "delta.enableTypeWidening",
            "delta.randomizeFilePrefixes",
        ),
        _is_boolean,
    ),
    **dict.fromkeys(
        (
            "delta.checkpointRetentionDuration",
            "delta.deletedFileRetentionDuration",
            "delta.dropFeatureTruncateHistory.retentionDuration",
            "delta.logRetentionDuration",
            "delta.sampleRetentionDuration",
            "delta.setTransactionRetentionDuration",
        ),
        _is_interval,
    ),
    "delta.autoOptimize.autoCompact": _is_one_of("auto", "true", "false"),
    # With true, every writer has to write manifests anew, which we do not.
    MANIFESTS: _is_one_of("false"),
    "delta.checkpointInterval": _is_integer(1),
    "delta.checkpointPolicy": _is_one_of("classic", "v2"),
    "delta.dataSkippingStringPrefixLength": _is_integer(0),
    "delta.isolationLevel": _is_one_of("Serializable"),
    CODEC_PROPERTY: _is_codec,
    "delta.randomPrefixLength": _is_integer(1),
    MODE: _is_one_of("none", "name", "id"),
    NUM_INDEXED_COLUMNS: _is_integer(-1),
    STATS_COLUMNS: _is_text,
    # Their values are what the options of a plan can be; see layout_problems.
    **dict.fromkeys(BY_PROPERTY, _is_text),
}

_REFUSED: Final[Mapping[str, str]] = {
    # Maps the beginning of a key, in lower case, to the reason why a user cannot set it.
    "delta.feature.": "drop-feature takes features back",
    "delta.minreaderversion": "versions never become lower",
    "delta.minwriterversion": "versions never become lower",
    "delta.ignoreprotocoldefaults": "it has a meaning for new tables only",
    "delta.constraints.": "existing rows would have to be checked",
    "delta.columnmapping.maxcolumnid": "it counts the columns",
    "delta.enablerowtracking": "existing files would have to be given row ids",
    "delta.rowtracking": "it belongs to row tracking",
    "delta.enableincommittimestamps": "the version it begins at would have to be recorded",
    "delta.incommittimestamp": "it belongs to in-commit timestamps",
    "delta.enableicebergcompat": "existing files would have to be checked",
    "delta.universalformat.": "Iceberg metadata would have to be written",
    "delta.enablevariantshredding": "shredded variants are not written",
    "delta.coordinatedcommits.": "it belongs to the commit coordinator",
    "delta.redirect": "it moves the table",
    "delta.requirecheckpointprotectionbeforeversion": "it belongs to dropped features",
    "delta.enablematerializepartitioncolumnsfeature": "a clustered table has no partitions",
    "delta.writepartitioncolumnstoparquet": "a clustered table has no partitions",
}
_RESERVED: Final[Mapping[str, str]] = {
    "clusteringcolumns": "set clustering columns with cluster-by",
    "clusterbyauto": "it belongs to another engine's catalog",
    "location": "a table does not know its address",
    "provider": "it is always delta",
    "owner": "it belongs to a catalog",
    "external": "it belongs to a catalog",
}


def canonical_key(name: str) -> str:
    """Return a property's name in the reference engine's spelling, whatever its case."""
    return _SPELLING.get(name.lower(), name)


def refusal(name: str) -> SchemaProblem | None:
    """Return the reason why a user cannot set or unset a property, None if a user can."""
    lowered = name.lower()
    reason = _RESERVED.get(lowered) or next(
        (why for start, why in _REFUSED.items() if lowered.startswith(start)), None
    )
    if reason is not None:
        text = f"{name} cannot be changed here: {reason}"
        return SchemaProblem(SchemaProblemKind.PROPERTY_IS_FIXED, text, property=name)
    if lowered.startswith(DELTA_PREFIX) and lowered not in _SPELLING:
        return unknown_property(name)
    return None


def unknown_property(name: str) -> SchemaProblem:
    """Return the problem that Delta has no such property; its text has similar names."""
    delta = [spelled for spelled in _SPELLING.values() if spelled.startswith(DELTA_PREFIX)]
    known = {spelled.removeprefix(DELTA_PREFIX): spelled for spelled in delta}
    near = near_names(name[len(DELTA_PREFIX) :], known)
    hint = f"; did you mean {' or '.join(known[one] for one in near)}?" if near else ""
    text = f"{name} is not a property that Delta knows{hint}"
    return SchemaProblem(SchemaProblemKind.PROPERTY_UNKNOWN, text, property=name)


def new_table_problems(properties: Mapping[str, str]) -> Iterator[SchemaProblem]:
    """Yield the problems of a new table's properties: unknown names, and wrong values.

    A new table may have properties that cannot be set on an existing table. The values of those
    about the layout depend on its schema; `layout_problems` checks them.
    """
    for name, value in properties.items():
        lowered = name.lower()
        known = lowered in _SPELLING or lowered.startswith(tuple(_REFUSED))
        if lowered.startswith(DELTA_PREFIX) and not known:
            yield unknown_property(name)
        yield from _unknown_layout(name)
        yield from _wrong_value(name, value)


def asks_for_protocol(name: str) -> bool:
    """Return whether a property asks for a feature or version of the protocol and is not kept."""
    lowered = name.lower()
    return lowered.startswith(FEATURE_PREFIX) or lowered in _VERSIONS


def asked_features(
    asked: Mapping[str, str], protocol: Protocol
) -> tuple[frozenset[str], tuple[SchemaProblem, ...]]:
    """Return the features that properties of `asks_for_protocol` ask for, and why some cannot be.

    Versions ask for what they imply, as in Delta Spark; lower ones than the table's for nothing.
    """
    found, problems = set(), []
    versions = {"reader": protocol.min_reader_version, "writer": protocol.min_writer_version}
    for name, value in asked.items():
        if name.lower() in _VERSIONS:
            kind, highest = _VERSIONS[name.lower()]
            if re.fullmatch("[1-9]", value) is None or int(value) > highest:
                text = f"{name} must be a whole number from 1 to {highest}, not {value!r}"
                problems.append(
                    SchemaProblem(SchemaProblemKind.PROPERTY_VALUE, text, property=name)
                )
                continue
            versions[kind] = int(value)
            continue
        feature = feature_named(name[len(FEATURE_PREFIX) :])
        if value.lower() not in _REQUESTS:
            text = f"{name} must be supported, not {value!r}"
            problems.append(SchemaProblem(SchemaProblemKind.PROPERTY_VALUE, text, property=name))
        elif feature not in ADDABLE:
            text = f"{name} cannot be set here: {_not_added(feature)}"
            problems.append(SchemaProblem(SchemaProblemKind.PROPERTY_IS_FIXED, text, property=name))
        else:
            found.add(feature)
    reader, writer = versions.values()
    if writer < WRITER_FEATURE_VERSION:
        # Version 3 of readers comes with lists of features only.
        asked_for = Protocol(min_reader_version=min(reader, 2), min_writer_version=writer)
        found |= {*implied_features(asked_for)} - {*table_features(protocol)}
    return frozenset(found), tuple(problems)


def _not_added(feature: str | None) -> str:
    match feature:
        case None:
            return f"it is none of the features that a table can be given: {', '.join(ADDABLE)}"
        case "clustering":
            return "set clustering columns with cluster-by"
        case _:
            return "files that are there would have to be given what it asks for"


def value_problems(name: str, value: str, *, schema: StructType) -> Iterator[SchemaProblem]:
    """Yield the reasons why a property of a table cannot have the value."""
    yield from _unknown_layout(name)
    yield from _wrong_value(name, value)
    if name == STATS_COLUMNS:
        yield from _stats_column_problems(value, schema)


def layout_problems(
    names: Iterable[str],
    configuration: Mapping[str, str],
    schema: StructType,
    strategies: StrategyNames = built_in,
) -> Iterator[SchemaProblem]:
    """Yield the reasons why properties about the layout cannot have their values.

    Of `names`, those that are not about the layout are passed over; `configuration` has all
    properties that the table would have.
    """
    for name in map(canonical_key, names):
        if name not in BY_PROPERTY:
            continue
        value = configuration[name]
        problem = wrong_value(
            name, value, schema=schema, configuration=configuration, strategies=strategies
        )
        if problem is not None:
            text = f"{name} cannot be {value!r}: {problem}"
            yield SchemaProblem(SchemaProblemKind.PROPERTY_VALUE, text, property=name)


def _unknown_layout(name: str) -> Iterator[SchemaProblem]:
    if is_unknown(canonical_key(name)):
        text = unknown_text(name)
        yield SchemaProblem(SchemaProblemKind.PROPERTY_UNKNOWN, text, property=name)


def _wrong_value(name: str, value: str) -> Iterator[SchemaProblem]:
    expected = _SETTABLE.get(canonical_key(name), _is_text)(value)
    if expected is not None:
        text = f"{name} must be {expected}, not {value!r}"
        yield SchemaProblem(SchemaProblemKind.PROPERTY_VALUE, text, property=name)


def _stats_column_problems(value: str, schema: StructType) -> Iterator[SchemaProblem]:
    try:
        paths = split_paths(value)
    except UsageError as error:
        text = f"{STATS_COLUMNS}: {error.message}"
        yield SchemaProblem(SchemaProblemKind.PROPERTY_VALUE, text, property=STATS_COLUMNS)
        return
    for path in paths:
        if find_column(schema, path) is None:
            name = quote_path(path)
            text = f"{STATS_COLUMNS}: there is no column {name}"
            kind = SchemaProblemKind.COLUMN_UNKNOWN
            yield SchemaProblem(kind, text, column=name, property=STATS_COLUMNS)


_SPELLING: Final[Mapping[str, str]] = {name.lower(): name for name in _SETTABLE}
