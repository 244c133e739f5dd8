"""What a run of upkeep found and did, table by table."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from liquidlog.errors import EXIT_ERROR, EXIT_OK, LiquidlogError
from liquidlog.operations.past_work import PastWork
from liquidlog.upkeep.decisions import Decision, Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """A checkpoint or a vacuum that was due: why, what came of it, or the error."""

    reason: str
    done: Mapping[str, Any] | None = None
    error: LiquidlogError | None = None

    def document(self) -> dict[str, Any]:
        """Return the chore ready to print as JSON."""
        error = None if self.error is None else self.error.document()
        return {"reason": self.reason, "done": self.done, "error": error}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutcome:
    """What became of one table.

    `version` is the last that the run saw or made, None if none could be read. `bytes_rewritten`
    are those of the inputs of groups that were committed, or that a dry run or a plan would commit;
    `versions` are their commits. `plan` is the address of a saved plan. `error` is why it failed.
    """

    table: str
    decision: Decision
    reason: str
    version: int | None = None
    bytes_rewritten: int = 0
    seconds: float = 0.0
    triggers: tuple[Trigger, ...] = ()
    versions: tuple[int, ...] = ()
    spared_bytes_a_day: float | None = None
    plan: str | None = None
    past: PastWork | None = None
    checkpoint: Chore | None = None
    vacuum: Chore | None = None
    error: LiquidlogError | None = None

    @property
    def errors(self) -> tuple[LiquidlogError, ...]:
        """All that failed."""
        chores = (self.checkpoint, self.vacuum)
        found = (self.error, *(chore.error for chore in chores if chore is not None))
        return tuple(error for error in found if error is not None)

    def document(self) -> dict[str, Any]:
        """Return the outcome ready to print as JSON."""
        spared = self.spared_bytes_a_day
        return {
            "table": self.table,
            "decision": self.decision.value,
            "reason": self.reason,
            "version": self.version,
            "bytes_rewritten": self.bytes_rewritten,
            "seconds": round(self.seconds, 3),
            "triggers": [trigger.name for trigger in self.triggers],
            "versions": list(self.versions),
            "spared_bytes_a_day": None if spared is None else round(spared),
            "plan": self.plan,
            "checkpoint": None if self.checkpoint is None else self.checkpoint.document(),
            "vacuum": None if self.vacuum is None else self.vacuum.document(),
            "ledger": None if self.past is None else _ledger(self.past),
            "error": None if self.error is None else self.error.document(),
        }


def _ledger(past: PastWork) -> dict[str, Any]:
    return {
        "commits_read": past.commits_read,
        "is_whole": past.is_whole,
        "last_rewrite": past.last_rewrite,
        "commits_since": past.commits_since,
        "rewrites": past.rewrites,
        "rewritten_bytes": past.rewritten_bytes,
        "spared_bytes_a_day": round(past.spared_bytes_a_day) if past.predicted else None,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """What one run of upkeep did: the tables in the order in which they were decided.

    `spent_bytes` counts the inputs of all rewrites that were begun, also of those that failed.
    `left_out` counts what catalogs listed that are no Delta tables.
    """

    tables: tuple[TableOutcome, ...]
    budget_bytes: int | None
    spent_bytes: int
    seconds: float
    left_out: int = 0

    def document(self) -> dict[str, Any]:
        """Return the run ready to print as JSON."""
        return {
            "tables": [table.document() for table in self.tables],
            "budget": {"bytes": self.budget_bytes, "spent": self.spent_bytes},
            "seconds": round(self.seconds, 3),
            "left_out": self.left_out,
        }

    @property
    def exit_status(self) -> int:
        """The exit status of the errors if all have the same, EXIT_ERROR if not."""
        return exit_status_of(error for table in self.tables for error in table.errors)


def exit_status_of(errors: Iterable[LiquidlogError]) -> int:
    """Return the exit status of errors of many tables: their own, EXIT_ERROR if they differ."""
    found = {error.exit_status for error in errors}
    if not found:
        return EXIT_OK
    return found.pop() if len(found) == 1 else EXIT_ERROR


def as_known(error: Exception) -> LiquidlogError:
    """Return an error as one of ours; what is none is told by its class."""
    if isinstance(error, LiquidlogError):
        return error
    return LiquidlogError(f"{type(error).__name__}: {error}")
