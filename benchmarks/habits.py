"""Twenty imagined tables, and how rows come to each of them over the days."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

MIB = 1 << 20
SOME = 1000.0
LATE_SHARE = 0.1
PARTITIONS = 8
MONTH = 30

Points = npt.NDArray[np.float64]
Keys = Callable[[np.random.Generator, float, tuple[int, int]], Points]
"""From (generator, time in days, (rows, columns)) to the keys of rows that arrive then."""


@dataclass(frozen=True, kw_only=True)
class Habit:
    """How a table grows: `appends` a day on every `every`-th day, each of `files` files.

    `by` is "columns" if the table is clustered, else it is plain, or partitioned by the whole part
    of its first column.
    """

    name: str
    keys: Keys
    columns: int = 1
    appends: int = 24
    files: int = 1
    append_bytes: int = 8 * MIB
    every: int = 1
    by: str = "columns"

    def days(self, days: int) -> range:
        return range(0, days, self.every)


def in_time(random: np.random.Generator, now: float, shape: tuple[int, int]) -> Points:
    points = random.random(shape) * SOME
    points[:, 0] = now + random.random(shape[0]) / 24
    return points


def anywhere(random: np.random.Generator, _: float, shape: tuple[int, int]) -> Points:
    return random.random(shape) * SOME


def late(random: np.random.Generator, now: float, shape: tuple[int, int], *, most: int) -> Points:
    points = in_time(random, now, shape)
    is_late = random.random(shape[0]) < LATE_SHARE
    points[is_late, 0] -= random.random(int(is_late.sum())) * min(most, now)
    return points


def filled_back(random: np.random.Generator, now: float, shape: tuple[int, int]) -> Points:
    points = in_time(random, now, shape)
    if int(now + 1) % MONTH == 0:
        points[:, 0] = random.random(shape[0]) * now
    return points


def skewed(random: np.random.Generator, _: float, shape: tuple[int, int]) -> Points:
    return random.random(shape) ** 6 * SOME


def drifting(random: np.random.Generator, now: float, shape: tuple[int, int]) -> Points:
    points = random.random(shape) * SOME
    points[:, 0] = random.normal(now * 5, 60, shape[0])
    return points


def one_of(random: np.random.Generator, now: float, shape: tuple[int, int]) -> Points:
    points = anywhere(random, now, shape)
    points[:, 0] = int(random.integers(PARTITIONS))
    return points


BATCH = {"appends": 1, "files": 8, "append_bytes": 256 * MIB}

HABITS = (
    Habit(name="hourly, random, 2 columns", keys=anywhere, columns=2),
    Habit(name="hourly, in time", keys=in_time),
    Habit(name="hourly, tiny", keys=in_time, append_bytes=MIB // 2),
    Habit(name="daily, random, 3 columns", keys=anywhere, columns=3, **BATCH),
    Habit(name="hourly, partitioned", keys=one_of, columns=2, by="partition"),
    Habit(name="hourly, a week late", keys=partial(late, most=7)),
    Habit(name="daily, skewed, 2 columns", keys=skewed, columns=2, **BATCH),
    Habit(name="mostly idle, random", keys=anywhere, every=10, **BATCH),
    Habit(name="daily, in time", keys=in_time, **BATCH),
    Habit(name="daily, random", keys=anywhere, **BATCH),
    Habit(name="hourly, drifting, 2 columns", keys=drifting, columns=2),
    Habit(name="hourly, not clustered", keys=anywhere, by="nothing"),
    Habit(name="monthly, in time, 2 columns", keys=in_time, columns=2, every=30, **BATCH),
    Habit(name="hourly, random", keys=anywhere),
    Habit(name="daily, in time, 2 columns", keys=in_time, columns=2, **BATCH),
    Habit(name="daily, filled back monthly", keys=filled_back, **BATCH),
    Habit(name="hourly, in time, 2 columns", keys=in_time, columns=2),
    Habit(name="hourly, skewed", keys=skewed),
    Habit(name="daily, a month late, 2 columns", keys=partial(late, most=30), columns=2, **BATCH),
    Habit(name="daily, random, 4 columns", keys=anywhere, columns=4, **BATCH),
)
