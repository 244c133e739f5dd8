"""A simulated table keeps its rows whatever becomes of its files, and planners see it whole."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.zcubes import membership
from liquidlog.simulation.table import (
    NO_CUBE,
    SimulatedTable,
    as_snapshot,
    empty_table,
    exact_bounds,
    rewritten,
    with_files,
    without_rows,
)
from liquidlog.snapshot import FILES_SCHEMA, deleted_rows, num_records

ROWS = 400
FILES = 8


def appended() -> SimulatedTable:
    points = np.random.default_rng(7).random((ROWS, 2))
    parts = np.arange(ROWS) * FILES // ROWS
    return with_files(empty_table(2), points, np.arange(ROWS), parts, np.full(FILES, 1_000))


def test_a_rewrite_keeps_the_rows_and_narrows_the_files() -> None:
    before = appended()
    after = rewritten(before, np.arange(FILES), FILES, curve="hilbert")
    assert np.array_equal(np.sort(after.ids), np.arange(ROWS))
    assert np.array_equal(after.points[np.argsort(after.ids)], before.points)
    assert (after.high - after.low).mean() < 0.7 * (before.high - before.low).mean()
    assert set(after.cube.tolist()) == {0}
    assert after.rows.sum() == ROWS
    assert 0.99 * before.size_bytes < after.size_bytes <= before.size_bytes


def test_a_rewrite_leaves_other_files_and_drops_deleted_rows() -> None:
    before = without_rows(appended(), np.arange(10))
    assert before.deleted.tolist() == [10, *[0] * (FILES - 1)]
    after = rewritten(before, np.array([0, 1]), 1, curve="hilbert")
    assert after.names[: FILES - 2].tolist() == before.names[2:].tolist()
    assert after.cube.tolist() == [*[NO_CUBE] * (FILES - 2), 0]
    assert (after.rows.sum(), after.deleted.sum()) == (ROWS - 10, 0)
    assert after.size[-1] == 1_000 * (1 + 40 / 50)


def test_planners_see_files_cubes_and_deleted_rows() -> None:
    table = rewritten(without_rows(appended(), np.arange(10)), np.array([6, 7]), 2, curve="hilbert")
    snapshot = as_snapshot(table)
    columns = clustering_state(snapshot).columns
    places = membership(snapshot.files, columns)
    assert snapshot.files.schema == FILES_SCHEMA
    assert [column.name for column in columns] == ["k0", "k1"]
    assert places.in_cube.tolist() == (table.cube != NO_CUBE).tolist()
    assert (places.ours & places.same_columns)[places.in_cube].all()
    assert deleted_rows(snapshot.files).to_pylist() == table.deleted.tolist()
    assert num_records(snapshot.files).to_pylist() == table.rows.tolist()
    assert snapshot.size_bytes == table.size_bytes


def test_bounds_are_those_of_the_rows() -> None:
    table = appended()
    bounds = exact_bounds(table)
    assert bounds.all_known().all()
    for number in range(2):
        rows = pa.table({"file": table.owner, "key": table.points[:, number]})
        ends = rows.group_by("file").aggregate([("key", "min"), ("key", "max")]).sort_by("file")
        assert pc.all(pc.equal(ends["key_min"], bounds.low(number))).as_py()
        assert pc.all(pc.equal(ends["key_max"], bounds.high(number))).as_py()
