"""Reports of surveys and of runs over many tables: one line per table, and totals."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from liquidlog.fleet.policy import Decision
from liquidlog.fleet.upkeep import Fleet, Surveyed, TableOutcome, Ticked
from liquidlog.foresee.verdict import count_text
from liquidlog.report.printing import Line, Report, listing
from liquidlog.spec.text import render_size

ANSWERS: Final = {
    "rewrite": "rewrite",
    "cluster": "new columns",
    "fail": "failed",
    "unknown": "unknown",
    "leave": "leave alone",
}
_COUNTED: Final = {
    "rewrite": "to rewrite",
    "cluster": "to cluster by other columns",
    "fail": "failed",
    "unknown": "unknown",
    "leave": "to leave alone",
}
_SAID: Final = {
    Decision.REWRITE: "rewritten",
    Decision.PLAN: "planned",
    Decision.LEAVE: "left alone",
    Decision.POSTPONE: "postponed",
    Decision.FAIL: "failed",
}
_WOULD: Final = {**_SAID, Decision.REWRITE: "would be rewritten"}
_HEADINGS: Final = ("table", "files", "size", "verdict", "pays back after")


def surveyed_fleet(fleet: Fleet) -> Report:
    """Show a listing of tables, and below it each reason and command, for narrow screens."""
    rows = (
        (
            one.table,
            "" if one.files is None else str(one.files),
            "" if one.size_bytes is None else render_size(one.size_bytes),
            Line(ANSWERS[one.answer], one.answer),
            "" if one.worth is None else f"{count_text(one.worth['payback_queries'])} queries",
        )
        for one in fleet.tables
    )
    return (
        *listing(_HEADINGS, rows),
        *(line for one in fleet.tables for line in _told(one)),
        Line(counts(fleet.tables)),
    )


def _told(one: Surveyed) -> Iterator[Line]:
    yield Line(f"{one.table}: {one.reason}")
    if one.worth is not None:
        yield Line(f"    {one.worth['candidate']['command']}")


def counts(tables: Sequence[Surveyed]) -> str:
    """Return the number of tables, in all and by answer."""
    found = Counter(one.answer for one in tables)
    told = ", ".join(f"{found[one]} {word}" for one, word in _COUNTED.items() if found[one])
    return f"{'1 table' if len(tables) == 1 else f'{len(tables)} tables'}: {told}"


def ticked(run: Ticked, *, dry_run: bool) -> Report:
    """Show what was or would be done with each table, and why."""
    words = _WOULD if dry_run else _SAID
    rows = (
        (
            one.table,
            words[one.decision],
            render_size(one.bytes_rewritten) if one.bytes_rewritten else "",
        )
        for one in run.tables
    )
    return (
        *listing(("table", "decision", "bytes"), rows),
        *(Line(f"{one.table}: {'; '.join(_reasons(one, dry_run=dry_run))}") for one in run.tables),
        Line(_end(run, dry_run=dry_run)),
    )


def _reasons(outcome: TableOutcome, *, dry_run: bool) -> Iterator[str]:
    yield outcome.reason.removesuffix(".")
    if outcome.triggers:
        yield f"looked at, as {', '.join(one.detail for one in outcome.triggers)}"
    if outcome.plan is not None:
        yield f"saved as {outcome.plan}"
    verb = "would be" if dry_run else "was"
    if outcome.checkpoint is not None:
        chore = outcome.checkpoint
        told = f"{verb} made" if chore.error is None else f"failed: {chore.error.message}"
        yield f"a checkpoint {told} ({chore.reason})"
    if outcome.vacuum is not None:
        chore = outcome.vacuum
        told = f"failed: {'' if chore.error is None else chore.error.message}"
        if chore.done is not None:
            size = render_size(chore.done["deleted_bytes"])
            deleted = f"{chore.done['deleted_files']} files of {size}"
            told = f"{'would delete' if dry_run else 'deleted'} {deleted}"
        yield f"a vacuum {told} ({chore.reason})"


def _end(run: Ticked, *, dry_run: bool) -> str:
    words = _WOULD if dry_run else _SAID
    counts = Counter(one.decision for one in run.tables)
    told = ", ".join(f"{counts[one]} {words[one]}" for one in Decision if counts[one])
    of = "" if run.budget_bytes is None else f" of {render_size(run.budget_bytes)}"
    done = "planned" if counts[Decision.PLAN] else "would be spent" if dry_run else "spent"
    tables = "1 table" if len(run.tables) == 1 else f"{len(run.tables)} tables"
    left = f"; left out, not Delta: {run.left_out}" if run.left_out else ""
    return f"{tables}: {told}; {render_size(run.spent_bytes)}{of} {done}{left}"
