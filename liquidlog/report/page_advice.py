"""The section about other clustering columns: what they would bring the readers of a workload."""

import shlex
from collections.abc import Iterator
from typing import Final

from liquidlog.advice.advice import Advice, Measured
from liquidlog.report.advice import layout_text
from liquidlog.report.page_parts import command, counted, hint, scrolled, section, share, size
from liquidlog.simulation.ranges import Range
from liquidlog.spec.text import escaped, html_table

_LAYOUTS: Final = 4
"""The most layouts that are shown."""


def advice(found: Advice | None, location: str, workload: str) -> str:
    """Return the section; `found` is None if nothing was advised.

    Args:
        found: The advice for the readers of a workload, by statistics alone.
        location: The address of the table.
        workload: What commands call the workload.
    """
    asked = f"liquidlog advise {shlex.quote(location)} --workload {shlex.quote(workload)}"
    if found is None or found.best is None:
        reason = "" if found is None else f"<p>{escaped(_sentence(found.reason))}</p>"
        return section(
            "Advice",
            reason,
            "<p>To see whether other clustering columns would suit these readers better:</p>",
            command(asked),
        )
    head = "Leave the columns as they are" if found.recommended is None else "Change the layout"
    return section(
        "Advice",
        f"<h3>{head}</h3><p>{escaped(_sentence(found.reason))}</p>",
        *_layouts(found, found.best),
        hint(
            "By statistics alone: no data file was read. Chosen on"
            f" {counted(found.queries_older, 'predicate')}, judged on"
            f" {counted(found.queries_newest, 'predicate')}."
        ),
        "<p>To measure it on rows of the table, and to get the commands that do it:</p>",
        command(f"{asked} -o advice.json"),
    )


def _layouts(found: Advice, best: Measured) -> Iterator[str]:
    """Yield a table of what a reading opens now, with the best layout and with some others."""
    now = found.current
    rows = [("now", share(now.read_share), size(now.bytes_per_reading))]
    rows.append(
        (layout_text(best), _with_range(best, found.interval), size(best.bytes_per_reading))
    )
    others = [one for one in found.candidates if one.candidate != best.candidate]
    rows += [
        (layout_text(one), share(one.read_share), size(one.bytes_per_reading))
        for one in others[: _LAYOUTS - 1]
    ]
    names = ("layout", "a reading opens of the table", "bytes")
    yield scrolled(html_table(names, rows))


def _with_range(best: Measured, between: Range | None) -> str:
    read = share(best.read_share)
    return read if between is None else f"{read} ({share(between.low)} to {share(between.high)})"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
