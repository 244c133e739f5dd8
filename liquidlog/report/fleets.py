"""Reports of surveys and of runs over many tables: one line per table, and what it is together."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from liquidlog.fleet.deciding import Decision
from liquidlog.fleet.survey import Fleet, Surveyed
from liquidlog.fleet.tick import TableOutcome, Ticked
from liquidlog.report.layout import Line, Report, listing
from liquidlog.spec.text import render_size

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
_SAID: Final = {
    Decision.REWRITE: "rewritten",
    Decision.PLAN: "planned",
    Decision.LEAVE: "left alone",
    Decision.POSTPONE: "postponed",
    Decision.FAIL: "failed",
}
_WOULD: Final = {**_SAID, Decision.REWRITE: "would be rewritten"}
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
