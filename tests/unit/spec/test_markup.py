"""What consoles and notebooks show of Table, plan, result, report, health and snapshot."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog import Table
from liquidlog.spec.text import Summary
from support.arrow_executor import execute

HOSTILE = "a\x1b[31m\u202e<script>alert(1)</script>\n'\""


@pytest.fixture
def shown(tmp_path: Path) -> list[Summary]:
    """Return one object of each class, all of a table whose column has a hostile name."""
    schema = pa.schema([pa.field("id", pa.int64()), pa.field(HOSTILE, pa.int64())])
    properties = {"delta.columnMapping.mode": "name"}
    place = tmp_path / "<b>orders"
    table = Table.create(place, schema=schema, cluster_by=["id"], properties=properties)
    for start in (0, 10):
        numbers = pa.array(range(start, start + 10))
        table.append(pa.table([numbers, numbers], schema=schema))
    plan = table.plan()
    result = execute(plan)
    shown = [table, table.snapshot(), table.health(), plan, result, table.commit(plan, result)]
    assert all(isinstance(one, Summary) for one in shown)
    return shown


def test_reprs_are_one_short_line_that_hides_nothing(shown: list[Summary]) -> None:
    for one in shown:
        line = repr(one)
        assert line.startswith(f"{type(one).__name__}(")
        assert line.isprintable()
        assert len(line) < 1000


def test_reprs_say_what_the_object_is_about(shown: list[Summary]) -> None:
    table, snapshot, health, plan, result, report = map(repr, shown)
    assert table.endswith("<b>orders', seen_version=2)")
    assert "version=2" in snapshot
    assert "cluster_by_keys=['id']" in health
    assert "groups=1, files=2" in plan
    assert "files=1" in result
    assert "rows_written=20" in result
    assert "versions=[3]" in report


def test_notebooks_get_escaped_tables(shown: list[Summary]) -> None:
    for one in shown:
        html = one._repr_html_()
        assert html.startswith("<div>")
        assert set(re.findall(r"<(\w+)", html)) <= {
            *("div", "p", "b", "table", "thead", "tr", "th", "td", "ul", "li"),
        }
        assert "<b>orders" not in html
        assert "\x1b" not in html
        assert "\u202e" not in html


def test_long_lists_are_cut() -> None:
    class Long(Summary):
        def _facts(self) -> dict[str, object]:
            return {"text": "x", "nothing": None, "several": ("a", 1)}

        def _rows(self) -> tuple[tuple[str], list[tuple[int]]]:
            return ("number",), [(number,) for number in range(25)]

    assert repr(Long()) == "Long(text='x', nothing=None, several=['a', 1])"
    html = Long()._repr_html_()
    assert "<td>19</td>" in html
    assert "<td>20</td>" not in html
    assert "and 5 more" in html
