"""The settings of a rewrite, each declared once: its name, its values, and who may decide it.

A caller gives a setting as a keyword, as `--set NAME=VALUE`, or as an option of its own; some can
also be properties of the table, which any engine can set to any text. The caller's value wins over
the property, and the property over the default. A caller's setting without effect is refused; a
property without effect is allowed.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypedDict
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from liquidlog.clustering.columns import (
    ClusteringColumn,
    clustering_state,
    filtered_leaves,
    resolve_columns,
)
from liquidlog.errors import UsageError
from liquidlog.plan import (
    DEFAULT_ROW_GROUP_ROWS,
    MIN_ROW_GROUP_ROWS,
    OPTION,
    ClusteringPolicy,
    FittedWorkload,
    weighted_columns,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec import text
from liquidlog.spec.arrow import READ_AS
from liquidlog.spec.schema import Path, StructType, find_column, quote_path, split_paths
from liquidlog.spec.text import (
    CODEC_PROPERTY,
    column_paths,
    near_names,
    number,
    one,
    parse_codec,
    parse_size,
    refuse,
    render_size,
    suggestion,
    unknown_columns,
    whole_number,
)

Size = int | str
"""Bytes, as a number or as text: 1073741824, "1GiB", "100GB"."""

Names = str | Sequence[str]


class MigrationSettings(TypedDict, total=False):
    """The settings of a plan that clusters a partitioned table."""

    curve: str | None
    max_file_size: Size | None
    min_cube_size: Size | None
    target_cube_size: Size | None
    prefix: Names | None
    compression: str | None
    bloom_filter: Names | None
    row_group_rows: int | None
    partition_time_zone: str | None


class PlanSettings(MigrationSettings, total=False):
    """The settings of a plan, as keyword arguments; `SETTINGS` says what each is."""

    full: bool | None
    strategy: str | None
    where: str | None
    budget: Size | None
    zorder_by: Names | None
    tolerance: float | None
    min_overlapping_files: int | None
    min_overlap: float | None
    skip_clustered: bool | None


class CommitSettings(TypedDict, total=False):
    """How finished groups are committed, as keyword arguments; `SETTINGS` says what each is."""

    groups_per_commit: int | None
    max_reconciled_share: float | None
    reconcile_limit: Size | None


class RewriteSettings(PlanSettings, CommitSettings, total=False):
    """All settings of a rewrite that is planned, executed and committed in one call."""

    read_back: bool | None
    local_limit: Size | None
    final: bool | None
    min_gain: float | None


class Stage(StrEnum):
    """The part of a rewrite that a setting is for."""

    PLAN = "plan"
    ROUNDS = "rounds"
    RUN = "run"
    COMMIT = "commit"
    JUDGE = "judge"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of values: `read` checks a caller's value under its name, `of_text` reads text."""

    read: Callable[[Any, str], Any]
    of_text: Callable[[str], Any] = str
    is_size: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: callers write its `name`, the policy of a plan has it as `field`.

    Unless a caller decides it, the first of `properties` that a table has does.
    """

    name: str
    kind: Kind
    help: str
    stage: Stage = Stage.PLAN
    properties: tuple[str, ...] = ()

    @property
    def field(self) -> str:
        return f"{self.name.removesuffix('_size')}_bytes" if self.kind.is_size else self.name

    def parsed(self, given: Any) -> Any:  # noqa: ANN401  any setting's value
        return self.kind.read(given, self.name)


def _file_size(given: Size, name: str) -> int:
    size_bytes = parse_size(given)
    if size_bytes < MIN_FILE_BYTES:
        raise UsageError(
            f"{name} must be at least {render_size(MIN_FILE_BYTES)}, found"
            f" {render_size(size_bytes)}: no Parquet file is smaller",
            option=name,
        )
    return size_bytes


def _text(given: object, name: str) -> str:
    return one(given, str, argument=name, expected="text")


def _curve(given: object, name: str) -> str:
    from liquidlog.curve.curves import Curve

    found = _text(given, name)
    check_known(name, found, tuple(Curve))
    return found


def _number_from(least: float, most: float, said: str) -> Callable[[Any, str], float]:
    def read(given: object, name: str) -> float:
        found = one(given, (int, float), argument=name, expected="a number")
        if not least <= found <= most:
            raise UsageError(f"{name} must be {said}, not {found}", option=name)
        return float(found)

    return read


def zone_named(name: str, argument: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"there is no time zone {name!r}; name one as UTC or Europe/Berlin", option=argument
        ) from error


def _number_text(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number") from None


def _share_text(text: str) -> float:
    return _number_text(text[:-1]) / 100 if text.endswith("%") else _number_text(text)


def _whole_text(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"{text!r} is not a whole number")
    return int(text)


def _flag_text(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise UsageError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def split_names(text: str) -> tuple[str, ...]:
    """Return the column names of a comma-separated list, quoted where they need it."""
    names = tuple(quote_path(path) for path in split_paths(text))
    if not names:
        raise UsageError("a list of columns is needed, as a,b")
    return names


_WEIGHT: Final = re.compile(r"((?:`[^`]*`|[^,=`])+)=([^,=]+)(?:,(?=[^,])|$)")


def _weights_of(text: str) -> tuple[tuple[Path, float], ...]:
    found = []
    for name, weight in _WEIGHT.findall(text):
        (path,) = split_paths(name)
        found.append((path, _number_text(weight)))
    if not found or _WEIGHT.sub("", text).strip():
        raise UsageError(f"{text!r} is no list of columns with weights, as a=4,b=1")
    weights = [weight for _, weight in found]
    if not all(0 <= weight < float("inf") for weight in weights) or not any(weights):
        raise UsageError("weights must be numbers from 0, not all of them 0")
    return tuple(found)


def weights_text(weights: Iterable[tuple[Path, float]]) -> str:
    return ",".join(f"{quote_path(path)}={weight:g}" for path, weight in weights)


MIN_FILE_BYTES: Final = 128
"""The smallest file size that a caller may give: no Parquet file is smaller."""
DEFAULT_STRATEGY: Final = "cube"
OVERLAP: Final = "overlap"
STRATEGY: Final = "strategy"
"""The one setting of a plan that is not a field of the policy."""
PREFIX: Final = "liquidlog."
"""The beginning of the names of our own properties; no other name may begin like that."""
ZORDER_PROPERTY: Final = "liquidlog.zorderBy"
BLOOM_FILTER_PROPERTY: Final = "liquidlog.bloomFilter"
PREFIX_PROPERTY: Final = "liquidlog.prefix"
CURVE_PROPERTY: Final = "liquidlog.curve"
MAX_FILE_SIZE_PROPERTY: Final = "liquidlog.maxFileSize"
TIME_ZONE: Final = "partition_time_zone"
WEIGHTS_PROPERTY: Final = "liquidlog.weights"
WEIGHTS: Final = "weights"
"""The one setting that only a property has: callers give a workload instead."""
_TEXT: Final = Kind(_text)
_SIZE: Final = Kind(lambda given, _: parse_size(given), is_size=True)
_COLUMNS: Final = Kind(lambda given, name: column_paths(given, argument=name), split_names)
FLAG: Final = Kind(
    lambda given, name: one(given, bool, argument=name, expected="True or False"), _flag_text
)
_POSITIVE: Final = Kind(
    lambda given, name: number(given, argument=name) or refuse(name, "a number above 0", given),
    _number_text,
)

_SHARE: Final = Kind(_number_from(0, 1, "between 0 and 1"), _share_text)


def _count_from(least: int) -> Kind:
    return Kind(lambda given, name: whole_number(given, argument=name, least=least), _whole_text)


SETTINGS: Final = (
    Setting("full", FLAG, "also rewrite files of other clustering columns or providers"),
    Setting(
        STRATEGY,
        _TEXT,
        "how files are chosen: cube or overlap; cube by default",
        properties=("liquidlog.strategy",),
    ),
    Setting(
        "curve",
        Kind(_curve),
        "order of rows in a cube: hilbert (default), kd, zorder or linear",
        properties=(CURVE_PROPERTY,),
    ),
    Setting(
        "where",
        _TEXT,
        "overlap: only files that this SQL predicate may match; in a partitioned table, only"
        " partitions that match it",
    ),
    Setting("budget", _SIZE, "overlap: rewrite at most this size"),
    Setting(
        "max_file_size",
        Kind(_file_size, is_size=True),
        "write one file for so much of the input; 1GiB",
        # The latter is of Databricks and delta-rs; Delta Spark keeps it and does nothing with it.
        properties=(MAX_FILE_SIZE_PROPERTY, "delta.targetFileSize"),
    ),
    Setting(
        "zorder_by",
        _COLUMNS,
        "order rows by these columns, a,b, in a table without clustering columns",
        properties=(ZORDER_PROPERTY,),
    ),
    Setting(
        "min_cube_size",
        _SIZE,
        "a cube of this size is stable and left alone; 100GiB",
        properties=("liquidlog.minCubeSize",),
    ),
    Setting(
        "target_cube_size",
        _SIZE,
        "cubes, and groups of zorder_by, are filled to this size; 150GiB",
        properties=("liquidlog.targetCubeSize",),
    ),
    Setting(
        "tolerance",
        Kind(_number_from(1, float("inf"), "at least 1"), _number_text),
        "overlap: rewrite only if queries for one value read more than this many times"
        " the bytes of a full rewrite; 1.27",
        properties=("liquidlog.tolerance",),
    ),
    Setting(
        "min_overlapping_files",
        _count_from(0),
        "overlap: rewrite a full clustered file only if on average this many others"
        " share min_overlap of its range; 4",
    ),
    Setting(
        "min_overlap",
        _SHARE,
        "overlap: the share of a file's range, 0 to 1, that others must cover; 0.75",
    ),
    Setting(
        "skip_clustered",
        FLAG,
        "cube: files that are narrow already keep their bytes and join the cube",
    ),
    Setting(
        "prefix",
        _COLUMNS,
        "clustering columns of few values, a,b: each file holds one value of them, as"
        " far as files keep a quarter of max_file_size",
        properties=(PREFIX_PROPERTY,),
    ),
    Setting(
        "compression",
        Kind(lambda given, name: parse_codec(_text(given, name)).value),
        "codec of the files: zstd (default), snappy, gzip, lz4_raw or uncompressed",
    ),
    Setting(
        "bloom_filter",
        _COLUMNS,
        "write Bloom filters for these columns, a,b",
        properties=(BLOOM_FILTER_PROPERTY,),
    ),
    Setting(
        TIME_ZONE,
        Kind(lambda given, name: zone_named(_text(given, name), name).key),
        "migrate: the zone of timestamps in partition values that name none; UTC",
        properties=("liquidlog.partitionTimeZone",),
    ),
    Setting(
        "row_group_rows",
        _count_from(MIN_ROW_GROUP_ROWS),
        "the most rows of a row group, which takes at most 640 MiB in memory; 8000000",
        properties=("liquidlog.rowGroupRows",),
    ),
    Setting(
        WEIGHTS,
        Kind(lambda given, _: tuple(given), _weights_of),
        "how often queries ask for each clustering column, a=4,b=1",
        properties=(WEIGHTS_PROPERTY,),
    ),
    Setting(
        "final",
        FLAG,
        "overlap: repeat as long as each round lowers the average depth by min_gain",
        stage=Stage.ROUNDS,
    ),
    Setting(
        "min_gain",
        Kind(lambda given, name: number(given, argument=name), _number_text),
        "final: the least amount by which a round lowers the average depth; 0.1",
        stage=Stage.ROUNDS,
    ),
    Setting(
        "read_back",
        FLAG,
        "false: outputs are not read back, and their proof ends before the encoder",
        stage=Stage.RUN,
    ),
    Setting(
        "local_limit",
        _SIZE,
        "the executor local refuses a plan of more input than this",
        stage=Stage.RUN,
    ),
    Setting(
        "groups_per_commit",
        _count_from(1),
        "commit up to this many finished groups as one version; 100 for a compaction, else 1",
        stage=Stage.COMMIT,
    ),
    Setting(
        "max_reconciled_share",
        _SHARE,
        "follow deletions by others up to this share of a group's rows; 20%",
        stage=Stage.COMMIT,
    ),
    Setting(
        "sample",
        FLAG,
        "false: predict from the bounds in the log, and read no rows of some files",
        stage=Stage.JUDGE,
    ),
    Setting(
        "payback_days",
        _POSITIVE,
        "a rewrite is worth it if it pays back within this many days; 30, or 1,000 queries",
        stage=Stage.JUDGE,
    ),
    Setting(
        "queries_per_day",
        _POSITIVE,
        "queries of the table in a day; as the workload records",
        stage=Stage.JUDGE,
    ),
    Setting(
        "reconcile_limit",
        _SIZE,
        "read at most this size per group to find rows that others deleted; 10GiB",
        stage=Stage.COMMIT,
    ),
)
"""All settings of a rewrite, the most used first."""

WITH_OPTION: Final = ("full", "where", "strategy", "budget", "max_file_size", "zorder_by", "curve")
"""The settings of a plan that have an option of their own on the command line."""

NOT_IN_FILES: Final = frozenset(
    {"full", "where", "zorder_by", "prefix", "bloom_filter", "final", "read_back", WEIGHTS}
)
"""The settings that no file of defaults may decide: they are about one command only."""

BY_NAME: Final[Mapping[str, Setting]] = {setting.name: setting for setting in SETTINGS}
REMEMBERED: Final = tuple(setting for setting in SETTINGS if setting.properties)
BY_FIELD: Final[Mapping[str, Setting]] = {setting.field: setting for setting in SETTINGS}
BY_PROPERTY: Final[Mapping[str, Setting]] = {
    name: setting for setting in SETTINGS for name in setting.properties
}

COLUMN_PROPERTIES: Final = (ZORDER_PROPERTY, BLOOM_FILTER_PROPERTY, PREFIX_PROPERTY)
"""The properties that are lists of columns by their logical names, as a,b."""

ANY_CLUSTERING: Final = frozenset(
    {
        *(STRATEGY, "full", "curve", "prefix"),
        *("min_cube_size", "target_cube_size", "max_file_size"),
        *("compression", "bloom_filter", "row_group_rows"),
    }
)
"""The settings that every strategy takes."""

COMPACTION: Final = frozenset({"max_file_size", "compression", "bloom_filter", "row_group_rows"})
"""The settings for joining small files, in tables without clustering columns."""
ZORDER: Final = COMPACTION | {"target_cube_size", "zorder_by"}
"""The settings for ordering the files of such tables."""

PLAN_SETTINGS: Final = frozenset(
    setting.name for setting in SETTINGS if setting.stage is Stage.PLAN and setting.name != WEIGHTS
)

TAKES: Final[Mapping[str, frozenset[str]]] = {
    DEFAULT_STRATEGY: ANY_CLUSTERING | {"skip_clustered"},
    OVERLAP: PLAN_SETTINGS - {"zorder_by", "skip_clustered", TIME_ZONE},
}

_DEFAULTS: Final = ClusteringPolicy()


def check_known(kind: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        listed = ", ".join(sorted(known))
        raise UsageError(f"there is no {kind} {name!r}; known are {listed}", name=name)


def default_of(field: str) -> Any:  # noqa: ANN401  any setting's value
    """Return the value of a field that neither a caller nor a property decides."""
    others = {
        WEIGHTS: (),
        STRATEGY: DEFAULT_STRATEGY,
        TIME_ZONE: READ_AS,
        "row_group_rows": DEFAULT_ROW_GROUP_ROWS,
    }
    return others[field] if field in others else getattr(_DEFAULTS, field) or ()


def policy_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policy's fields that settings of a plan decide; None decides nothing."""
    found = {name: value for name, value in given.items() if value is not None}
    for name in found.keys() - PLAN_SETTINGS:
        near = suggestion(name, sorted(PLAN_SETTINGS), what="settings")
        raise UsageError(f"a plan has no setting {name}{near}", option=name)
    return {BY_NAME[name].field: BY_NAME[name].parsed(value) for name, value in found.items()}


def settings_of(given: Mapping[str, Any]) -> Mapping[Stage, dict[str, Any]]:
    """Return settings that are not None, by stage; those of runs and rounds are parsed."""
    found: dict[Stage, dict[str, Any]] = {stage: {} for stage in Stage}
    for name, value in given.items():
        if name not in BY_NAME or name == WEIGHTS:
            near = suggestion(name, [*BY_NAME], what="settings")
            raise UsageError(f"there is no setting {name!r}{near}", option=name)
        if value is not None:
            setting = BY_NAME[name]
            is_read = setting.stage in {Stage.RUN, Stage.ROUNDS, Stage.JUDGE}
            found[setting.stage][name] = setting.parsed(value) if is_read else value
    return found


def parse_setting(text: str, stages: Collection[Stage]) -> tuple[Setting, Any]:
    """Return the setting in a text like tolerance=1.5, and its value for callers."""
    name, equals, value = text.partition("=")
    name = name.strip().replace("-", "_")
    known = [one.name for one in SETTINGS if one.stage in stages and one.name != WEIGHTS]
    if not equals or name not in known:
        near = suggestion(name, known, what="settings")
        problem = f"there is no setting {name!r} here{near}" if equals else f"{text!r} has no value"
        raise UsageError(f"--set takes NAME=VALUE: {problem}", option="set")
    setting = BY_NAME[name]
    try:
        read = setting.kind.of_text(value.strip())
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}", option=name) from error
    setting.parsed(read)
    return setting, read


def deciding_property(configuration: Mapping[str, str], field: str) -> str | None:
    return next((name for name in BY_FIELD[field].properties if name in configuration), None)


def parse_property(
    name: str, text: str, *, schema: StructType, configuration: Mapping[str, str]
) -> Any:  # noqa: ANN401  any setting's value
    """Return the value of the field that one of BY_PROPERTY decides."""
    setting = BY_PROPERTY[name]
    value = setting.parsed(setting.kind.of_text(text))
    if setting.name == STRATEGY:
        check_known(STRATEGY, value, tuple(TAKES))
    elif setting.name == "bloom_filter":
        filtered_leaves(schema, value)
    elif setting.name == "prefix":
        _require_columns(schema, value)
    elif setting.name == WEIGHTS:
        _require_columns(schema, [path for path, _ in value])
    elif setting.name == "zorder_by":
        resolve_columns(schema, value, configuration=configuration, limit=len(value))
    return value


def _require_columns(schema: StructType, paths: Sequence[Path]) -> None:
    unknown = [quote_path(path) for path in paths if find_column(schema, path) is None]
    problems = [*unknown_columns(unknown, schema)]
    if len({tuple(map(str.casefold, path)) for path in paths}) < len(paths):
        problems.append("a column is named twice; name each once")
    if problems:
        raise UsageError("; ".join(problems))


def wrong_value(
    name: str, text: str, *, schema: StructType, configuration: Mapping[str, str]
) -> str | None:
    """Return what is wrong with a property's value, None if it can be used."""
    try:
        parse_property(name, text, schema=schema, configuration=configuration)
    except UsageError as error:
        return error.message
    return None


def wrong_values(snapshot: Snapshot) -> Mapping[str, str]:
    """Return what is wrong with a table's properties, by their names."""
    schema, texts = snapshot.schema, snapshot.metadata.configuration
    found: dict[str, str] = {}
    for name in (known for known in BY_PROPERTY if known in texts):
        problem = wrong_value(name, texts[name], schema=schema, configuration=texts)
        if problem is not None:
            found[name] = problem
    return found


@contextmanager
def _blaming(snapshot: Snapshot, name: str) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        value = snapshot.metadata.configuration[name]
        removing = text.alter(snapshot.uri, text.unset_properties([name]))
        raise UsageError(
            f"the table's property {name} cannot be {value!r}: {error.message}; set another value,"
            f" or remove it with {removing}",
            property=name,
            value=value,
        ) from error


def remembered(snapshot: Snapshot, field: str) -> Any:  # noqa: ANN401  any setting's value
    """Return what a table remembers of a field, its default if there is no property."""
    configuration = snapshot.metadata.configuration
    name = deciding_property(configuration, field)
    if name is None:
        return default_of(field)
    with _blaming(snapshot, name):
        text, schema = configuration[name], snapshot.schema
        return parse_property(name, text, schema=schema, configuration=configuration)


def remembered_among(snapshot: Snapshot, fields: Collection[str]) -> Mapping[str, Any]:
    """Return the fields that properties of a table decide, with their values."""
    texts = snapshot.metadata.configuration
    return {
        field: remembered(snapshot, field) for field in fields if deciding_property(texts, field)
    }


def remembered_if_right(snapshot: Snapshot, field: str) -> Any:  # noqa: ANN401  any setting's value
    """Return what a table remembers of a field, its default if the property is wrong."""
    try:
        return remembered(snapshot, field)
    except UsageError:
        return default_of(field)


def remembered_readers(snapshot: Snapshot) -> FittedWorkload | None:
    """Return the queries of the property for weights, None without it or clustering columns."""
    columns = clustering_state(snapshot).columns
    if not columns or WEIGHTS_PROPERTY not in snapshot.metadata.configuration:
        return None
    weights = remembered(snapshot, WEIGHTS)
    with _blaming(snapshot, WEIGHTS_PROPERTY):
        names = prefix_among([path for path, _ in weights], columns, option=WEIGHTS)
    by_name = dict(zip(names, (weight for _, weight in weights), strict=True))
    return weighted_columns([by_name.get(column.logical, 0.0) for column in columns])


def weights_in(configuration: Mapping[str, str]) -> tuple[tuple[Path, float], ...]:
    """Return the columns with weights that a table remembers, none if the property is wrong."""
    try:
        return _weights_of(configuration.get(WEIGHTS_PROPERTY, ""))
    except UsageError:
        return ()


def columns_of(text: str) -> tuple[Path, ...]:
    """Return the columns that a value of COLUMN_PROPERTIES lists, none if it is no list."""
    try:
        return split_paths(text)
    except UsageError:
        return ()


def is_unknown(name: str) -> bool:
    return name.lower().startswith(PREFIX) and name not in BY_PROPERTY


def unknown_text(name: str) -> str:
    """Return the clause about an unknown property, with similar names if there are any."""
    known = {one.removeprefix(PREFIX): one for one in BY_PROPERTY}
    near = near_names(name[len(PREFIX) :], known)
    hint = f" (did you mean {' or '.join(known[one] for one in near)}?)" if near else ""
    return f"{name} is not a property that this release of liquidlog knows{hint}"


def notes(configuration: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each property of the table that looks like ours and has no effect."""
    return tuple(
        f"the table's property {unknown_text(name)}; it has no effect"
        for name in configuration
        if is_unknown(name)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """The fields of a policy that do not have their defaults, and who decided them.

    `decided_by` maps each to OPTION or to a property. `named` are the caller's settings.
    """

    strategy: str
    settings: Mapping[str, Any]
    named: frozenset[str]
    decided_by: Mapping[str, str]


def settle(snapshot: Snapshot, given: Mapping[str, Any]) -> Settled:
    """Return the settings of a plan: the caller's, then the table's properties, then defaults."""
    configuration = snapshot.metadata.configuration
    columns = clustering_state(snapshot).columns
    found, decided_by = dict(given), dict.fromkeys(given, OPTION)

    def remember(field: str) -> None:
        name = None if field in found else deciding_property(configuration, field)
        if name is not None:
            found[field] = remembered(snapshot, field)
            decided_by[field] = name

    remember(STRATEGY if columns else "zorder_by")
    strategy = found.get(STRATEGY, DEFAULT_STRATEGY)
    if columns:
        takes = TAKES.get(strategy, ANY_CLUSTERING) - ({"curve"} if len(columns) == 1 else set())
    else:
        takes = ZORDER if found.get("zorder_by") else COMPACTION
    for setting in REMEMBERED:
        if setting.name in takes:
            remember(setting.field)
    if decided_by.get("prefix") == PREFIX_PROPERTY:
        with _blaming(snapshot, PREFIX_PROPERTY):
            found["prefix"] = prefix_among(found["prefix"], columns)
    if "compression" not in found and CODEC_PROPERTY in configuration:
        decided_by["compression"] = CODEC_PROPERTY
    found.pop(STRATEGY, None)
    named = frozenset(BY_FIELD[field].name for field in given)
    return Settled(strategy=strategy, settings=found, named=named, decided_by=decided_by)


def require_effect(
    policy: ClusteringPolicy,
    columns: tuple[ClusteringColumn, ...],
    *,
    named: Collection[str],
    strategy: str,
    decided_by: Mapping[str, str],
    is_partitioned: bool,
) -> None:
    """Refuse settings that are `named` or not default, and have no effect with these columns."""
    taken = COMPACTION | ({"where"} if is_partitioned else set())
    if policy.zorder_by:
        taken |= ZORDER
        by = decided_by.get("zorder_by", OPTION)
        source = "zorder_by" if by == OPTION else f"the table's property {by}"
        reason = f"with {source}, which orders all files by these columns"
    elif is_partitioned:
        reason = (
            "on a partitioned table, which has no clustering columns and whose small files are"
            " joined inside partitions; order them with zorder_by"
        )
    elif not columns:
        reason = (
            "on a table without clustering columns, whose small files are only joined;"
            " set some with cluster-by"
        )
    else:
        taken, reason = TAKES[strategy], f"with the strategy {strategy}"
        if strategy == DEFAULT_STRATEGY:
            reason += ", which takes whole cubes; use the strategy overlap"
        else:
            reason += " on a table with clustering columns"
        by = decided_by.get(STRATEGY, OPTION)
        reason += "" if by == OPTION else f"; {strategy} is the table's property {by}"
    changed = (f for f in BY_FIELD if getattr(policy, f, None) != getattr(_DEFAULTS, f, None))
    given = {*named, *(BY_FIELD[field].name for field in changed)}
    listed = sorted(given - taken)
    if listed:
        verb = "has" if len(listed) == 1 else "have"
        raise UsageError(f"{', '.join(listed)} {verb} no effect {reason}", option=listed[0])
    if columns and not policy.zorder_by:
        _require_effect_of_values(named, policy, columns)


def _require_effect_of_values(
    named: Collection[str], policy: ClusteringPolicy, columns: tuple[ClusteringColumn, ...]
) -> None:
    if "curve" in named and len(columns) == 1:
        raise UsageError(
            f"curve has no effect on a table clustered by one column, {columns[0].name}: one column"
            " is always in linear order",
            option="curve",
        )
    target, least = policy.target_cube_bytes, policy.min_cube_bytes
    if "target_cube_size" in named and target < least:
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
    """Return the named clustering columns in the table's spelling."""
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
