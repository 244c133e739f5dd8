"""Scenarios of appends: how the keys of a round's rows lie among the earlier keys.

The three scenarios are those of Microsoft's benchmark of incremental clustering
(fabric-spark-benchmarks): a stream in the order of the first column; merges, where a tenth of the
rows replaces earlier rows and every 30th round fills in old keys; and appends over the whole key
range.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from liquidlog.errors import UsageError
from liquidlog.simulation.table import Points, Rows, SimulatedTable, with_files, without_rows
from liquidlog.spec.arguments import one

FILES_IN_A_ROUND: Final = 4
LATE_SHARE: Final = 0.1
BACK_FILL_ROUNDS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """The rows that arrive in a round, their ids, and the ids of the rows that they replace."""

    points: Points
    ids: Rows
    replaced: Rows


Keys = Callable[[np.random.Generator, int, tuple[int, int], float], Points]
"""From (generator, round, (rows, columns), smallest old key) to the keys of the round's rows."""


def _stream(random: np.random.Generator, number: int, shape: tuple[int, int], _: float) -> Points:
    points = random.random(shape)
    points[:, 0] += number
    return points


def _merge(
    random: np.random.Generator, number: int, shape: tuple[int, int], start: float
) -> Points:
    points = _stream(random, number, shape, start)
    late = random.random(shape[0]) < (1.0 if _is_back_fill(number) else LATE_SHARE)
    points[late, 0] = start + random.random(int(late.sum())) * (number + 1 - start)
    return points


def _full_range(
    random: np.random.Generator, _: int, shape: tuple[int, int], _start: float
) -> Points:
    return random.random(shape)


def _is_back_fill(number: int) -> bool:
    return number > 0 and number % BACK_FILL_ROUNDS == 0


SCENARIOS: Final[Mapping[str, Keys]] = {
    "streaming": _stream,
    "merge": _merge,
    "full-range": _full_range,
}


def check_scenario(name: str) -> None:
    """Refuse an unknown scenario."""
    if one(name, str, argument="scenario", expected="a name") not in SCENARIOS:
        raise UsageError(f"there is no scenario {name!r}; known are {', '.join(SCENARIOS)}")


def batches(scenario: str, rounds: int, *, rows: int, first: SimulatedTable) -> tuple[Batch, ...]:
    """Return one batch per round; the same arguments give the same batches.

    `first` is the table before the first round. In a merge, except for its back-fills, the number
    of replaced rows is a tenth of the arriving ones; they are chosen from all live rows.
    """
    random = np.random.default_rng(rows)
    start = float(first.points[:, 0].min(initial=0.0))
    live = first.ids
    count = int(live.max(initial=-1)) + 1
    made = []
    for number in range(rounds):
        points = SCENARIOS[scenario](random, number, (rows, first.columns), start)
        replaced = live[:0]
        if scenario == "merge" and len(live) and not _is_back_fill(number):
            replaced = random.choice(live, min(len(live), int(LATE_SHARE * rows)), replace=False)
        ids = count + np.arange(rows)
        live = np.concatenate([np.setdiff1d(live, replaced), ids])
        count += rows
        made.append(Batch(points=points, ids=ids, replaced=replaced))
    return tuple(made)


def appended(table: SimulatedTable, batch: Batch, size_bytes: int) -> SimulatedTable:
    """Return the table with a round's rows in new files of equal size, `size_bytes` in total."""
    rows = len(batch.points)
    parts = np.arange(rows, dtype=np.int64) * FILES_IN_A_ROUND // rows
    size = np.full(FILES_IN_A_ROUND, max(1, size_bytes // FILES_IN_A_ROUND), np.int64)
    left = without_rows(table, batch.replaced) if len(batch.replaced) else table
    return with_files(left, batch.points, batch.ids, parts, size)
