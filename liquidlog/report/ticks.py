"""Reports of runs of upkeep: one line per table, and what it took together."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from liquidlog.fleet.outcomes import TableOutcome, Ticked
from liquidlog.report.layout import Line, Report, listing
from liquidlog.spec.text import render_size
from liquidlog.upkeep.decisions import Decision

_SAID: Final = {
    Decision.REWRITE: "rewritten",
    Decision.PLAN: "planned",
    Decision.LEAVE: "left alone",
    Decision.POSTPONE: "postponed",
    Decision.FAIL: "failed",
}
_WOULD: Final = {**_SAID, Decision.REWRITE: "would be rewritten"}


def ticked(run: Ticked, *, dry_run: bool) -> Report:
    """Show what became of each table, and why."""
    words = _WOULD if dry_run else _SAID
    rows = (
        (
            one.table,
            words[one.decision],
            render_size(one.bytes_rewritten) if one.bytes_rewritten else "",
            "; ".join(_reasons(one, dry_run=dry_run)),
        )
        for one in run.tables
    )
    return (*listing(("table", "decision", "bytes", "why"), rows), Line(_end(run, dry_run=dry_run)))


def _reasons(outcome: TableOutcome, *, dry_run: bool) -> Iterator[str]:
    yield outcome.reason
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
