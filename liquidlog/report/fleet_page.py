"""The overview of many tables: one self-contained HTML page that links to a page for each.

It loads nothing. Its one script sorts the rows, and its security policy allows no other; without
scripts the rows stand in the order of what is worth most. All text is escaped.
"""

import base64
import hashlib
from collections.abc import Iterator
from string import Template
from typing import Final

from liquidlog.fleet.survey import Fleet
from liquidlog.fleet.surveying import Surveyed
from liquidlog.report.fleet_style import FLEET_PAGE, SORTING
from liquidlog.report.fleets import ACTIONS, counts
from liquidlog.report.page_parts import counted, days, hint, number, size
from liquidlog.spec.text import escaped
from liquidlog.upkeep.decisions import Decision

_COLUMNS: Final = (
    ("Table", "text"),
    ("Action", "number"),
    ("Files", "number"),
    ("Size", "number"),
    ("Depth ratio", "number"),
    ("Spares", "number"),
    ("Costs", "number"),
    ("Pays back in", "number"),
)
_WORST_FIRST: Final = (Decision.REWRITE, Decision.FAIL, Decision.LEAVE)
_UNKNOWN: Final = "-"


def fleet_page(fleet: Fleet, heading: str) -> str:
    """Return the overview as HTML; the pages of its tables lie beside it."""
    digest = base64.b64encode(hashlib.sha256(SORTING.encode()).digest()).decode()
    return Template(FLEET_PAGE).substitute(
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        title=escaped(f"{counted(len(fleet.tables), 'table')}: {heading}"),
        heading=escaped(heading),
        subtitle=escaped(counts(fleet.tables)),
        tiles="".join(_tiles(fleet)),
        hint=_readers(fleet),
        headings="".join(
            f'<th scope="col" data-kind="{kind}">{name}</th>' for name, kind in _COLUMNS
        ),
        rows="\n".join(_row(one, place) for place, one in enumerate(fleet.tables)),
        sorting=SORTING,
    )


def _tiles(fleet: Fleet) -> Iterator[str]:
    tables = fleet.tables
    worth = [one for one in tables if one.action is Decision.REWRITE]
    failed = sum(one.action is Decision.FAIL for one in tables)
    yield _tile(
        number(len(tables)), f"tables of {size(sum(one.size_bytes or 0 for one in tables))}"
    )
    yield _tile(number(len(worth)), "worth a rewrite", "main")
    if worth:
        rewritten = sum(one.rewrite_bytes or 0 for one in worth)
        yield _tile(size(rewritten), "that these rewrites take")
        spared = sum(one.gain_bytes or 0 for one in worth)
        yield _tile(size(spared), f"that they spare readers in {days(fleet.bar.payback_days)}")
    if failed:
        yield _tile(number(failed), "failed", "worse")


def _tile(figure: str, noun: str, style: str = "") -> str:
    return f'<div class="tile {style}"><b>{escaped(figure)}</b><span>{escaped(noun)}</span></div>'


def _readers(fleet: Fleet) -> str:
    readers = "readers of one value of one clustering column, or of everything where there is none"
    if fleet.workload is not None:
        readers = f"the predicates of {fleet.workload}"
    who = f"{readers}, {number(fleet.bar.readings_a_day)} readings of each a day"
    return hint(
        f"Judged for {who}. The first table is the one whose rewrite spares readers most per byte"
        " that it takes. Spared bytes and costs count the opening of files."
    )


def _row(one: Surveyed, place: int) -> str:
    """Return a table as two lines: its numbers, then why."""
    name = one.table.rstrip("/").rpartition("/")[2] or one.table
    linked = escaped(name)
    if one.page is not None:
        linked = f'<a href="{escaped(one.page)}">{linked}</a>'
    payback = one.payback_days
    cells = (
        (ACTIONS[one.action], float(_WORST_FIRST.index(one.action))),
        (_UNKNOWN if one.files is None else number(one.files), one.files),
        (_UNKNOWN if one.size_bytes is None else size(one.size_bytes), one.size_bytes),
        (_UNKNOWN if one.depth_ratio is None else f"{one.depth_ratio:.1f}", one.depth_ratio),
        (_UNKNOWN if one.gain_bytes is None else size(one.gain_bytes), one.gain_bytes),
        (_UNKNOWN if one.cost_bytes is None else size(one.cost_bytes), one.cost_bytes),
        (_UNKNOWN if payback is None else days(payback), payback),
    )
    numbers = "".join(
        f'<td data-name="{heading}"{_value(value)}>{escaped(text)}</td>'
        for (heading, _), (text, value) in zip(_COLUMNS[1:], cells, strict=True)
    )
    return (
        f'<tbody class="{one.action.value}" data-place="{place}">'
        f'<tr><th scope="row" data-value="{escaped(one.table)}">{linked}'
        f"<small>{escaped(one.table)}</small></th>{numbers}</tr>"
        f'<tr class="why"><td colspan="{len(_COLUMNS)}">{escaped(one.reason)}</td></tr></tbody>'
    )


def _value(value: float | None) -> str:
    return "" if value is None else f' data-value="{value:.17g}"'
