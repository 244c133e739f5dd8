from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from liquidlog.data.logical_file import Located
from liquidlog.plan import InputFile, WriterOptions
from liquidlog.rewriting.layout import slices_per_output
from liquidlog.rewriting.source import (
    GroupWork,
    Split,
    open_logical_file,
    read_bounded,
    read_splits,
    rows_at_a_time,
    split_file,
    survey_file,
)
from support.deleted import write_vector
from support.plans import schema_json_of, write_inputs
from support.tasks import located


@given(
    sizes=st.lists(st.integers(0, 50), max_size=20),
    first=st.integers(0, 10**12),
    max_rows=st.integers(1, 120),
)
def test_splits_cover_all_rows_once_in_order(sizes: list[int], first: int, max_rows: int) -> None:
    splits = list(split_file(3, sizes, first_ordinal=first, max_rows=max_rows))
    covered = [group for split in splits for group in split.row_groups]
    assert covered == sorted(set(covered))
    assert sum(split.rows for split in splits) == sum(sizes)
    assert [sizes[i] for i in range(len(sizes)) if i not in covered] == [0] * (
        len(sizes) - len(covered)
    )
    for split in splits:
        assert split.file == 3
        assert split.rows == sum(sizes[group] for group in split.row_groups)
        assert split.first_ordinal == first + sum(sizes[: split.row_groups[0]])
        assert split.rows <= max_rows or sum(sizes[g] > 0 for g in split.row_groups) == 1


def work_of(directory: Path, file: InputFile) -> GroupWork:
    return GroupWork(
        directory=str(directory),
        inputs=located(directory, [file]),
        outputs=1,
        schema_string=schema_json_of({"key": "long"}),
        columns=(("key",),),
        curve=None,
        writer_options=WriterOptions(indexed=(("key",),)),
        token="0" * 12,
        slice_bytes=1 << 20,
    )


def test_deleted_rows_do_not_make_the_parts_of_a_row_group_smaller(tmp_path: Path) -> None:
    rows, kept = 50_000, range(0, 50_000, 5_000)
    table = pa.table({"key": pa.array(range(rows), pa.int64())})
    (written,) = write_inputs(tmp_path, table, 1, row_group_rows=rows)
    vector = write_vector(tmp_path / "vector.bin", set(range(rows)) - set(kept))
    source = structs.replace(written, deletion_vector=vector)
    work = replace(
        work_of(tmp_path, source),
        inputs=(Located(source, str(tmp_path / source.path), str(tmp_path / "vector.bin")),),
        slice_bytes=written.size_bytes // 100,
    )
    with open_logical_file(work, 0) as file:
        max_rows = rows_at_a_time(work, 0, file, [0])
        assert 50 <= len(list(read_bounded(file, None, [0], max_rows=max_rows))) <= 150
    parts = list(read_splits(work, [Split(0, (0,), 5, len(kept))]))
    assert pa.concat_tables([part for part, _ in parts])["key"].to_pylist() == list(kept)
    assert [first - 5 for _, first in parts] == list(
        accumulate((len(part) for part, _ in parts[:-1]), initial=0)
    )


@pytest.mark.parametrize("files", [1, 3, 40])
def test_small_files_are_read_together(tmp_path: Path, files: int) -> None:
    rows = 40_000
    table = pa.table({"key": pa.array(range(rows), pa.int64())})
    inputs = write_inputs(tmp_path, table, files, row_group_rows=rows)
    work = replace(
        work_of(tmp_path, inputs[0]),
        inputs=located(tmp_path, inputs),
        slice_bytes=sum(file.size_bytes for file in inputs) // 4,
    )
    sizes = [survey_file(work, number, sample_rows=0).num_rows for number in range(files)]
    splits = [
        Split(number, (0,), 5 + first, size)
        for number, (first, size) in enumerate(
            zip(accumulate(sizes, initial=0), sizes, strict=False)
        )
    ]
    parts = list(read_splits(work, splits))
    assert 3 <= len(parts) <= 6
    apart = [rows for split in splits for rows, _ in read_splits(work, [split])]
    assert pa.concat_tables([part for part, _ in parts]) == pa.concat_tables(apart)
    assert [first - 5 for _, first in parts] == list(
        accumulate((len(part) for part, _ in parts[:-1]), initial=0)
    )


def test_well_compressed_rows_do_not_fill_the_memory(tmp_path: Path) -> None:
    rows = 200_000
    table = pa.table({"key": pa.array([7] * rows, pa.int64())})
    (written,) = write_inputs(tmp_path, table, 1, row_group_rows=rows)
    work = replace(work_of(tmp_path, written), slice_bytes=written.size_bytes)
    memory_bytes = 8 * work.slice_bytes
    assert table.nbytes > 10 * memory_bytes
    sizes = [part.nbytes for part, _ in read_splits(work, [Split(0, (0,), 0, rows)])]
    assert max(sizes) <= 1.1 * memory_bytes
    assert slices_per_output(work, memory_bytes=table.nbytes) >= table.nbytes / memory_bytes
