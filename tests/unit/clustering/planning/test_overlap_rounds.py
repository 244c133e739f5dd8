"""Rounds of appends with the strategy `overlap`, executed: fewer bytes moved, no row lost."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from liquidlog.operations.past_commits import written_bytes
from liquidlog.table import Table
from support.arrow_executor import execute

ROUNDS = 10
ROWS = 3_000
MAX_FILE = 20_000


def batch(number: int) -> pa.Table:
    random = np.random.default_rng(number)
    return pa.table(
        {
            "id": np.arange(ROWS) + number * ROWS,
            "x": random.integers(0, 10**9, ROWS),
            "y": random.integers(0, 10**9, ROWS),
        }
    )


def play(path: Path, strategy: str) -> tuple[Table, float]:
    """Return the table after all rounds and how many bytes were rewritten for each appended."""
    table = Table.create(str(path), schema=batch(0).schema, cluster_by=["x", "y"])
    for number in range(ROUNDS):
        table.append(batch(number))
        plan = table.plan(strategy=strategy, max_file_size=MAX_FILE)
        table.commit(plan, execute(plan))
    amplification = written_bytes(table.opened.store)[-1].write_amplification
    assert amplification is not None
    return table, amplification


def rows_and_sums(table: Table) -> tuple[int, dict[str, int]]:
    paths = [str(Path(table.uri) / path) for path in table.files()["path"].to_pylist()]
    found = pa.concat_tables(pq.read_table(path) for path in paths)
    sums = {name: pc.sum(found[name]).as_py() for name in found.column_names}
    return len(found), sums


def bytes_read(table: Table) -> float:
    """Return the mean bytes that a query for one value of one column reads."""
    values = [10**9 * part // 23 for part in range(1, 23)]
    scans = [table.scan(f"{column} = {value}") for column in "xy" for value in values]
    return sum(scan.bytes_read for scan in scans) / len(scans)


def test_overlap_moves_fewer_bytes_and_reads_about_as_few(tmp_path: Path) -> None:
    cube, cube_amplification = play(tmp_path / "cube", "cube")
    ours, amplification = play(tmp_path / "overlap", "overlap")
    everything = pa.concat_tables(batch(number) for number in range(ROUNDS))
    expected = len(everything), {name: pc.sum(everything[name]).as_py() for name in "xy"}
    for table in (cube, ours):
        count, sums = rows_and_sums(table)
        assert (count, {name: sums[name] for name in "xy"}) == expected
        assert sums["id"] == pc.sum(everything["id"]).as_py()
    assert cube_amplification > 4
    assert amplification < cube_amplification / 1.5
    assert bytes_read(ours) < 1.4 * bytes_read(cube)
