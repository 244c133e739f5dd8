"""The page in a browser: on a screen, a phone and paper, in the light and in the dark."""

from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.report.page import page
from liquidlog.table import Table
from support.arrow_executor import execute
from support.html_pages import Browser

pytestmark = pytest.mark.browser

LONG = "a" * 120
WORKLOAD = (
    WeightedPredicate("x = 7"),
    WeightedPredicate(f"s = '{LONG}' and x in ({', '.join(map(str, range(200)))})", 3.0),
)
VIEWS = [(1100, True, "screen"), (390, False, "screen"), (700, False, "print")]

TOUCHING = """
Array.from(document.querySelectorAll('.ticks, .upwards')).flatMap(axis => {
  const marks = Array.from(axis.children).filter(e => e.getClientRects().length)
    .map(e => e.getBoundingClientRect());
  return marks.flatMap((a, n) => marks.slice(n + 1)
    .filter(b => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
    .map(b => axis.textContent));
})
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("pages")
    schema = pa.schema([("x", pa.int64()), ("s", pa.string())])
    table = Table.create(str(home / "sales"), schema=schema, cluster_by=["x", "s"])
    empty = page(table.overview())
    for first in range(12):
        rows = list(range(first, 2400, 12))
        table.append(pa.table({"x": rows, "s": [f"{LONG}{n * 37 % 2400:04d}" for n in rows]}))
    before = page(table.overview(workload=WORKLOAD))
    plan = table.plan(max_file_size="1KiB")
    table.commit(plan, execute(plan))
    after = page(table.overview())
    found = {"empty": empty, "before": before, "after": after}
    for name, html in found.items():
        (home / f"{name}.html").write_text(html, encoding="utf-8")
    return {name: home / f"{name}.html" for name in found}


@pytest.mark.parametrize(("width", "dark", "media"), VIEWS)
@pytest.mark.parametrize("name", ["empty", "before", "after"])
def test_the_page_fits_asks_for_nothing_and_complains_of_nothing(
    opened: Browser, pages: dict[str, Path], name: str, width: int, media: str, *, dark: bool
) -> None:
    shown = opened.open(pages[name], width=width, dark=dark, media=media)
    assert shown.asked == []
    assert shown.complaints == []
    assert opened.value("document.documentElement.scrollWidth") <= width
    assert opened.overflowing() == []
    assert opened.value(TOUCHING) == []
    assert opened.value("document.querySelector('.answer h2').textContent")


def test_one_click_selects_a_whole_command(opened: Browser, pages: dict[str, Path]) -> None:
    opened.open(pages["before"], width=390)
    shown = "Array.from(document.querySelectorAll('section > .command')).at(-1)"
    opened.value(f"getSelection().selectAllChildren({shown})")
    text = opened.value(f"{shown}.textContent")
    assert opened.value("getSelection().toString()").strip() == text
    assert "\n" not in text
    assert opened.value(f"getComputedStyle({shown}).userSelect") == "all"
