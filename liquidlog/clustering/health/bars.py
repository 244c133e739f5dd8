"""Bars for health, such as `average_depth > 8`, for scripts that watch a table."""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from liquidlog.clustering.health.measure import ColumnHealth, Health
from liquidlog.errors import UsageError
from liquidlog.spec.near import suggestion
from liquidlog.spec.schema import quote_path, split_path

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
class Bar:
    """A comparison of one number of Health with a limit; if it holds, the bar is crossed."""

    text: str
    name: str
    compare: Callable[[float, float], bool]
    limit: float


def parse_bar(text: str) -> Bar:
    """Return the bar in `NAME OPERATOR NUMBER`; operators are < <= > >= = == !=.

    NAME is a numeric field of Health, or `COLUMN.FIELD` for a field of one clustering column.

    Raises:
        UsageError: If the text does not have that form, or Health has no such number.
    """
    match = _BAR.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a bar; write it like average_depth>8", bar=text)
    name = match["name"]
    last = name.rpartition(".")
    known = _numbers(ColumnHealth) if last[1] else _numbers(Health)
    if last[2] not in known:
        hint = suggestion(last[2], known, what="numbers")
        raise UsageError(f"health has no number {name!r}{hint}", bar=text)
    try:
        limit = float(match["value"])
    except ValueError:
        raise UsageError(f"{match['value']!r} in {text!r} is not a number", bar=text) from None
    if not math.isfinite(limit):
        raise UsageError(f"{text!r} is never or always true; give a finite number", bar=text)
    return Bar(text=text, name=name, compare=_OPERATORS[match["op"]], limit=limit)


def is_crossed(bar: Bar, health: Health) -> bool:
    """Return whether the health crosses the bar.

    Raises:
        UsageError: If the bar names a column that the health was not measured by.
    """
    return bar.compare(_value(bar, health), bar.limit)


def _value(bar: Bar, health: Health) -> float:
    column, _, number = bar.name.rpartition(".")
    if not column:
        return float(getattr(health, number))
    wanted = quote_path(split_path(column)).lower()
    for found in health.columns:
        if found.name.lower() == wanted:
            return float(getattr(found, number))
    listed = ", ".join(known.name for known in health.columns) or "none"
    raise UsageError(f"health was not measured by the column {column}; its columns are {listed}")


def _numbers(of: type[Health] | type[ColumnHealth]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(of) if field.type in {int, float})
