"""Continuous rewrites of a table while a writer never stops, and what they cost."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from liquidlog.table import Table
from support.arrow_executor import execute

STATEMENTS_OF_A_REWRITE: Final = 12
"""Statements that may land since a rewrite began: more could delete more than is reconciled."""

STATEMENTS_WAITED_FOR: Final = 4
"""Statements that land before a rewrite commits: real rewrites take longer than statements."""

_TIMEOUT_S: Final = 1_200


@dataclass
class Costs:
    """What it took to follow the writer, and what it would have cost to throw groups away."""

    rewrites: int = 0
    raced: int = 0
    rows: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    raced_bytes: int = 0
    problems: list[str] = field(default_factory=list)

    def take(self, plan: Any, report: Any) -> None:
        reconciled = report.reconciled
        self.rewrites += len(report.group_versions)
        self.problems.extend(map(str, (*report.conflicts, *report.failures)))
        self.rows += reconciled.rows
        self.bytes_read += reconciled.bytes_read or 0
        self.seconds += reconciled.seconds or 0
        if reconciled.versions:
            self.raced += 1
            self.raced_bytes += sum(group.size_bytes for group in plan.groups)

    def __str__(self) -> str:
        return (
            f"{self.raced} of {self.rewrites} groups were raced: {self.rows} rows reconciled,"
            f" {self.bytes_read} bytes read in {1000 * self.seconds:.0f} ms, instead of throwing"
            f" away groups of {self.raced_bytes} bytes"
        )


@dataclass
class Pace:
    """Lets a writer make so many statements per rewrite, and a rewrite wait for some of them."""

    credit: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    changed: threading.Condition = field(default_factory=threading.Condition)
    landed: int = 0
    has_ended: bool = False

    def statements(self, number: int) -> Iterator[int]:
        try:
            for statement in range(number):
                assert self.credit.acquire(timeout=_TIMEOUT_S), "no rewrite begins any more"
                yield statement
                with self.changed:
                    self.landed += 1
                    self.changed.notify_all()
        finally:
            with self.changed:
                self.has_ended = True
                self.changed.notify_all()

    def allow(self, groups: int) -> int:
        """Let the writer go on beside a rewrite of so many groups; return what landed so far."""
        self.credit.release(STATEMENTS_OF_A_REWRITE if groups else 1)
        return self.landed

    def wait_for_some(self, landed: int) -> None:
        """Wait until some statements landed after so many, or there will be no more."""
        enough = landed + STATEMENTS_WAITED_FOR
        with self.changed:
            assert self.changed.wait_for(
                lambda: self.has_ended or self.landed >= enough, _TIMEOUT_S
            ), "the writer hangs"


def soak(uri: str, pace: Pace, write: Callable[[], None], **sizes: Any) -> Costs:
    """Rewrite a table again and again while a thread writes to it."""
    costs, errors = Costs(), list[BaseException]()

    def writing() -> None:
        try:
            write()
        except BaseException as error:  # noqa: BLE001  raised below
            errors.append(error)

    writer = threading.Thread(target=writing, daemon=True)
    writer.start()
    table = Table.open(uri)
    is_last = False
    while not is_last:
        is_last = pace.has_ended
        plan = table.plan(full=True, **sizes)
        landed = pace.allow(len(plan.groups))
        groups = execute(plan).groups
        if groups:
            pace.wait_for_some(landed)
        costs.take(plan, table.commit_each(plan, groups))
    writer.join(_TIMEOUT_S)
    assert not errors, errors
    return costs
