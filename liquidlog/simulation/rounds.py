"""Rounds of append, plan, rewrite and measure, with the same rows and queries for all planners."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

import numpy as np
import pyarrow as pa

from liquidlog.clustering.keyspace.cells import placed
from liquidlog.clustering.keyspace.depth import column_ranges, depths, key_ranges
from liquidlog.clustering.planning.choice import check_policy
from liquidlog.clustering.planning.planner import plan
from liquidlog.curve.curves import parse_curve
from liquidlog.errors import UsageError
from liquidlog.plan import ClusteringPlan, ClusteringPolicy
from liquidlog.simulation.scenarios import Batch, appended, batches, check_scenario
from liquidlog.simulation.table import (
    Points,
    SimulatedTable,
    as_snapshot,
    exact_bounds,
    in_next_cube,
    rewritten,
    with_files,
)

SAMPLED_ROWS: Final = 256
"""The number of sampled rows that stand for the rows of one append."""

_QUERIES: Final = 48
"""The number of queries of each kind after each round."""

EVERYTHING: Final = 1 << 49
"""A minimum cube size in bytes that is larger than any cube."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A strategy and its policy, with a name."""

    name: str
    strategy: str
    policy: ClusteringPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The setting of a simulation: `rounds` appends of `append_bytes`, with keys of a scenario."""

    scenario: str
    rounds: int
    append_bytes: int
    max_file_bytes: int
    curve: str = "hilbert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The measures of one round, taken after its rewrite.

    `bytes_read` and `files_read` are means over two kinds of queries: for one value of one column,
    and for one value of every column; `narrow_bytes_read` is the mean over the second kind. The
    `full_…` numbers are those of the same table after a full rewrite.
    """

    number: int
    table_bytes: int
    rewritten_bytes: int
    files: int
    cubes: int
    average_depth: float
    bytes_read: float
    narrow_bytes_read: float
    files_read: float
    full_bytes_read: float
    full_narrow_bytes_read: float
    full_files: int

    @property
    def reads(self) -> float:
        """The bytes read, as a multiple of those after a full rewrite."""
        return self.bytes_read / self.full_bytes_read


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The rounds of one contender, and the bytes that all of them appended."""

    contender: Contender
    rounds: tuple[Round, ...]
    ingested_bytes: int

    @property
    def write_amplification(self) -> float:
        """The number of bytes that rewrites wrote per appended byte."""
        return sum(row.rewritten_bytes for row in self.rounds) / self.ingested_bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Question:
    """The queries after a round, and what they would read after a full rewrite."""

    points: Points
    full: "_Answer"
    full_files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    bytes_read: float
    narrow_bytes_read: float
    files_read: float


def simulate(
    setting: Setting, contenders: Sequence[Contender], first: SimulatedTable
) -> tuple[Course, ...]:
    """Return the course per contender, each starting from the table `first`."""
    _check(setting)
    for contender in contenders:
        check_policy(contender.policy)
    arriving = batches(setting.scenario, setting.rounds, rows=SAMPLED_ROWS, first=first)
    questions = tuple(_questions(setting, arriving, first))
    return tuple(
        Course(
            contender=contender,
            rounds=tuple(_course(setting, contender, arriving, questions, first)),
            ingested_bytes=setting.append_bytes * setting.rounds,
        )
        for contender in contenders
    )


def _check(setting: Setting) -> None:
    parse_curve(setting.curve)
    check_scenario(setting.scenario)
    for name in ("rounds", "append_bytes", "max_file_bytes"):
        if getattr(setting, name) <= 0:
            raise UsageError(f"{name} must be positive", name=name)


def _course(
    setting: Setting,
    contender: Contender,
    arriving: Sequence[Batch],
    questions: Sequence[_Question],
    table: SimulatedTable,
) -> Iterator[Round]:
    for number, (batch, question) in enumerate(zip(arriving, questions, strict=True), start=1):
        table = appended(table, batch, setting.append_bytes)
        made = _plan(table, contender)
        written = 0
        for group in made.groups:
            before = table.made
            table = applied(table, made, group.group_id, setting.curve)
            written += int(table.size[table.names >= before].sum())
        answer = _answer(table, question.points)
        yield Round(
            number=number,
            table_bytes=table.size_bytes,
            rewritten_bytes=written,
            files=len(table.size),
            cubes=len(np.unique(table.cube[table.cube >= 0])),
            average_depth=_average_depth(table),
            bytes_read=answer.bytes_read,
            narrow_bytes_read=answer.narrow_bytes_read,
            files_read=answer.files_read,
            full_bytes_read=question.full.bytes_read,
            full_narrow_bytes_read=question.full.narrow_bytes_read,
            full_files=question.full_files,
        )


def _plan(table: SimulatedTable, contender: Contender) -> ClusteringPlan:
    numbers = count()
    bounds = exact_bounds(table)
    return plan(
        as_snapshot(table),
        contender.policy,
        new_id=lambda: f"id-{next(numbers)}",
        strategy=contender.strategy,
        bounds_of=lambda _: bounds,
    )


def applied(
    table: SimulatedTable, made: ClusteringPlan, group_id: int, curve: str
) -> SimulatedTable:
    """Return the table after the rewrite of one group of a plan for it."""
    group = made.groups[group_id]
    files, kept = (
        np.flatnonzero(np.isin(table.names, some.columns["path"].cast(pa.int64()).to_numpy()))
        for some in (group.inputs, group.kept)
    )
    joined = in_next_cube(table, kept)
    return rewritten(joined, files, group.expected_outputs, curve=curve)


def _questions(
    setting: Setting, arriving: Sequence[Batch], table: SimulatedTable
) -> Iterator[_Question]:
    random = np.random.default_rng(_QUERIES)
    for batch in arriving:
        table = appended(table, batch, setting.append_bytes)
        asked = table.points[random.integers(0, len(table.points), _QUERIES)]
        live = (table.rows - table.deleted) / np.maximum(table.rows, 1)
        size = float(table.size @ live)
        outputs = max(1, int(size // setting.max_file_bytes))
        full = _whole(table, size, outputs, setting.curve)
        yield _Question(points=asked, full=_answer(full, asked), full_files=len(full.size))


def _whole(table: SimulatedTable, size: float, outputs: int, curve: str) -> SimulatedTable:
    _, parts = np.unique(placed(table.points, outputs, curve=curve), return_inverse=True)
    sizes = (size * np.bincount(parts) / len(parts)).astype(np.int64)
    nothing = SimulatedTable(
        **{
            name: getattr(table, name)[:0]
            for name in ("points", "ids", "owner", "low", "high", "size", "rows", "deleted")
        },
        cube=table.cube[:0],
        names=table.names[:0],
    )
    return with_files(nothing, table.points, table.ids, parts, sizes, cube=0)


def _answer(table: SimulatedTable, asked: Points) -> _Answer:
    meets = (table.low[None] <= asked[:, None]) & (asked[:, None] <= table.high[None])
    single = [meets[:, :, column] for column in range(table.columns)]
    narrow = meets.all(axis=2)
    kinds = single if table.columns == 1 else [*single, narrow]
    return _Answer(
        bytes_read=float(np.mean([(kind @ table.size).mean() for kind in kinds])),
        narrow_bytes_read=float((narrow @ table.size).mean()),
        files_read=float(np.mean([kind.sum(axis=1).mean() for kind in kinds])),
    )


def _average_depth(table: SimulatedTable) -> float:
    columns = [
        column_ranges(pa.array(table.low[:, column]), pa.array(table.high[:, column]))
        for column in range(table.columns)
    ]
    return round(float(depths(key_ranges(columns)).mean()), 4)
