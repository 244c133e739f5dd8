"""Finding rows by the tasks of an executor: the same rows, and a limit of its own."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.data import deleted_rows
from liquidlog.data.deleted_rows import DeletedRows, FoundRows, find_rows
from liquidlog.data.output_rows import FileLayout, Output
from liquidlog.errors import ReconcileLimitError, RowsNotFoundError
from support.deleted import LIMIT, layout_of, positions, write_input, write_output
from support.pickled_tasks import PickledTasks

Files = tuple[list[DeletedRows], list[Output], FileLayout]


def found_here(files: Files) -> FoundRows:
    deleted, outputs, layout = files
    return find_rows(deleted, outputs, layout=layout, limit_bytes=LIMIT)


def found_by(tasks: PickledTasks, files: Files, *, limit_bytes: int = 0) -> FoundRows:
    deleted, outputs, layout = files
    return find_rows(deleted, outputs, layout=layout, limit_bytes=limit_bytes, tasks=tasks)


def lists(found: FoundRows) -> list[list[int]]:
    return [rows.tolist() for rows in found.positions]


def files_of(path: Path, columns: Sequence[tuple[str]], *, wide: bool = False) -> Files:
    """Two inputs and six outputs; rows repeat, within an output and among them.

    Those of `wide` files do not, but bounds do not say where they are.
    """
    draw = np.random.default_rng(3)
    rows = pa.table(
        {"x": draw.integers(0, 1 if wide else 20, 240), "s": [f"s{n % 3}" for n in range(240)]}
    )
    if wide:
        rows = rows.append_column("payload", [[draw.bytes(300) for _ in range(240)]])
    layout = layout_of(rows.schema, columns=columns)
    deleted = [
        replace(
            write_input(path / f"i{n}.parquet", rows.slice(120 * n, 120), row_group_rows=12),
            positions=positions(range(n, 120, 7)),
        )
        for n in range(2)
    ]
    moved = rows.sort_by("x").take(pa.array(np.argsort(draw.integers(0, 3, 240), kind="stable")))
    outputs = [
        write_output(path / f"o{n}.parquet", moved.slice(40 * n, 40), layout, cuts=[15, 22])
        for n in range(6)
    ]
    return deleted, outputs, layout


@pytest.mark.parametrize("columns", [[], [("x",)], [("s",), ("x",)]])
@pytest.mark.parametrize("sent_bytes", [1 << 20, 1])
def test_tasks_find_the_rows_that_are_found_here(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    columns: list[tuple[str]],
    sent_bytes: int,
) -> None:
    files = files_of(tmp_path, columns)
    here = found_here(files)
    monkeypatch.setattr(deleted_rows, "_SENT_BYTES", sent_bytes)
    tasks = PickledTasks()
    found = found_by(tasks, files, limit_bytes=1 << 11)
    assert lists(found) == lists(here)
    assert (found.rows, found.checksum) == (here.rows, here.checksum) == (35, here.checksum)
    assert tasks.sent


def test_what_fits_the_limit_is_read_here(tmp_path: Path) -> None:
    tasks = PickledTasks()
    found_by(tasks, files_of(tmp_path, [("x",)]), limit_bytes=LIMIT)
    assert not tasks.sent


def test_tasks_read_three_times_what_the_outputs_hold_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted, outputs, layout = files_of(tmp_path, [], wide=True)
    monkeypatch.setattr(deleted_rows, "_SENT_BYTES", 1)
    monkeypatch.setattr(deleted_rows, "PART_BYTES", 1)
    with pytest.raises(ReconcileLimitError) as caught:
        found_by(PickledTasks(), (deleted, outputs, layout))
    sizes = [output.file.size_bytes for output in outputs]
    limit_bytes = 3 * sum([*sizes, *(one.source.size_bytes for one in deleted)])
    assert caught.value.limit_bytes == limit_bytes < caught.value.needed_bytes


def test_rows_that_no_task_finds_are_missing(tmp_path: Path) -> None:
    deleted, outputs, layout = files_of(tmp_path, [("x",)])
    with pytest.raises(RowsNotFoundError) as caught:
        found_by(PickledTasks(), (deleted, outputs[:1], layout))
    assert 0 < caught.value.missing < caught.value.rows == 35
