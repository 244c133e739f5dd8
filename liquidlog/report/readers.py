"""The verdict on a table, and what is said of the predicates that it is judged by."""

from collections.abc import Sequence
from typing import Final

from liquidlog.foresee.verdict import Verdict
from liquidlog.predicates.workload import NotUsable
from liquidlog.report.layout import Line, Report, listing

_SHOWN: Final = 10


def verdict(found: Verdict | None, steps: Sequence[str] = ()) -> Report:
    """Show a verdict, and the command that does what it says, or the steps of it."""
    if found is None:
        return ()
    commands = steps or ([found.best.command] if found.best and found.best.command else [])
    return (Line(found.sentence, found.answer), *(Line(f"    {command}") for command in commands))


def remarks(
    cannot_prune: Sequence[str], not_usable: Sequence[NotUsable], asked_at: str | None
) -> Report:
    """Return what a report says of predicates beside what they read."""
    shown = "; ".join(cannot_prune[:_SHOWN])
    more = len(cannot_prune) - _SHOWN
    lines = [f"the current time in predicates is {asked_at}"] if asked_at else []
    if cannot_prune:
        lines.append(f"cannot prune by: {shown}" + (f"; and {more} more" if more > 0 else ""))
    if not_usable:
        lines.append(f"not usable as conditions on this table, left out: {len(not_usable)}")
    refused = ((one.where, one.reason) for one in not_usable[:_SHOWN])
    return (*(Line(text) for text in lines), *listing(("left out", "because"), refused))
