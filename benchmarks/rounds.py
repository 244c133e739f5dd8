"""Rounds of append, plan, rewrite and measure on tables that are made up: no file, no clock.

A table is the keys of a sample of made-up rows, and the file that each row is in. Planners see it
as an ordinary Snapshot with exact bounds. A rewrite places the sampled rows with the executor's own
kernels, so that its files are as uneven as real ones.

The scenarios of appends are those of Microsoft's benchmark of incremental clustering
(fabric-spark-benchmarks): a stream in the order of the first column; merges, where a tenth of the
rows replaces earlier rows and every 30th round fills in old keys; and appends over the whole key
range.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

import numpy as np
import pyarrow as pa
from imagined import ImaginedFiles, Points, Rows, imagined_table
from numpy.typing import NDArray

from liquidlog.clustering.health import column_ranges, depths, key_ranges, placed
from liquidlog.clustering.planner import plan
from liquidlog.curve.curves import parse_curve
from liquidlog.errors import UsageError
from liquidlog.plan import ClusteringPlan, ClusteringPolicy
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds, ColumnBounds
from liquidlog.spec.text import one

NO_CUBE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulatedTable:
    """A sample of a table's live rows, and its files.

    Per row: `points` (float64, rows by columns) has its keys, `ids` its id in the order of arrival,
    `owner` the number of its file. Per file: `low` and `high` (float64, files by columns) are the
    bounds, `size` is in bytes, `rows` and `deleted` count sampled rows, `cube` is its cube or
    NO_CUBE, and `names` is a number that stays the same when its position changes. `cubes` and
    `made` count the cubes and files made so far.
    """

    points: Points
    ids: Rows
    owner: Rows
    low: Points
    high: Points
    size: Rows
    rows: Rows
    deleted: Rows
    cube: Rows
    names: Rows
    cubes: int = 0
    made: int = 0

    @property
    def columns(self) -> int:
        """The number of clustering columns."""
        return int(self.points.shape[1])

    @property
    def size_bytes(self) -> int:
        """The bytes of all files."""
        return int(self.size.sum())


def empty_table(columns: int) -> SimulatedTable:
    """Return a table without rows."""
    nothing = np.zeros(0, np.int64)
    return SimulatedTable(
        points=np.zeros((0, columns)),
        ids=nothing,
        owner=nothing,
        low=np.zeros((0, columns)),
        high=np.zeros((0, columns)),
        size=nothing,
        rows=nothing,
        deleted=nothing,
        cube=nothing,
        names=nothing,
    )


def with_files(
    table: SimulatedTable,
    points: Points,
    ids: Rows,
    parts: Rows,
    size: Rows,
    *,
    cube: int = NO_CUBE,
) -> SimulatedTable:
    """Return the table with new files: row i is in file `parts[i]`, file j has `size[j]` bytes."""
    count = len(size)
    low, high = np.full((count, table.columns), np.inf), np.full((count, table.columns), -np.inf)
    np.minimum.at(low, parts, points)
    np.maximum.at(high, parts, points)
    return replace(
        table,
        points=np.concatenate([table.points, points]),
        ids=np.concatenate([table.ids, ids]),
        owner=np.concatenate([table.owner, parts + len(table.size)]),
        low=np.concatenate([table.low, low]),
        high=np.concatenate([table.high, high]),
        size=np.concatenate([table.size, size]),
        rows=np.concatenate([table.rows, np.bincount(parts, minlength=count)]),
        deleted=np.concatenate([table.deleted, np.zeros(count, np.int64)]),
        cube=np.concatenate([table.cube, np.full(count, cube)]),
        names=np.concatenate([table.names, table.made + np.arange(count)]),
        made=table.made + count,
    )


def without_rows(table: SimulatedTable, ids: Rows) -> SimulatedTable:
    """Return the table with some of its rows deleted by deletion vectors."""
    gone = np.isin(table.ids, ids)
    deleted = table.deleted + np.bincount(table.owner[gone], minlength=len(table.size))
    return replace(_with_rows(table, ~gone), deleted=deleted)


def _with_rows(table: SimulatedTable, mask: NDArray[np.bool_]) -> SimulatedTable:
    return replace(table, points=table.points[mask], ids=table.ids[mask], owner=table.owner[mask])


def rewritten(table: SimulatedTable, files: Rows, outputs: int, *, curve: str) -> SimulatedTable:
    """Return the table after a rewrite of some files into one cube of about `outputs` files."""
    kept = np.ones(len(table.size), np.bool_)
    kept[files] = False
    stays = kept[table.owner]
    points, ids = table.points[~stays], table.ids[~stays]
    live = (table.rows - table.deleted) / np.maximum(table.rows, 1)
    size = float(table.size[~kept] @ live[~kept])
    rest = _with_rows(table, stays)
    rest = replace(
        rest,
        owner=(np.cumsum(kept) - 1)[rest.owner],
        cubes=table.cubes + 1,
        **{name: getattr(table, name)[kept] for name in _FILE_ARRAYS},
    )
    if not len(points):
        return rest
    _, parts = np.unique(placed(points, outputs, curve=curve), return_inverse=True)
    made = np.maximum((size * np.bincount(parts) / len(parts)).astype(np.int64), 1)
    return with_files(rest, points, ids, parts, made, cube=table.cubes)


def in_next_cube(table: SimulatedTable, files: Rows) -> SimulatedTable:
    """Return the table with some files in the cube that the next rewrite makes."""
    cube = table.cube.copy()
    cube[files] = table.cubes
    return replace(table, cube=cube)


_FILE_ARRAYS: Final = ("low", "high", "size", "rows", "deleted", "cube", "names")


def as_snapshot(table: SimulatedTable) -> Snapshot:
    """Return the table as planners see it: a snapshot with these live files in this order."""
    cubes = [None if cube == NO_CUBE else f"cube-{cube:08d}" for cube in table.cube.tolist()]
    return imagined_table(
        [f"k{number}" for number in range(table.columns)],
        ImaginedFiles(
            paths=pa.array([f"{name:09d}" for name in table.names.tolist()], pa.string()),
            size_bytes=table.size,
            num_records=pa.array(table.rows),
            deleted_rows=table.deleted,
            zcube_id=pa.array(cubes, pa.string()),
        ),
    )


def exact_bounds(table: SimulatedTable) -> Bounds:
    """Return the bounds of all columns, one entry per file; no row is null."""
    no_nulls = pa.array(np.zeros(len(table.size), np.int64))
    return Bounds(
        columns=tuple(
            ColumnBounds(low=pa.array(low), high=pa.array(high), null_count=no_nulls)
            for low, high in zip(table.low.T, table.high.T, strict=True)
        ),
        num_records=pa.array(table.rows),
    )


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
