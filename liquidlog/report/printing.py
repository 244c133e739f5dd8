"""Print reports on a terminal or for a program; no other module prints.

Text is never markup. Hidden and control characters become visible; characters that the stream
cannot encode become escapes. Only a terminal gets colours (unless NO_COLOR is set), folded columns
and cut listings. For a program, each row is one line.
"""

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias

from liquidlog.spec.text import render_size, visible, visible_json, visible_lines

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from liquidlog.foresee.verdict import Range, Verdict
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
    """A table of cells, with headings if it has names."""

    names: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]


Part: TypeAlias = Line | Bars | Grid
Report: TypeAlias = tuple[Part, ...]


def listing(names: Sequence[str], rows: Iterable[Iterable[object]]) -> Iterator[Grid]:
    """Yield a table of the rows, if there are any."""
    held = tuple(
        tuple(one if isinstance(one, str | Bars | Line) else cell("", one) for one in row)
        for row in rows
    )
    if held:
        yield Grid(tuple(names), held)


def pairs(row: Mapping[str, Any]) -> Report:
    return (Grid((), tuple((name, cell(name, value)) for name, value in row.items())),)


def cell(name: str, value: Any) -> str:  # noqa: ANN401  any field
    """Return a field's value as people read it."""
    if isinstance(value, int) and not isinstance(value, bool) and "bytes" in name.lower():
        return f"{value} ({render_size(value)})"
    if isinstance(value, Mapping):
        return flat(value)
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return "" if value is None else str(value)


def between(ends: "Range", text_of: Callable[[float], str]) -> str:
    """Return both ends of a range, or one text if they are equal."""
    low, high = text_of(ends.low), text_of(ends.high)
    return low if low == high else f"{low} to {high}"


def shortened(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def flat(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key}({flat(value)})" if isinstance(value, Mapping) else f"{key}={value}"
        for key, value in values.items()
    )


def verdict(found: "Verdict | None", steps: Sequence[str] = ()) -> Report:
    if found is None:
        return ()
    commands = steps or ([found.best.command] if found.best and found.best.command else [])
    return (Line(found.sentence, found.answer), *(Line(f"    {command}") for command in commands))


def remarks(
    cannot_prune: Sequence[str], not_usable: "Sequence[NotUsable]", asked_at: str | None
) -> Report:
    """Show which predicates cannot prune, which were left out, and their current time."""
    more = len(cannot_prune) - _SHOWN
    shown = [*cannot_prune[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]
    lines = [f"the current time in predicates is {asked_at}"] if asked_at else []
    if cannot_prune:
        lines.append(f"cannot prune by: {'; '.join(shown)}")
    if not_usable:
        lines.append(f"predicates left out, not usable on this table: {len(not_usable)}")
    refused = ((one.where, one.reason) for one in not_usable[:_SHOWN])
    return (*(Line(text) for text in lines), *listing(("left out", "because"), refused))


_BLOCKS: Final = " ▁▂▃▄▅▆▇█"  # one for each height: LEVELS + 1 of them
_ASCII_BLOCKS: Final = " .:-=+*%#"

_STYLES: Final = {
    "rewrite": "bold cyan",
    "cluster": "bold cyan",
    "leave": "green",
    "unknown": "yellow",
    "fail": "bold red",
}
"""The colours of answers."""

_FEWEST_ROWS: Final = 10
_FOLDED_ROWS: Final = 2_000
"""Longer tables are not folded on a terminal, since folding measures every cell."""

_WIDEST: Final = 120
"""A longer cell widens only its own row."""


def show(
    report: Report, stream: TextIO | None = None, *, terminal: bool | None = None, cut: bool = False
) -> None:
    """Print a report on a stream or stdout; on a terminal, listings may be `cut` to a screen."""
    out = sys.stdout if stream is None else stream
    glyphs = _BLOCKS if _can_encode(_BLOCKS, out) else _ASCII_BLOCKS
    if not (out.isatty() if terminal is None else terminal):
        for part in report:
            out.writelines(f"{_encodable(line, out)}\n" for line in _plain(part, glyphs))
        out.flush()
        return
    from rich.console import Console

    console = Console(file=out, force_terminal=True, highlight=False, markup=False, emoji=False)
    for part in _first_screen(report) if cut else report:
        if isinstance(part, Grid) and len(part.rows) > _FOLDED_ROWS:
            out.writelines(f"{_encodable(line, out)}\n" for line in _plain(part, glyphs))
        elif isinstance(part, Grid):
            console.print(_table(part, out, glyphs))
        else:
            shown = part if isinstance(part, Line) else Line(next(_plain(part, glyphs)))
            console.print(_text(shown, out, glyphs))


def _first_screen(report: Report) -> Iterator[Part]:
    """Yield a report with cut listings; of many lines, two per line of the screen, and the last."""
    size = shutil.get_terminal_size()
    most = max(_FEWEST_ROWS, size.lines - 6)  # other lines are around a listing
    for kind, run in groupby(report, type):
        parts = tuple(run)
        if kind is Line and len(parts) > 2 * most + 1:
            more = len(parts) - 2 * most - 1
            yield from (*parts[: 2 * most], Line(f"… and {more} more lines (--all)"), parts[-1])
            continue
        for part in parts:
            count = _fitting(part, most, size.columns) if isinstance(part, Grid) else 0
            if not isinstance(part, Grid) or not part.names or len(part.rows) <= count:
                yield part
                continue
            yield Grid(part.names, part.rows[:count])
            yield Line(f"… and {len(part.rows) - count} more (--all)")


def _fitting(grid: Grid, most: int, width: int) -> int:
    """Return how many rows, at least three, take about `most` lines of this width."""
    lines = 0
    for number, row in enumerate(grid.rows):
        lines += -(-sum(len(_written(cell, _BLOCKS)) + 2 for cell in row) // max(width, 1))
        if lines > most:
            return max(number, 3)
    return len(grid.rows)


def show_json(document: str, stream: TextIO | None = None) -> None:
    """Print a JSON document, in ASCII if the stream cannot encode it."""
    out = sys.stdout if stream is None else stream
    shown = visible_json(document)
    out.write((shown if _can_encode(shown, out) else visible_json(shown, ascii_only=True)) + "\n")
    out.flush()


def say(text: str, *, lines: bool = False) -> None:
    """Print a message on stderr, as one line or as indented `lines`; ignore a closed stderr."""
    shown = visible_lines(text) if lines else visible(text)
    with suppress(OSError):
        sys.stderr.write(_encodable(shown, sys.stderr) + "\n")
        sys.stderr.flush()


def _text(cell: Cell, out: TextIO, glyphs: str) -> "Text":
    """Return a cell for a terminal; colours a verdict up to its colon."""
    from rich.text import Text

    text = Text(_encodable(_written(cell, glyphs), out))
    if isinstance(cell, Line) and cell.answer is not None:
        head = text.plain.partition(":")[0]
        text.stylize(_STYLES[cell.answer], 0, len(head))
    return text


def _table(grid: Grid, out: TextIO, glyphs: str) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", show_header=bool(grid.names))
    for name in grid.names:
        table.add_column(Text(_encodable(visible(name), out)), overflow="fold")
    for row in grid.rows:
        table.add_row(*(_text(cell, out, glyphs) for cell in row))
    return table


def _plain(part: Part, glyphs: str) -> Iterator[str]:
    match part:
        case Line():
            yield _written(part, glyphs)
        case Bars():
            yield f"|{_written(part, glyphs)}|"
        case Grid():
            rows = [part.names] if part.names else []
            yield from _aligned([*rows, *part.rows], glyphs)


def _aligned(rows: Iterable[Sequence[Cell]], glyphs: str) -> Iterator[str]:
    written = [[_written(cell, glyphs) for cell in row] for row in rows]
    widths = [0] * max(map(len, written), default=0)
    for cells in written:
        for place, cell in enumerate(cells):
            width = _width(cell)
            if widths[place] < width <= _WIDEST:
                widths[place] = width
    for cells in written:
        while cells and not cells[-1]:
            cells.pop()
        padded = [cell + " " * (widths[n] - _width(cell)) for n, cell in enumerate(cells[:-1])]
        yield " " + "  ".join([*padded, *cells[-1:]])


def _width(cell: str) -> int:
    if cell.isascii():
        return len(cell)
    from rich.cells import cell_len

    return cell_len(cell)


def _written(cell: Cell, glyphs: str) -> str:
    if isinstance(cell, Bars):
        return "".join(glyphs[height] for height in cell.heights)
    return visible(cell.text if isinstance(cell, Line) else cell)


def _can_encode(text: str, out: TextIO) -> bool:
    try:
        text.encode(out.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _encodable(text: str, out: TextIO) -> str:
    if _can_encode(text, out):
        return text
    encoding = out.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
