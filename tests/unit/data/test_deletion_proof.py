"""Rows read at the positions where they were found, and what refuses them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.data.checksum import multiset_checksum
from liquidlog.data.deleted_rows import FoundRows
from liquidlog.data.deletion_proof import require_found
from liquidlog.data.output_rows import FileLayout, Output
from liquidlog.errors import DataFileError, ReconcileLimitError, ResultMismatchError
from support.deleted import LIMIT, layout_of, positions, proved_rows, write_output

ROWS = pa.table({"x": list(range(10)), "s": [None, "a", "b", "a", "", "c", None, "d", "e", "zz"]})
CUTS = [3, 4, 8]


@pytest.fixture
def layout() -> FileLayout:
    return layout_of(ROWS.schema, columns=[("x",)])


@pytest.fixture
def outputs(tmp_path: Path, layout: FileLayout) -> list[Output]:
    return [
        write_output(tmp_path / f"{number}.parquet", ROWS, layout, cuts=CUTS) for number in range(2)
    ]


def found(*rows: list[int]) -> FoundRows:
    """Return rows of each output as a finder does that finds them."""
    taken = ROWS.take(pa.array([row for its in rows for row in its], pa.int64()))
    return FoundRows(
        positions=tuple(positions(its) for its in rows),
        rows=len(taken),
        bytes_read=0,
        checksum=multiset_checksum(taken),
    )


@pytest.mark.parametrize("rows", [[0], [9], [2, 3], [3, 4, 7, 8], list(range(10))])
def test_the_checksum_is_that_of_the_rows(
    outputs: list[Output], layout: FileLayout, rows: list[int]
) -> None:
    proved = proved_rows(outputs[0], positions(rows), layout)
    expected = ROWS.take(pa.array(rows, pa.int64()))
    assert proved.checksum == multiset_checksum(expected)
    assert np.array_equal(proved.positions, positions(rows))


def test_only_row_groups_with_such_rows_are_read(outputs: list[Output], layout: FileLayout) -> None:
    def bytes_read(rows: list[int]) -> int:
        return proved_rows(outputs[0], positions(rows), layout).bytes_read

    parts = [bytes_read([first]) for first in (0, *CUTS)]
    assert all(parts)
    assert bytes_read([0, 2, 9]) == parts[0] + parts[3]
    assert bytes_read(list(range(10))) == sum(parts)


def test_rows_that_are_there_are_proved(outputs: list[Output], layout: FileLayout) -> None:
    proved = require_found(outputs, found([1, 8], [3]), layout=layout, limit_bytes=LIMIT)
    assert [its.positions.tolist() for its in proved] == [[1, 8], [3]]


def test_equal_rows_of_another_output_do_as_well(outputs: list[Output], layout: FileLayout) -> None:
    exchanged = replace(found([1, 8], [3]), positions=(positions([3]), positions([1, 8])))
    assert require_found(outputs, exchanged, layout=layout, limit_bytes=LIMIT)


@pytest.mark.parametrize("where", [[1, 7], [1], [1, 7, 8], [1, 1], []])
def test_other_rows_are_refused(
    outputs: list[Output], layout: FileLayout, where: list[int]
) -> None:
    wrong = replace(found([1, 8], [3]), positions=(positions(where), positions([3])))
    with pytest.raises(ResultMismatchError, match="not the rows that other commits deleted"):
        require_found(outputs, wrong, layout=layout, limit_bytes=LIMIT)


def test_rows_that_are_deleted_already_are_refused(
    outputs: list[Output], layout: FileLayout
) -> None:
    earlier = [replace(outputs[0], deleted=positions([0, 8])), outputs[1]]
    with pytest.raises(ResultMismatchError):
        require_found(earlier, found([1, 8], [3]), layout=layout, limit_bytes=LIMIT)


def test_a_row_that_a_file_does_not_have_is_refused(
    outputs: list[Output], layout: FileLayout
) -> None:
    with pytest.raises(DataFileError, match="has no row 10"):
        proved_rows(outputs[0], positions([1, 10]), layout)


def test_the_limit_counts_all_outputs(outputs: list[Output], layout: FileLayout) -> None:
    rows = found([1, 8], [3])
    proved = require_found(outputs, rows, layout=layout, limit_bytes=LIMIT)
    needed_bytes = sum(its.bytes_read for its in proved)
    assert require_found(outputs, rows, layout=layout, limit_bytes=needed_bytes)
    with pytest.raises(ReconcileLimitError) as raised:
        require_found(outputs, rows, layout=layout, limit_bytes=needed_bytes - 1)
    assert raised.value.needed_bytes == needed_bytes
    assert raised.value.limit_bytes == needed_bytes - 1
