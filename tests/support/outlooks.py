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
    """Either: for all that the log says, rows of an input or of a kept file may have come back."""


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
    doomed = gone or Fraction(lost, total) > LARGEST_SHARE or any(map(_joined_another, kept))
    return Forecast(Outlook.DOOMED if doomed else Outlook.LANDS, lost)


def _only_shrinks(history: list[PlainFile | None]) -> bool:
    """Return whether each vector of a file deleted no fewer rows, and what went stayed away.

    A vector that comes back is a doubt, whatever it deletes: the log says only how many rows.
    """
    vectors = [None if history[0] is None else history[0].add.get("deletionVector")]
    for before, after in pairwise(history):
        if after is None or before is after:
            continue
        if before is None:
            return False
        vector = after.add.get("deletionVector")
        if vector != vectors[-1]:
            if vector in vectors or not before.deleted <= after.deleted:
                return False
            vectors.append(vector)
    return True


def _joined_another(history: list[PlainFile | None]) -> bool:
    """Return whether a kept file is live in another cube than when the plan was made."""
    first, last = history[0], history[-1]
    if first is None or last is None:
        return False
    cubes = [file.add.get("tags", {}).get("ZCUBE_ID") for file in (first, last)]
    return bool(cubes[0] != cubes[1])


def _lost(history: list[PlainFile | None]) -> int:
    first, last = history[0], history[-1]
    assert first is not None
    return len(first.live) - (0 if last is None else len(set(first.live) - last.deleted))
