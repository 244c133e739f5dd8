"""Screens of the report of the demo's table, before and after its rewrite, for the documents.

    PYTHONPATH=tests python tools/screens.py

needs what `make demo` left in `.demo`, and a Chromium. Nothing is asked of the network.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from liquidlog.cli.main import cli, run
from liquidlog.spec.actions import LOG_DIR
from support.html_pages import Browser, browser, chromium
from support.repository import ROOT

MOST_BYTES: Final = 60_000
"""The largest screen that is kept."""

_TABLE: Final = ROOT / ".demo" / "lineitem"
_OPTIMIZED: Final = "00000000000000000008.json"
"""The demo's last commit, its OPTIMIZE."""

_WORKLOAD: Final = """\
l_shipdate BETWEEN DATE '1995-03-01' AND DATE '1995-03-31';
l_partkey = 155190;
l_shipdate BETWEEN DATE '1997-01-01' AND DATE '1997-06-30' AND l_partkey BETWEEN 40000 AND 60000;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What is shown of which report, in CSS pixels: the whole width, `height` from `begin` on.

    `begin` is a selector of the first element that is shown.
    """

    report: str
    width: int
    height: int
    dark: bool = False
    begin: str = "html"


_MAPS: Final = "section:nth-of-type(3)"

SCREENS: Final[Mapping[str, Screen]] = {
    "report-before": Screen(report="before", width=900, height=1080),
    "report-before-dark": Screen(report="before", width=900, height=1080, dark=True),
    "report-before-maps": Screen(report="before", width=900, height=920, begin=_MAPS),
    "report-before-narrow": Screen(report="before", width=390, height=1300),
    "report-after": Screen(report="after", width=900, height=1100),
    "report-after-dark": Screen(report="after", width=900, height=1100, dark=True),
    "report-after-narrow": Screen(report="after", width=390, height=1100),
}


def main() -> int:
    """Take all screens; return 1 if something that they need is missing."""
    program = chromium()
    if program is None or not (_TABLE / LOG_DIR / _OPTIMIZED).exists():
        sys.stderr.write("needs a Chromium, and `make demo` first\n")
        return 1
    with tempfile.TemporaryDirectory() as name, browser(program) as opened:
        home = Path(name)
        pages = _reports(home)
        for screen, wanted in SCREENS.items():
            _take(opened, pages[wanted.report], wanted, ROOT / "docs" / "images" / f"{screen}.webp")
    return 0


def _reports(home: Path) -> Mapping[str, Path]:
    """Write the report of the demo's table as it is, and as it was before its last commit."""
    found = {}
    for moment in ("before", "after"):
        place = home / moment
        table = place / "lineitem"
        table.mkdir(parents=True)
        for file in _TABLE.glob("*.parquet"):
            os.link(file, table / file.name)
        shutil.copytree(_TABLE / LOG_DIR, table / LOG_DIR)
        if moment == "before":
            (table / LOG_DIR / _OPTIMIZED).unlink()
        (place / "queries.sql").write_text(_WORKLOAD, encoding="utf-8")
        with chdir(place):
            words = ["report", "lineitem", "--workload", "queries.sql", "-o", "report.html"]
            if run(cli, words):
                sys.exit("the report could not be written")
        page = place / "report.html"
        # As from inside the directory, wherever that is.
        text = page.read_text(encoding="utf-8").replace(f"{place}/", "")
        page.write_text(text, encoding="utf-8")
        found[moment] = page
    return found


def _take(opened: Browser, page: Path, screen: Screen, image: Path) -> None:
    opened.open(page, width=screen.width, dark=screen.dark)
    takes = (
        opened.picture(screen.begin, height=screen.height, quality=quality)
        for quality in range(80, 20, -5)
    )
    taken = next(picture for picture in takes if len(picture) <= MOST_BYTES)
    image.write_bytes(taken)


if __name__ == "__main__":
    sys.exit(main())
