"""What a pipe gets is whole, one line per row; what a stream cannot write is an escape."""

import io
import json

import pytest

from liquidlog.report.jsonable import render_json, render_line
from liquidlog.report.printing import LEVELS, Bars, Grid, Line, show, show_json

LONG = "part-" + "x y" * 200 + "-end.parquet"


def printed(
    *parts: Line | Bars | Grid, terminal: bool = False, encoding: str = "utf-8", cut: bool = False
) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True, newline="")
    show(parts, stream, terminal=terminal, cut=cut)
    stream.seek(0)
    return stream.read()


def test_a_pipe_gets_each_row_in_one_line_with_columns_aligned() -> None:
    rows = ((LONG, "1"), ("短い", "22"), ("", "333"), ("b", ""))
    lines = printed(Grid(("path", "rows"), rows), Line(LONG)).splitlines()
    assert lines[1] == f" {LONG}  1"
    assert lines[2].endswith("  22")
    assert lines[4] == " b"
    assert lines[0].index("rows") == lines[3].index("333") == lines[2].index("22") + 2
    assert lines[-1] == LONG
    lines = printed(Grid(("path", "rows"), ((LONG, "1"), ("a", "2")))).splitlines()
    assert len(lines[2]) < 200 < len(lines[1])


def test_a_terminal_folds_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    path = "x" * 300
    text = printed(Grid(("path", "n"), ((path, "1"),)), terminal=True)
    assert text.count("x") == 300
    assert max(len(line) for line in text.splitlines() if "x" in line) <= 60


def test_a_long_listing_is_whole_on_a_terminal_too() -> None:
    grid = Grid(("path", "n"), tuple((f"file-{n}-{'x' * 300}", str(n)) for n in range(5000)))
    text = printed(grid, terminal=True)
    assert text.splitlines()[-1] == f" file-4999-{'x' * 300}  4999"


def test_a_screen_gets_the_first_rows_and_how_many_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("COLUMNS", "80")
    grid = Grid(("path", "n"), tuple((f"file-{n}", str(n)) for n in range(61)))
    facts = Grid((), tuple((f"fact-{n}", str(n)) for n in range(30)))
    lines = [*(Line(f"line-{n}") for n in range(50)), Line("end")]
    shown = printed(facts, grid, *lines, terminal=True, cut=True).splitlines()
    assert [line.strip() for line in shown[-16:]] == [
        *(f"line-{n}" for n in range(22, 36)),
        "… and 14 more lines (--all)",
        "end",
    ]
    assert "… and 43 more (--all)" in shown
    assert sum("fact-" in line for line in shown) == 30
    assert sum("file-" in line for line in shown) == 18
    wide = Grid(("path", "n"), tuple((f"file-{n}-{'x' * 140}", str(n)) for n in range(61)))
    assert "… and 52 more (--all)" in printed(wide, terminal=True, cut=True)
    for whole in (
        printed(facts, grid, *lines, cut=True),
        printed(facts, grid, *lines, terminal=True),
    ):
        assert "more" not in whole


@pytest.mark.parametrize("no_color", [False, True])
def test_verdicts_are_coloured_on_terminals(
    monkeypatch: pytest.MonkeyPatch, *, no_color: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    said = Line("Leave it: nothing: to do.", "leave")
    grid = Grid(("verdict",), ((Line("failed", "fail"),),))
    assert printed(said, grid) == "Leave it: nothing: to do.\n verdict\n failed\n"
    text = printed(said, grid, terminal=True)
    assert ("\x1b[32mLeave it\x1b[0m: nothing: to do." in text) != no_color
    assert ("\x1b[1;31mfailed" in text) != no_color


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("terminal", [False, True])
def test_bars_and_words_are_written_in_any_encoding(encoding: str, *, terminal: bool) -> None:
    bars = Bars(tuple(range(LEVELS + 1)))
    text = printed(
        bars, Grid(("a", "b"), ((bars, "日é"),)), Line("日"), terminal=terminal, encoding=encoding
    )
    assert ("▁" in text) == (encoding == "utf-8")
    assert ("日" in text) == (encoding == "utf-8")
    assert (r"\u65e5" in text) == (encoding != "utf-8")
    assert len(set(text.splitlines()[0])) >= LEVELS


def test_a_name_that_is_not_unicode_is_shown_and_is_json() -> None:
    name = "a\udcff.parquet"
    assert printed(Line(name)) == "a\\udcff.parquet\n"
    assert json.loads(render_json({"path": name})) == {"path": name}
    assert json.loads(render_line({"path": name})) == {"path": name}


def test_a_document_is_ascii_where_the_stream_is() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="")
    show_json(render_json({"é": "日\x9b\U0001f388"}), stream)
    stream.seek(0)
    assert json.loads(stream.read()) == {"é": "日\x9b\U0001f388"}
