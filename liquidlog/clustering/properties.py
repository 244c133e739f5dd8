"""The properties by which a table remembers its layout, and the settings of a plan they stand for.

Any engine can set them, to any text: `planning.remembered` checks what they say.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from liquidlog.errors import UsageError
from liquidlog.plan import ClusteringPolicy
from liquidlog.spec.near import near_names
from liquidlog.spec.schema import Path, quote_path, split_paths

PREFIX: Final = "liquidlog."
"""The beginning of the names of our own properties; no other name may begin like that."""

DEFAULT_STRATEGY: Final = "cube"

ZORDER_PROPERTY: Final = "liquidlog.zorderBy"
BLOOM_FILTER_PROPERTY: Final = "liquidlog.bloomFilter"
PREFIX_PROPERTY: Final = "liquidlog.prefix"
WEIGHTS_PROPERTY: Final = "liquidlog.weights"
WEIGHTS: Final = "weights"
"""The one setting without an option: a workload takes its place."""
_WEIGHT: Final = re.compile(r"((?:`[^`]*`|[^,=`])+)=([^,=]+)(?:,(?=[^,])|$)")
TARGET_FILE_SIZE: Final = "delta.targetFileSize"
"""A property of Databricks and delta-rs. Delta Spark keeps it and does nothing with it."""

StrategyNames = Callable[[], Collection[str]]
"""Returns the names of the strategies that there are; called only if a property names one."""


def built_in() -> Collection[str]:
    """Return the names of the strategies that need no installation."""
    return (DEFAULT_STRATEGY, "overlap")


@dataclass(frozen=True, slots=True)
class LayoutProperty:
    """A table property that stands for an option.

    `setting` is the field of the policy, or "strategy"; `argument` the option's name as callers
    write it. `read` turns the property's text into the option's value, whose own parser then checks
    it.
    """

    name: str
    setting: str
    argument: str
    read: Callable[[str], Any] = str


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a number") from None


def _names(text: str) -> tuple[str, ...]:
    names = tuple(quote_path(path) for path in split_paths(text))
    if not names:
        raise UsageError("a list of columns is needed, as a,b")
    return names


def weights_of(text: str) -> tuple[tuple[Path, float], ...]:
    """Return the columns that a text like a=4,b=1 names, each with its weight."""
    found = []
    for name, number in _WEIGHT.findall(text):
        (path,) = split_paths(name)
        found.append((path, _number(number)))
    if not found or _WEIGHT.sub("", text).strip():
        raise UsageError(f"{text!r} is no list of columns with weights, as a=4,b=1")
    if not all(0 <= weight < float("inf") for _, weight in found) or not any(
        weight for _, weight in found
    ):
        raise UsageError("weights must be numbers from 0, not all of them 0")
    return tuple(found)


def weights_text(weights: Iterable[tuple[Path, float]]) -> str:
    """Return columns with weights as text; inverse: `weights_of`."""
    return ",".join(f"{quote_path(path)}={weight:g}" for path, weight in weights)


LAYOUT_PROPERTIES: Final = (
    LayoutProperty("liquidlog.strategy", "strategy", "strategy"),
    LayoutProperty("liquidlog.curve", "curve", "curve"),
    LayoutProperty("liquidlog.minCubeSize", "min_cube_bytes", "min_cube_size"),
    LayoutProperty("liquidlog.targetCubeSize", "target_cube_bytes", "target_cube_size"),
    LayoutProperty("liquidlog.maxFileSize", "max_file_bytes", "max_file_size"),
    LayoutProperty(TARGET_FILE_SIZE, "max_file_bytes", "max_file_size"),
    LayoutProperty("liquidlog.tolerance", "tolerance", "tolerance", _number),
    LayoutProperty(ZORDER_PROPERTY, "zorder_by", "zorder_by", _names),
    LayoutProperty(PREFIX_PROPERTY, "prefix", "prefix", _names),
    LayoutProperty(WEIGHTS_PROPERTY, WEIGHTS, WEIGHTS, weights_of),
    LayoutProperty(BLOOM_FILTER_PROPERTY, "bloom_filter", "bloom_filter", _names),
)
"""All of them. Of several for one option, the first that a table has decides."""

COLUMN_PROPERTIES: Final = (ZORDER_PROPERTY, BLOOM_FILTER_PROPERTY, PREFIX_PROPERTY)
"""Those whose values are lists of columns by their logical names, as a,b."""

SETTINGS: Final = tuple(dict.fromkeys(known.setting for known in LAYOUT_PROPERTIES))
"""The settings that a table can remember, each once."""

BY_NAME: Final[Mapping[str, LayoutProperty]] = {known.name: known for known in LAYOUT_PROPERTIES}

_DEFAULTS: Final = ClusteringPolicy()


def default_of(setting: str) -> Any:  # noqa: ANN401  any setting's value
    """Return the value that a setting has without an option and a property."""
    if setting == WEIGHTS:
        return ()
    return DEFAULT_STRATEGY if setting == "strategy" else getattr(_DEFAULTS, setting) or ()


def deciding_property(configuration: Mapping[str, str], setting: str) -> str | None:
    """Return the name of the property that decides a setting of a table, None if none does."""
    return next(
        (
            known.name
            for known in LAYOUT_PROPERTIES
            if known.setting == setting and known.name in configuration
        ),
        None,
    )


def is_unknown(name: str) -> bool:
    """Return whether a property has a name of ours that this release does not know."""
    return name.lower().startswith(PREFIX) and name not in BY_NAME


def unknown_names(configuration: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names among a table's properties that look like ours and are not known."""
    return tuple(name for name in configuration if is_unknown(name))


def unknown_text(name: str) -> str:
    """Return the clause that a property is not known; it has similar names, if there are any."""
    known = {one.name.removeprefix(PREFIX): one.name for one in LAYOUT_PROPERTIES}
    near = near_names(name[len(PREFIX) :], known)
    hint = f" (did you mean {' or '.join(known[one] for one in near)}?)" if near else ""
    return f"{name} is not a property that this release of liquidlog knows{hint}"


def notes(configuration: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each property of the table that looks like ours and has no effect."""
    return tuple(
        f"the table's property {unknown_text(name)}; it has no effect"
        for name in unknown_names(configuration)
    )


def weights_in(configuration: Mapping[str, str]) -> tuple[tuple[Path, float], ...]:
    """Return the columns with weights that a table remembers, none if the property is wrong."""
    try:
        return weights_of(configuration.get(WEIGHTS_PROPERTY, ""))
    except UsageError:
        return ()


def columns_of(text: str) -> tuple[Path, ...]:
    """Return the columns that a value of COLUMN_PROPERTIES lists, none if it is no list."""
    try:
        return split_paths(text)
    except UsageError:
        return ()
