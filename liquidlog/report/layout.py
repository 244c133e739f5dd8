"""The parts of a report: lines, tables and bars of text, which `printing` makes safe to show."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from liquidlog.spec.text import render_size

if TYPE_CHECKING:
    from liquidlog.foresee.reads import Range
    from liquidlog.foresee.verdict import Verdict
    from liquidlog.predicates.workload import NotUsable

LEVELS: Final = 8
"""The number of heights of a bar above zero."""

_SHOWN: Final = 10
"""The most predicates to name."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of text; `answer` colours the verdict that begins it."""

    text: str
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """A row of bars, 0 to LEVELS high."""

    heights: tuple[int, ...]


Cell: TypeAlias = str | Bars | Line


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of cells, with a heading if it has names; a terminal never folds `whole` columns."""

    names: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    whole: frozenset[str] = frozenset()


Part: TypeAlias = Line | Bars | Grid
Report: TypeAlias = tuple[Part, ...]


def listing(names: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[Grid]:
    """Yield a table of the rows, if there are any."""
    held = tuple(rows)
    if held:
        yield Grid(tuple(names), held)


def pairs(row: Mapping[str, Any]) -> Report:
    """Return a mapping as a table of names and values."""
    return (Grid((), tuple((name, cell(name, value)) for name, value in row.items())),)


def mappings(rows: Sequence[Mapping[str, Any]]) -> Grid:
    """Return mappings with the same keys as a table."""
    return Grid(
        tuple(rows[0]),
        tuple(tuple(cell(name, value) for name, value in row.items()) for row in rows),
    )


def cell(name: str, value: Any) -> str:  # noqa: ANN401  any field
    """Return a field's value as people read it."""
    if isinstance(value, int) and not isinstance(value, bool) and "bytes" in name.lower():
        return f"{value} ({render_size(value)})"
    if isinstance(value, Mapping):
        return flat(value)
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return "" if value is None else str(value)


def size(size_bytes: float) -> str:
    """Return bytes, also of a mean, as people read them."""
    return render_size(round(size_bytes))


def between(ends: "Range", told: Callable[[float], str]) -> str:
    """Return both ends of a range, or one if their texts are the same."""
    low, high = told(ends.low), told(ends.high)
    return low if low == high else f"{low} to {high}"


def shortened(text: str, most: int) -> str:
    """Return a text as one line, cut to so many characters and dots."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[:most]}..."


def flat(values: Mapping[str, Any]) -> str:
    """Return a mapping as one line."""
    return ", ".join(
        f"{key}({flat(value)})" if isinstance(value, Mapping) else f"{key}={value}"
        for key, value in values.items()
    )


def number(value: int | None) -> str:
    """Return a count as text, empty if it is unknown."""
    return "" if value is None else str(value)


def amount(value: float) -> str:
    """Return a mean count with at most one decimal digit."""
    return f"{value:.1f}".removesuffix(".0")


def share(part: float, whole: float) -> str:
    """Return a part of a whole in percent."""
    return f"{part / whole:.1%}" if whole else "0.0%"


def verdict(found: "Verdict | None", steps: Sequence[str] = ()) -> Report:
    """Show a verdict, and its command or steps."""
    if found is None:
        return ()
    commands = steps or ([found.best.command] if found.best and found.best.command else [])
    return (Line(found.sentence, found.answer), *(Line(f"    {command}") for command in commands))


def remarks(
    cannot_prune: Sequence[str], not_usable: "Sequence[NotUsable]", asked_at: str | None
) -> Report:
    """Show which predicates cannot prune or were left out, and their current time."""
    shown = "; ".join(cannot_prune[:_SHOWN])
    more = len(cannot_prune) - _SHOWN
    lines = [f"the current time in predicates is {asked_at}"] if asked_at else []
    if cannot_prune:
        lines.append(f"cannot prune by: {shown}" + (f"; and {more} more" if more > 0 else ""))
    if not_usable:
        lines.append(f"not usable as conditions on this table, left out: {len(not_usable)}")
    refused = ((one.where, one.reason) for one in not_usable[:_SHOWN])
    return (*(Line(text) for text in lines), *listing(("left out", "because"), refused))
