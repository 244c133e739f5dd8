"""The overview of many tables, read and in a browser: sorted by a script, whole without one."""

import base64
import hashlib
import re
from io import StringIO
from pathlib import Path

import pytest

from liquidlog.errors import LiquidlogError
from liquidlog.fleet.policy import Decision
from liquidlog.fleet.upkeep import Fleet, Surveyed, ranked
from liquidlog.foresee.verdict import Bar
from liquidlog.report.page import fleet_page
from liquidlog.report.printing import show
from liquidlog.report.tables import surveyed_fleet
from support.html_pages import MAX_BYTES, Browser, Reader

HOSTILE = (
    "<script>document.title = 'mine'</script>",
    "'\" onmouseover=alert(1) x='",
    "a\nb\x1b[31m\u202egnp",
    "n" * 400,
    "</th></tr></table>",
    "$title ${rows} %s {0}",
    "é\u0301 名前 \ud800",
)
VIEWS = [(1200, True), (390, False)]
ORDER = "Array.from(document.querySelectorAll('tbody')).map(body => Number(body.dataset.place))"


def table(number: int, **more: object) -> Surveyed:
    known = {
        "table": f"/lake/t{number}",
        "decision": Decision.LEAVE,
        "reason": f"because of {number}",
        "files": number * 7 % 11,
        "size_bytes": (number * 5 % 13) << 30,
    }
    return Surveyed(**{**known, **more})  # type: ignore[arg-type]


def verdict(number: int) -> dict[str, object]:
    """Return what a page shows of a verdict."""
    return {
        "answer": "cluster" if number % 4 == 3 else "rewrite",
        "now": {"seconds": 1.0 + number},
        "after": {"seconds": {"mean": 0.5}},
        "cost": {"seconds": 60.0 * number, "bytes_read": number << 30},
        "payback_queries": 500.0 - number,
        "candidate": {"command": f"liquidlog optimize /lake/t{number}"},
    }


def fleet(*more: Surveyed) -> Fleet:
    worth = [
        table(
            number,
            decision=Decision.REWRITE,
            verdict=verdict(number),
            rank=500.0 - number,
            page=f"t{number}-0123.html",
        )
        for number in range(10)
    ]
    failed = table(90, decision=Decision.FAIL, files=None, size_bytes=None)
    tables = ranked([*worth, failed, *(table(number) for number in range(91, 95)), *more])
    return Fleet(tables=tables, bar=Bar(), workload=None, seconds=1.0)


def hostile() -> Fleet:
    return fleet(
        *(
            table(200 + number, table=f"/lake/{name}", reason=name, error=LiquidlogError(name))
            for number, name in enumerate(HOSTILE)
        )
    )


def written(where: Path, found: Fleet) -> Path:
    page = where / "index.html"
    page.write_text(fleet_page(found, "/lake"), encoding="utf-8")
    return page


def test_it_loads_nothing_and_runs_its_one_script() -> None:
    html = fleet_page(hostile(), "/lake")
    read = Reader(html)
    assert read.count("script") == 1
    assert len(html.encode()) < MAX_BYTES
    (policy,) = (a.get("content") or "" for t, a in read.found if "http-equiv" in a)
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"script-src 'sha256-{digest}'"
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; {allowed}"
    for _, attributes in read.found:
        assert not any(name.startswith("on") or name == "src" for name in attributes)
    links = [a["href"] for t, a in read.found if t == "a"]
    assert links == [f"t{number}-0123.html" for number in range(9, -1, -1)]


def test_hostile_names_are_shown_as_text() -> None:
    read = Reader(fleet_page(hostile(), "<b>" + HOSTILE[0]))
    assert read.count("tbody") == 15 + len(HOSTILE)
    assert read.count("b") == 4
    assert HOSTILE[0] in read.text
    assert HOSTILE[5] in read.text
    assert not {"\x1b", "\u202e", "\ud800"} & set(read.text)


def test_the_text_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    printed = StringIO()
    show(surveyed_fleet(fleet()), printed, terminal=True)
    lines = re.sub(r"\x1b\[[\d;]*m", "", printed.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.startswith(" /lake/t") for line in lines) == 15
    assert lines[1].split() == ["/lake/t9", "8", "6.0", "GiB", "rewrite", "490", "queries"]
    assert sum(line.startswith("    liquidlog optimize /lake/t") for line in lines) == 10
    assert "15 tables: 8 to rewrite, 2 to cluster by other columns" in lines[-2]


@pytest.mark.browser
@pytest.mark.parametrize(("width", "dark"), VIEWS)
def test_the_page_fits_and_complains_of_nothing(
    opened: Browser, tmp_path: Path, width: int, *, dark: bool
) -> None:
    shown = opened.open(written(tmp_path, hostile()), width=width, dark=dark)
    assert (shown.asked, shown.complaints) == ([], [])
    assert opened.value("document.documentElement.scrollWidth") <= width
    assert opened.overflowing() == []
    assert opened.value("document.title").endswith("/lake")
    back = opened.value("getComputedStyle(document.body).backgroundColor")
    assert back == ("rgb(18, 22, 28)" if dark else "rgb(255, 255, 255)")


@pytest.mark.browser
def test_rows_are_sorted_on_demand(opened: Browser, tmp_path: Path) -> None:
    found = fleet()
    opened.open(written(tmp_path, found), width=1200)
    assert opened.value(ORDER) == list(range(15))

    def sorted_by(column: str) -> list[Surveyed]:
        heads = "Array.from(document.querySelectorAll('thead button'))"
        opened.value(f"{heads}.find(one => one.textContent === {column!r}).click()")
        return [found.tables[place] for place in opened.value(ORDER)]

    sizes = [one.size_bytes for one in sorted_by("Size")]
    known = [size for size in sizes if size is not None]
    assert known == sorted(known, reverse=True)
    assert sizes[-1] is None
    again = [one.size_bytes for one in sorted_by("Size")]
    assert again == [*sorted(known), None]
    assert opened.value("document.querySelector('[aria-sort]').ariaSort") == "ascending"
    waits = [one.verdict and one.verdict["now"]["seconds"] for one in sorted_by("Wait now")]
    assert waits == [*range(10, 0, -1), *[None] * 5]
    names = [one.table for one in sorted_by("Table")]
    assert names == sorted(names)
    answers = [one.answer for one in sorted_by("Verdict")]
    assert answers == ["rewrite"] * 8 + ["cluster"] * 2 + ["fail"] + ["leave"] * 4
