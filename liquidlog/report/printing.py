"""Print reports on a terminal or for a program; no other module does.

Text is never markup. Hidden and control characters become visible, and characters that the stream
cannot encode become escapes. Only a terminal gets colours (none if NO_COLOR is set), folded columns
and cut listings; elsewhere each row is one line.
"""

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Final, TextIO

from liquidlog.report.layout import Bars, Cell, Grid, Line, Part, Report
from liquidlog.spec.text import visible, visible_json, visible_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"  # one for each height: LEVELS + 1 of them
_ASCII_BLOCKS: Final = " .:-=+*%#"

_STYLES: Final = {
    "rewrite": "bold cyan",
    "cluster": "bold cyan",
    "leave": "green",
    "unknown": "yellow",
    "fail": "bold red",
}
"""The colours of verdicts, by their answers."""

_FEWEST_ROWS: Final = 10
_FEWEST_FOLDED: Final = 3
_OTHER_LINES: Final = 6
"""Lines of a screen that no listing takes."""

_FOLDED_ROWS: Final = 2_000
"""A terminal gets a longer table row by row too, since folding measures every cell."""

_WIDEST: Final = 120
"""A longer cell widens only its own row, not a million rows."""


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
        _show_folded(console, part, out, glyphs)


def _first_screen(report: Report) -> Iterator[Part]:
    """Yield a report with listings cut to a screen, and how many rows each lacks.

    A long run of lines keeps two per line of a screen, and its last.
    """
    size = shutil.get_terminal_size()
    most = max(_FEWEST_ROWS, size.lines - _OTHER_LINES)
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
            yield Grid(part.names, part.rows[:count], part.whole)
            yield Line(f"… and {len(part.rows) - count} more (--all)")


def _fitting(grid: Grid, most: int, width: int) -> int:
    """Return how many rows, three at least, take about `most` lines of this width."""
    lines = 0
    for number, row in enumerate(grid.rows):
        lines += -(-sum(len(_written(cell, _BLOCKS)) + 2 for cell in row) // max(width, 1))
        if lines > most:
            return max(number, _FEWEST_FOLDED)
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


def _show_folded(console: "Console", part: Part, out: TextIO, glyphs: str) -> None:
    if isinstance(part, Grid) and len(part.rows) <= _FOLDED_ROWS:
        console.print(_table(part, out, glyphs))
    elif isinstance(part, Grid):
        out.writelines(f"{_encodable(line, out)}\n" for line in _plain(part, glyphs))
    else:
        shown = part if isinstance(part, Line) else Line(next(_plain(part, glyphs)))
        console.print(_text(shown, out, glyphs))


def _text(cell: Cell, out: TextIO, glyphs: str) -> "Text":
    """Return a cell for a terminal; a verdict is coloured up to its colon."""
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
        title = Text(_encodable(visible(name), out))
        table.add_column(title, overflow="fold", no_wrap=name in grid.whole)
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
        last = len(cells) - 1
        yield " " + "  ".join(
            cell if place == last else cell + " " * (widths[place] - _width(cell))
            for place, cell in enumerate(cells)
        )


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
