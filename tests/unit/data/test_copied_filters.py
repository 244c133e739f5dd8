"""Bloom filters of copied row groups: where the footer says, those of their source, or none."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake

from liquidlog.data.concatenation import ConcatenatedFile, CopySource
from liquidlog.data.footer import Chunk, Footer, framed, read_footer
from liquidlog.data.reader import DataFile
from liquidlog.data.row_group_digest import stored_digests
from liquidlog.data.thrift import I32
from liquidlog.plan import WriterOptions
from liquidlog.spec.arrow import delta_schema

GROUP_ROWS = 2_000
FILES = 3
FILTERS = {"id": {"ndv": GROUP_ROWS, "fpp": 0.01}, "text": {"ndv": GROUP_ROWS, "fpp": 0.01}}
BLOOM_OFFSET, BLOOM_BYTES = 14, 15


def rows(seed: int) -> pa.Table:
    """Rows in no order: bounds of row groups say nothing of a value."""
    numbers = np.random.default_rng(seed).permutation(3 * GROUP_ROWS) * FILES + seed
    return pa.table(
        {
            "id": pa.array(numbers * 7, pa.int64()),
            "text": [f"name {number * 7}" for number in numbers.tolist()],
            "plain": pa.array(numbers, pa.int64()),
        }
    )


def write(path: Path, seed: int, **options: Any) -> None:
    settings = {"compression": "zstd", "write_page_index": True, "bloom_filter_options": FILTERS}
    pq.write_table(rows(seed), path, row_group_size=GROUP_ROWS, **(settings | options))


def source(path: Path) -> CopySource:
    schema = delta_schema(rows(0).schema)
    return CopySource.of(
        DataFile.open(str(path), schema=schema), schema, WriterOptions(indexed=(("id",),))
    )


def joined(directory: Path, change: Callable[[Path], None] = lambda _: None) -> Path:
    """Join files with filters, rows between them, into the one file of a new table."""
    (directory / "table").mkdir()
    path = directory / "table" / "out.parquet"
    sources = []
    for number in range(FILES):
        write(directory / f"{number}.parquet", number)
        change(directory / f"{number}.parquet")
        sources.append(source(directory / f"{number}.parquet"))
    with ConcatenatedFile(
        str(path),
        schema=delta_schema(rows(0).schema),
        options=WriterOptions(indexed=(("id",),)),
        footer_schema=sources[0].footer.schema,
    ) as file:
        digests = []
        for number, one in enumerate(sources):
            digests += [file.copy(one, group) for group in range(3)]
            file.write(rows(FILES + number).slice(0, 50))
        file.finish(path.name)
        assert stored_digests(str(path), file.copied)[1] == digests
    return path


def chunks_of(path: Path) -> list[Chunk]:
    content = path.read_bytes()
    footer, _ = read_footer(io.BytesIO(content), len(content))
    return [chunk for group in footer.row_groups for chunk in group.chunks]


def stored(path: Path, chunks: list[Chunk]) -> list[bytes]:
    content = path.read_bytes()
    spans = [chunk.bloom_filter for chunk in chunks if chunk.bloom_filter is not None]
    return [content[start : start + size] for start, size in spans]


def test_filters_are_those_of_the_sources_where_the_footer_says(tmp_path: Path) -> None:
    path = joined(tmp_path)
    of_sources = [
        filter_
        for number in range(FILES)
        for name in [tmp_path / f"{number}.parquet"]
        for filter_ in stored(name, chunks_of(name))
    ]
    assert len(of_sources) == FILES * 3 * len(FILTERS)
    assert stored(path, chunks_of(path)) == of_sources
    found = pq.read_metadata(path)
    for number in range(found.num_row_groups):
        group = found.row_group(number)
        is_copy = group.num_rows == GROUP_ROWS
        offsets = [group.column(place).bloom_filter_offset for place in range(3)]
        assert [offset is not None for offset in offsets] == [is_copy, is_copy, False]


def by_duckdb(path: Path, condition: str) -> list[Any]:
    query = f"select plain from read_parquet('{path}') where {condition}"
    return sorted(value for (value,) in duckdb.connect().execute(query).fetchall())


def by_datafusion(path: Path, condition: str) -> list[Any]:
    table = DeltaTable(str(path.parent))
    query = QueryBuilder().register("t", table)
    found = query.execute(f"select plain from t where {condition}").read_all()
    return sorted(pa.table(found)["plain"].to_pylist())


READERS = [by_duckdb, by_datafusion]


def conditions(number: int) -> tuple[str, str]:
    return f"id = {number * 7}", f"text = 'name {number * 7}'"


@pytest.mark.parametrize("read", READERS)
def test_every_row_is_found_by_equality(
    tmp_path: Path, read: Callable[[Path, str], list[Any]]
) -> None:
    path = joined(tmp_path)
    convert_to_deltalake(str(path.parent))
    everything = pq.read_table(path)["plain"].to_pylist()
    for number in everything[::1_499]:
        for condition in conditions(number):
            assert read(path, condition) == [number] * everything.count(number)
    assert [read(path, one) for one in ("id = 8", "text = 'name 8'")] == [[], []]


@pytest.mark.parametrize("read", READERS)
def test_readers_ask_the_filters_where_they_are_now(
    tmp_path: Path, read: Callable[[Path, str], list[Any]]
) -> None:
    """Filters of zeros hold nothing: who asks them finds no row of a copied row group."""
    path = joined(tmp_path)
    convert_to_deltalake(str(path.parent))
    content = bytearray(path.read_bytes())
    for start, size in (c.bloom_filter for c in chunks_of(path) if c.bloom_filter is not None):
        content[start + 32 : start + size] = bytes(size - 32)
    path.write_bytes(content)
    copied = pq.ParquetFile(path).read_row_group(4)["plain"][3].as_py()
    encoded = pq.ParquetFile(path).read_row_group(3)["plain"][3].as_py()
    for condition in conditions(copied):
        assert read(path, condition) == []
    for condition in conditions(encoded):
        assert read(path, condition) == [encoded]


def without_length(column: dict[int, Any]) -> None:
    del column[BLOOM_BYTES]


def cut_off(column: dict[int, Any]) -> None:
    column[BLOOM_BYTES] = (I32, column[BLOOM_BYTES][1] - 1)


def of_something_else(column: dict[int, Any]) -> None:
    column[BLOOM_OFFSET] = (column[BLOOM_OFFSET][0], column[BLOOM_OFFSET][1] + 1)


@pytest.mark.parametrize("change", [without_length, cut_off, of_something_else])
def test_a_filter_that_is_not_whole_is_left_out(
    tmp_path: Path, change: Callable[[dict[int, Any]], None]
) -> None:
    def changed(path: Path) -> None:
        content = path.read_bytes()
        footer, start = read_footer(io.BytesIO(content), len(content))
        change(footer.row_groups[1].chunks[0].column)  # type: ignore[arg-type]
        path.write_bytes(content[:start] + framed(Footer(footer.fields)))

    path = joined(tmp_path, changed)
    found = chunks_of(path)
    kept = [chunk.bloom_filter is not None for chunk in found]
    group = [True, True, False]
    assert kept == ([*group, False, True, False, *group] + [False] * 3) * FILES
    assert all(BLOOM_OFFSET not in chunk.column for chunk in found if chunk.bloom_filter is None)
    everything = pq.read_table(path)["plain"].to_pylist()
    for number in everything[::1_499]:
        assert by_duckdb(path, conditions(number)[0]) == [number] * everything.count(number)
