"""Copies of outputs without some rows: what is left, in which order, and what refuses them."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.data import deletion_proof
from liquidlog.data.deletion_proof import ProvedRows, write_without
from liquidlog.data.evidence import footer_problems
from liquidlog.data.output_rows import FileLayout, Output
from liquidlog.data.runs import Run
from liquidlog.data.statistics import rescan
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import DataFileError, ExecutorError, ResultMismatchError
from liquidlog.plan import RowTracking
from liquidlog.spec.bounds import encode_stats
from support.deleted import (
    as_texts,
    layout_of,
    live_rows,
    physical_rows,
    positions,
    proved_rows,
    without,
    write_input,
    write_output,
)

ROWS = pa.table(
    {
        "x": list(range(10)),
        "s": [None, "a", "b", "a", "", "c", None, "d", "e", "zz"],
        "f": [0.0, -0.0, float("nan"), 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, float("inf")],
        "l": [[n] * (n % 3) for n in range(10)],
    }
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(str(tmp_path), "0123456789ab")
    run.begin()
    return run


def rows_of(output: Output, rows: Iterable[int], layout: FileLayout) -> ProvedRows:
    return proved_rows(output, positions(rows), layout)


def test_a_copy_has_the_other_rows_in_their_order_and_says_so(run: Run, tmp_path: Path) -> None:
    layout = layout_of(ROWS.schema, columns=[("x",)])
    output = write_output(tmp_path / "o.parquet", ROWS, layout, cuts=[4, 6])
    earlier = replace(output, deleted=positions([0, 9]))
    gone = [4, 5, 7]
    written = write_without(
        run, earlier, rows_of(earlier, gone, layout), layout=layout, unique_id="a"
    )
    assert run.files() == (written.path,)
    address = str(tmp_path / written.path)
    assert as_texts(physical_rows(address, layout)) == as_texts(without(ROWS, [0, 9, *gone]))
    assert written.num_records == 5
    assert written.size_bytes == Path(address).stat().st_size
    exact = rescan(address, schema=layout.schema, options=layout.options)
    assert written.stats == encode_stats(exact)
    assert json.loads(written.stats)["minValues"]["x"] == 1
    assert json.loads(written.stats)["maxValues"]["x"] == 8
    assert not footer_problems(address, written, layout.schema)
    assert as_texts(physical_rows(output.address, layout)) == as_texts(ROWS)


def test_row_ids_stay_with_their_rows(run: Run, tmp_path: Path) -> None:
    tracking = RowTracking(
        row_id_column="_id", row_commit_version_column="_version", preserved=True
    )
    layout = layout_of(ROWS.schema, row_tracking=tracking)
    tracked = live_rows(write_input(tmp_path / "i.parquet", ROWS, first=70), layout)
    output = write_output(tmp_path / "o.parquet", tracked.take(pa.array([3, 1, 2])), layout)
    written = write_without(run, output, rows_of(output, [1], layout), layout=layout, unique_id="a")
    left = physical_rows(str(tmp_path / written.path), layout)
    assert left["_id"].to_pylist() == [73, 72]


def test_a_copy_of_a_copy_has_another_name(run: Run, tmp_path: Path) -> None:
    layout = layout_of(ROWS.schema)
    output = write_output(tmp_path / "o.parquet", ROWS, layout)
    names = {
        write_without(
            run, output, rows_of(output, [row], layout), layout=layout, unique_id=str(row)
        ).path
        for row in range(2)
    }
    assert len(names) == 2
    assert set(run.files()) == names


def test_nothing_is_written_where_no_row_would_be_left(run: Run, tmp_path: Path) -> None:
    layout = layout_of(ROWS.schema)
    output = write_output(tmp_path / "o.parquet", ROWS, layout)
    earlier = replace(output, deleted=positions(range(5)))
    with pytest.raises(ValueError, match="no row would be left"):
        write_without(
            run, earlier, rows_of(earlier, range(5, 10), layout), layout=layout, unique_id="a"
        )
    assert run.files() == ()


def test_a_copy_of_a_run_that_ended_is_deleted(run: Run, tmp_path: Path) -> None:
    layout = layout_of(ROWS.schema)
    output = write_output(tmp_path / "o.parquet", ROWS, layout)
    run.retire()
    with pytest.raises(ExecutorError, match="ended by another process"):
        write_without(run, output, rows_of(output, [1], layout), layout=layout, unique_id="a")
    assert run.files() == ()


@pytest.mark.parametrize("wrong", ["one row more", "one row less", "another row"])
def test_a_copy_that_holds_other_rows_is_deleted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    layout = layout_of(ROWS.schema)
    output = write_output(tmp_path / "o.parquet", ROWS, layout)

    class Careless(DataFileWriter):
        def write(self, table: pa.Table) -> None:
            row = table.slice(0, 1)
            changed = {
                "one row more": [table, row],
                "one row less": [table.slice(1)],
                "another row": [table.slice(2), row, row],
            }[wrong]
            super().write(pa.concat_tables(changed))

    monkeypatch.setattr(deletion_proof, "DataFileWriter", Careless)
    with pytest.raises(ResultMismatchError, match="does not hold the rows that it should"):
        write_without(run, output, rows_of(output, [1], layout), layout=layout, unique_id="a")
    assert run.files() == ()


def test_rows_that_are_not_those_that_were_found_are_not_left_out(run: Run, tmp_path: Path) -> None:
    layout = layout_of(ROWS.schema)
    output = write_output(tmp_path / "o.parquet", ROWS, layout)
    found = rows_of(output, [1, 4], layout)
    moved = replace(found, positions=positions([1, 5]))
    with pytest.raises(ResultMismatchError, match="not those that were found"):
        write_without(run, output, moved, layout=layout, unique_id="a")
    run.discard()
    assert run.files() == ()


def test_an_output_that_is_not_what_was_said_of_it_is_refused(run: Run, tmp_path: Path) -> None:
    layout = layout_of(ROWS.schema)
    output = write_output(tmp_path / "o.parquet", ROWS, layout)
    other = write_output(tmp_path / "p.parquet", ROWS.slice(1), layout)
    swapped = replace(output, address=other.address)
    with pytest.raises(DataFileError):
        write_without(run, swapped, rows_of(swapped, [1], layout), layout=layout, unique_id="a")
    assert run.files() == ()
