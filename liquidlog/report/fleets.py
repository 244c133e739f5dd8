"""Reports of surveys of many tables: one line per table, and what is worth doing together."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from liquidlog.fleet.survey import Fleet
from liquidlog.fleet.surveying import Surveyed
from liquidlog.report.layout import Line, Report, listing
from liquidlog.spec.text import render_size
from liquidlog.upkeep.decisions import Decision

ACTIONS: Final = {
    Decision.REWRITE: "rewrite",
    Decision.LEAVE: "leave alone",
    Decision.FAIL: "failed",
}
_COUNTED: Final = {
    Decision.REWRITE: "to rewrite",
    Decision.LEAVE: "to leave alone",
    Decision.FAIL: "failed",
}
_HEADINGS: Final = ("table", "action", "files", "size", "depth ratio", "spares", "costs", "why")


def surveyed_fleet(fleet: Fleet) -> Report:
    """Show what each table is like and what is worth doing, and why."""
    rows = (
        (
            one.table,
            ACTIONS[one.action],
            "" if one.files is None else str(one.files),
            _size(one.size_bytes),
            "" if one.depth_ratio is None else f"{one.depth_ratio:.1f}",
            _size(one.gain_bytes),
            _size(one.cost_bytes),
            one.reason,
        )
        for one in fleet.tables
    )
    days = f"{fleet.bar.payback_days:g} days"
    spared = sum(one.gain_bytes or 0 for one in fleet.tables)
    cost = sum(one.cost_bytes or 0 for one in fleet.tables)
    end = counts(fleet.tables)
    if cost:
        end += (
            f"; the rewrites cost {render_size(cost)} with their starts and spare readers"
            f" {render_size(spared)} in {days}"
        )
    return (*listing(_HEADINGS, rows), Line(end))


def counts(tables: Sequence[Surveyed]) -> str:
    """Return how many tables there are, and of how many of them what is said."""
    found = Counter(one.action for one in tables)
    told = ", ".join(f"{found[one]} {word}" for one, word in _COUNTED.items() if found[one])
    return f"{'1 table' if len(tables) == 1 else f'{len(tables)} tables'}: {told}"


def _size(size_bytes: int | None) -> str:
    return "" if size_bytes is None else render_size(size_bytes)
