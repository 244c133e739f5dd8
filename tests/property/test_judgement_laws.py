"""What is recommended does not make readers worse: rewritten for good, and read row by row.

Tables are small, so opening a file is made cheap and files are made small: else whatever joins
files would be worth it.
"""

import tempfile
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import event, given, settings
from hypothesis import strategies as st

from liquidlog.foresee import candidates, plans
from liquidlog.foresee.prediction import StoreProfile
from liquidlog.table import Table
from support.arrow_executor import execute
from support.effort import effort

_COLUMNS = ("x", "y")
_READERS = 60
_STORE = StoreProfile(
    name="cheap", latency_seconds=0.001, bytes_per_second=1e6, requests_at_once=2, start_seconds=0.0
)
_SIZES = ((64 << 10, 1_000), (16 << 10, 1_000), (4 << 10, 100))


@st.composite
def appends(draw: st.DrawFn) -> list[pa.Table]:
    """Rows per append: of all values, of a window that moves, or of few values."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    made = []
    for number in range(draw(st.integers(2, 14))):
        count = draw(st.sampled_from([20, 300, 3000]))
        columns = []
        for _ in _COLUMNS:
            match draw(st.sampled_from(["all", "window", "few"])):
                case "all":
                    values = random.integers(0, 10**6, count)
                case "window":
                    values = number * 50_000 + random.integers(0, 60_000, count)
                case _:
                    values = random.integers(0, 5, count) * 1000
            columns.append(pa.array(values, pa.int64()))
        columns.append(pa.array(random.integers(0, 2**62, count)))
        made.append(pa.table(columns, names=[*_COLUMNS, "z"]))
    return made


def mean_cost(table: Table, readers: list[tuple[str, int]]) -> float:
    """Return the mean cost of readers of one value, by the rows that the files really hold."""
    files = []
    for row in table.files().to_pylist():
        content = pq.read_table(f"{table.uri}/{row['path']}", columns=list(_COLUMNS))
        ends = {
            name: (pc.min(content[name]).as_py(), pc.max(content[name]).as_py())
            for name in _COLUMNS
        }
        files.append((row["size_bytes"], ends))
    found = []
    for name, value in readers or [("", 0)]:
        opened = [
            size for size, ends in files if not name or ends[name][0] <= value <= ends[name][1]
        ]
        found.append(_STORE.seconds(len(opened), sum(opened)))
    return float(np.mean(found))


@settings(max_examples=effort(12, 400), deadline=None)
@given(appends(), st.sampled_from([(), ("x",), ("x", "y")]), st.integers(0, 1 << 20))
def test_readers_are_not_worse_off(
    data: list[pa.Table], columns: tuple[str, ...], seed: int
) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        mock.patch.object(plans, "LOCAL_DISK", _STORE),
        mock.patch.object(candidates, "_SMALLER", _SIZES),
    ):
        table = Table.create(f"{directory}/t", schema=data[0].schema, cluster_by=columns)
        for rows in data[:-1]:
            table.append(rows)
        if seed % 2:
            made = table.plan(max_file_size=20_000)
            if made.groups:
                table.commit(made, execute(made))
        table.append(data[-1])
        best = table.judge().best
        event("left alone" if best is None else best.name)
        if best is None:
            return
        everything, random = pa.concat_tables(data), np.random.default_rng(seed)
        readers = [
            (name, everything[name][int(row)].as_py())
            for name in columns  # without any, readers read everything
            for row in random.integers(0, len(everything), _READERS)
        ]
        before = mean_cost(table, readers)
        table.commit(best.plan, execute(best.plan))
        assert mean_cost(table, readers) <= before
