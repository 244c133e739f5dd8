"""What must become of a group of a plan after others changed the table, said by a plain model.

The model knows each file of each version: which rows it has, and which of them are deleted.
"""

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from itertools import pairwise
from typing import Final

from liquidlog.plan import RewriteGroup
from support.plain_table import PlainFile, PlainTable

LARGEST_SHARE: Final = Fraction(20, 100)
"""Share of a group's rows up to which their deletion by others is reconciled, by default."""


class Outlook(Enum):
    """What must become of a group."""

    LANDS = "lands"
    DOOMED = "doomed"
    OPEN = "open"
    """Either: rows of an input or of a kept file may have come back."""


@dataclass(frozen=True)
class Forecast:
    """The outlook of a group, and how many rows of its inputs others have deleted."""

    outlook: Outlook
    lost: int


def forecast(table: PlainTable, read_version: int, group: RewriteGroup, last: int) -> Forecast:
    """Return what must become of a group that is committed directly after version `last`."""
    states = [table.state(version) for version in range(read_version, last + 1)]
    histories = [[state.get(file.path) for state in states] for file in group.inputs]
    planned = [history[0] for history in histories if history[0] is not None]
    assert len(planned) == len(histories), "an input was not live when the plan was made"
    lost = sum(_lost(history) for history in histories)
    total = sum(len(file.live) for file in planned)
    kept = [[state.get(path) for state in states] for path in group.kept.paths()]
    if not total or not all(map(_only_shrinks, [*histories, *kept])):
        return Forecast(Outlook.OPEN, lost)
    gone = all(history[-1] is None for history in histories)
    doomed = gone or Fraction(lost, total) > LARGEST_SHARE
    return Forecast(Outlook.DOOMED if doomed else Outlook.LANDS, lost)


def _only_shrinks(history: list[PlainFile | None]) -> bool:
    """Return whether each change of a file's vector deleted more rows, and what went stayed away.

    Another vector for the same rows is a doubt, as the log says only how many rows it deletes.
    """
    for before, after in pairwise(history):
        if after is None or before is after:
            continue
        if before is None:
            return False
        vectors = [file.add.get("deletionVector") for file in (before, after)]
        if vectors[0] != vectors[1] and not before.deleted < after.deleted:
            return False
    return True


def _lost(history: list[PlainFile | None]) -> int:
    first, last = history[0], history[-1]
    assert first is not None
    return len(first.live) - (0 if last is None else len(set(first.live) - last.deleted))
