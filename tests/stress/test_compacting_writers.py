"""A writer that compacts clustered tables as delta-rs does unclustered ones, against OPTIMIZE.

Its check of conflicts passes over rewrites of others. Whatever it does before a commit of ours is
seen and doubles nothing; where it doubles rows after one, that is said and the files are named.
"""

import json
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random  # noqa: TID251  a test

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.errors import DoubledRowsWarning
from liquidlog.plan import ClusteringPlan, RewriteResult
from liquidlog.table import Table
from support.arrow_executor import execute
from support.effort import effort
from support.logs import added, write_actions

ROUNDS = effort(20, 100)
ROWS = range(12)
DOUBLED = "doubled-rows"


class CompactingWriter:
    """Another engine that appends and compacts: it writes files, then puts the next version."""

    def __init__(self, path: Path, chance: Random) -> None:
        self._path, self._chance = path, chance
        self.inputs: list[str] = []
        self.output = ""

    def read(self) -> "CompactingWriter":
        """Choose what to compact in the newest version, and write the file for it."""
        live = Table.open(str(self._path)).snapshot().paths().to_pylist()
        self.inputs = sorted(self._chance.sample(live, self._chance.randint(2, min(4, len(live)))))
        tables = [pq.read_table(self._path / name) for name in self.inputs]
        self.output = self._write(pa.concat_tables(tables))
        return self

    def compact(self) -> None:
        removes: list[dict[str, object]] = [
            {"remove": {"path": name, "dataChange": False, "deletionTimestamp": 1}}
            for name in self.inputs
        ]
        self._put("OPTIMIZE", [*removes, self._add(self.output, data_change=False)])

    def append(self, value: int) -> None:
        name = self._write(pa.table({"a": pa.array([value], pa.int64())}))
        self._put("WRITE", [self._add(name, data_change=True)])

    def _write(self, rows: pa.Table) -> str:
        name = f"other-{self._chance.getrandbits(64):016x}.parquet"
        pq.write_table(rows, self._path / name)
        return name

    def _add(self, name: str, *, data_change: bool) -> dict[str, object]:
        rows = pq.read_metadata(self._path / name).num_rows
        size_bytes, stats = (self._path / name).stat().st_size, json.dumps({"numRecords": rows})
        return added(name, size_bytes, stats=stats, dataChange=data_change)

    def _put(self, operation: str, actions: list[dict[str, object]]) -> None:
        version = len(list((self._path / "_delta_log").glob("*.json")))
        write_actions(self._path, version, {"commitInfo": {"operation": operation}}, *actions)


class Ground:
    """A table with a plan of two groups that was executed, and copies of it."""

    def __init__(self, home: Path) -> None:
        self._home = home
        schema = pa.schema([("a", pa.int64())])
        table = Table.create(str(home / "saved"), schema=schema, cluster_by=["a"])
        for first in ROWS[::2]:
            table.append(pa.table({"a": [first, first + 1]}))
        size = max(table.snapshot().files["size"].to_pylist())
        self.plan: ClusteringPlan = table.plan(min_cube_size=1, target_cube_size=3 * size)
        assert len(self.plan.groups) == 2
        self.result: RewriteResult = execute(self.plan)

    def copy(self, number: int) -> Path:
        return Path(shutil.copytree(self._home / "saved", self._home / str(number)))

    def commit(self, path: Path, writer: CompactingWriter | None = None) -> set[int]:
        """Commit both groups; a writer compacts after the first. Return those that landed."""
        waiting = [] if writer is None else [writer]

        def between(_: int) -> None:
            while waiting:
                waiting.pop().compact()

        table = Table.open(str(path))
        report = table.commit_each(self.plan, self.result.groups, on_commit=between)
        return set(report.committed_groups)

    def inputs(self, groups: set[int]) -> set[str]:
        return {file.path for number in groups for file in self.plan.groups[number].inputs}


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    home = tmp_path_factory.mktemp("compacting")
    yield Ground(home)
    shutil.rmtree(home)


def rows(path: Path) -> Counter[int]:
    live = Table.open(str(path)).snapshot().paths().to_pylist()
    tables = [pq.read_table(path / name, columns=["a"]) for name in live]
    return Counter(pa.concat_tables(tables)["a"].to_pylist())


def named_files(path: Path) -> str:
    """Return what `doctor` says of doubled rows, empty if it finds none."""
    found = [one.detail for one in Table.open(str(path)).doctor() if one.name == DOUBLED]
    return "".join(found)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_what_lands_before_ours_doubles_nothing(ground: Ground, seed: int) -> None:
    chance = Random(seed)
    path = ground.copy(seed)
    writer = CompactingWriter(path, chance)
    expected = Counter(ROWS)
    for value in range(100, 100 + chance.randint(0, 2)):
        writer.append(value)
        expected[value] += 1
    writer.read().compact()
    with warnings.catch_warnings():
        warnings.simplefilter("error", DoubledRowsWarning)
        landed = ground.commit(path)
    assert not ground.inputs(landed) & set(writer.inputs)
    assert rows(path) == expected
    assert named_files(path) == ""
    shutil.rmtree(path)


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.filterwarnings("always::liquidlog.errors.DoubledRowsWarning")
def test_what_lands_after_ours_is_named_where_it_doubles_rows(ground: Ground, seed: int) -> None:
    chance = Random(seed)
    path = ground.copy(ROUNDS + seed)
    writer = CompactingWriter(path, chance).read()
    is_between = chance.random() < 0.5
    with warnings.catch_warnings(record=True) as caught:
        landed = ground.commit(path, writer if is_between else None)
    if not is_between:
        writer.compact()
    again = ground.inputs(landed) & set(writer.inputs)
    found, said = rows(path), named_files(path)
    assert set(found) == set(ROWS)
    assert sum(found.values()) == len(ROWS) + 2 * len(again)
    assert (writer.output in said) == bool(again)
    warned = [one for one in caught if one.category is DoubledRowsWarning]
    assert bool(warned) == (is_between and bool(again))
    doubled = {value for value, count in found.items() if count > 1}
    for name in Table.open(str(path)).snapshot().paths().to_pylist():
        holds = pq.read_table(path / name, columns=["a"])["a"].to_pylist()
        assert name in said or doubled.isdisjoint(holds)
    shutil.rmtree(path)
