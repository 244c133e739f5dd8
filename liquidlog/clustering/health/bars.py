"""Bars for health, such as `read_ratio > 1.5`, for scripts that watch a table."""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from liquidlog.clustering.health.measure import ColumnHealth, Health, numeric_fields
from liquidlog.errors import UsageError
from liquidlog.spec.schema import quote_path, split_path
from liquidlog.spec.text import suggestion

_BAR: Final = re.compile(r"\s*(?P<name>.+?)\s*(?P<op><=|>=|==|!=|=|<|>)\s*(?P<value>\S+)\s*")
_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthBar:
    """A comparison of one number of Health with a limit; if it holds, the bar is crossed."""

    text: str
    name: str
    compare: Callable[[float, float], bool]
    limit: float


def parse_bar(text: str) -> HealthBar:
    """Return the bar in `NAME OPERATOR NUMBER`; operators are < <= > >= = == !=.

    NAME is a numeric field of Health, or `COLUMN.FIELD` for a field of one clustering column.
    """
    match = _BAR.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a bar; write it like read_ratio>1.5", bar=text)
    name = match["name"]
    last = name.rpartition(".")
    known = numeric_fields(ColumnHealth if last[1] else Health)
    if last[2] not in known:
        hint = suggestion(last[2], known, what="numbers")
        raise UsageError(f"health has no number {name!r}{hint}", bar=text)
    try:
        limit = float(match["value"])
    except ValueError:
        raise UsageError(f"{match['value']!r} in {text!r} is not a number", bar=text) from None
    if not math.isfinite(limit):
        raise UsageError(f"{text!r} is never or always true; give a finite number", bar=text)
    return HealthBar(text=text, name=name, compare=_OPERATORS[match["op"]], limit=limit)


def is_crossed(bar: HealthBar, health: Health) -> bool:
    """Return whether the health crosses the bar."""
    return bar.compare(require_measured(bar, health), bar.limit)


def require_measured(bar: HealthBar, health: Health) -> float:
    """Return the number that the bar is about."""
    value = _value(bar, health)
    if value is None:
        raise UsageError(
            f"{bar.name} is not measured, so the bar {bar.text!r} says nothing: {_why(health)}",
            bar=bar.text,
        )
    return value


def is_measured(bar: HealthBar, health: Health) -> bool:
    """Return whether the health has the number that the bar is about."""
    return _value(bar, health) is not None


def _why(health: Health) -> str:
    if not health.cluster_by_keys:
        return (
            "the table has no clustering columns; name columns with --columns, or give what its"
            " readers ask with --workload"
        )
    if not health.total_file_count:
        return "there are no files"
    if health.files_with_stats < health.total_file_count:
        return (
            f"{health.total_file_count - health.files_with_stats} of {health.total_file_count}"
            " files have no range of these columns; doctor --fix missing-statistics computes those"
            " of clustering columns"
        )
    return "; ".join(health.notes) or "no file is in a cube"


def _value(bar: HealthBar, health: Health) -> float | None:
    column, _, number = bar.name.rpartition(".")
    if not column:
        return _number(getattr(health, number))
    wanted = quote_path(split_path(column)).lower()
    for found in health.columns:
        if found.name.lower() == wanted:
            return _number(getattr(found, number))
    listed = ", ".join(known.name for known in health.columns) or "none"
    raise UsageError(f"health was not measured by the column {column}; its columns are {listed}")


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)
