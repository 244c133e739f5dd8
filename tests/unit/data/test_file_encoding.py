"""Which columns get dictionaries and which go without the codec, and how large pages are."""

import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake

from liquidlog.data.file_encoding import (
    ColumnBytes,
    FileEncoding,
    Trial,
    left_uncompressed,
    worth_dictionaries,
)
from liquidlog.data.writer import DataFileWriter, encoded_bytes
from liquidlog.plan import WriterOptions
from liquidlog.spec.arrow import delta_schema

ROWS = 40_000
CODECS = ("zstd", "snappy", "gzip", "lz4_raw")


def table(rows: int = ROWS) -> pa.Table:
    random = np.random.default_rng(3)
    words = [f"a word that stands here often, {n}" for n in range(300)]
    modes = pa.array(["air", "mail", "rail", "ship"])
    return pa.table(
        {
            "id": random.integers(-(1 << 62), 1 << 62, rows),
            "mode": modes.take(pa.array(random.integers(0, 4, rows))),
            "day": pa.array(np.sort(random.integers(0, 3_000, rows)), pa.int32()),
            "text": [f"{words[n % 300]} {n}" for n in random.integers(0, 1 << 40, rows).tolist()],
        }
    )


def written(path: Path, rows: pa.Table, codec: str) -> dict[str, str]:
    """Write rows, and return the codec of each column."""
    options = options_of(codec)
    with DataFileWriter(str(path), schema=delta_schema(rows.schema), options=options) as writer:
        writer.write(rows)
        writer.finish(path.name)
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {column.path_in_schema: column.compression.lower() for column in columns}


def options_of(codec: str) -> WriterOptions:
    return WriterOptions(indexed=(("id",),), compression=codec)


def arguments_of(rows: pa.Table, compression: str = "zstd") -> dict[str, Any]:
    return FileEncoding.measure(rows, compression=compression).arguments(rows)


@pytest.mark.parametrize("codec", CODECS)
def test_codes_go_without_a_codec(tmp_path: Path, codec: str) -> None:
    path, rows = tmp_path / "a.parquet", table()
    found = written(path, rows, codec)
    assert found["mode"] == "uncompressed"
    assert found["text"] == codec.partition("_")[0]
    assert pq.read_table(path).equals(rows)
    with duckdb.connect() as database:
        total = database.execute("SELECT sum(id) FROM read_parquet(?)", [str(path)]).fetchall()
    assert total == [(sum(rows["id"].to_pylist()),)]


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_hardly_grows(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table()
    chosen_bytes = encoded_bytes(rows, options_of(codec))
    monkeypatch.setattr("liquidlog.data.file_encoding._MAX_GROWTH", -1.0)
    assert chosen_bytes <= 1.012 * encoded_bytes(rows, options_of(codec))


def test_few_rows_say_too_little() -> None:
    arguments = arguments_of(table(4_000))
    assert arguments["compression"] == "zstd"


def test_values_whose_likeness_takes_many_to_see_keep_the_codec() -> None:
    cents = np.random.default_rng(1).integers(100, 100_000, ROWS) / 100
    arguments = arguments_of(pa.table({"a": cents}))
    assert arguments["compression"] == "zstd"


def test_no_codec_is_no_choice() -> None:
    arguments = arguments_of(table(), "uncompressed")
    assert arguments["compression"] == "none"
    assert "compression_level" not in arguments


def test_the_columns_that_shrink_least_are_left_first() -> None:
    columns = (
        ColumnBytes("a", 995, 1_000, has_dictionary=True),
        ColumnBytes("b", 96_000, 97_000, has_dictionary=False),
        ColumnBytes("same", 10, 10, has_dictionary=True),
        ColumnBytes("grows", 12, 10, has_dictionary=True),
        ColumnBytes("too short", 12, 10, has_dictionary=False),
    )
    assert left_uncompressed(Trial(5_000, columns)) == {"a", "same", "grows"}
    assert left_uncompressed(Trial(500, columns)) == set()


def test_columns_that_are_nearly_always_null_keep_the_codec() -> None:
    random = np.random.default_rng(2)
    columns = {
        f"c{number}": pa.array(random.integers(0, 4, ROWS), mask=random.random(ROWS) > 0.01)
        for number in range(50)
    }
    arguments = arguments_of(pa.table(columns))
    assert arguments["compression"] == "zstd"


def test_large_values_say_enough_in_few_rows(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    blobs = [random.bytes(1 << 16) for _ in range(200)]
    assert written(tmp_path / "a.parquet", pa.table({"id": blobs}), "zstd") == {
        "id": "uncompressed"
    }


def test_narrow_values_get_a_dictionary_only_where_few_are_distinct() -> None:
    random, rows = np.random.default_rng(5), 65_536
    known = pa.array([f"value {number:07d} of a text" for number in range(rows)])
    few_of = {name: random.integers(0, n, rows) for name, n in (("few", 1_000), ("many", 10_000))}
    text = known.take(pa.array(random.integers(0, 10_000, rows)))
    table_of_all = pa.table({**few_of, "text": text, "all": known})
    assert list(worth_dictionaries(table_of_all)) == ["few", "text"]


@pytest.mark.parametrize(("text_bytes", "page_rows"), [(8, 8_192), (400, 164), (4_000, 64)])
def test_readers_skip_small_pages_of_one_row_group(
    tmp_path: Path, text_bytes: int, page_rows: int
) -> None:
    random, count = np.random.default_rng(1), min(ROWS, 10_000_000 // text_bytes)
    texts = sorted(random.bytes(text_bytes // 2).hex() for _ in range(count))
    path = tmp_path / "a.parquet"
    written(path, pa.table({"id": random.integers(0, 1 << 62, count), "text": texts}), "zstd")
    group = pq.read_metadata(path).row_group(0)
    assert all(
        group.column(n).has_offset_index and group.column(n).has_column_index for n in (0, 1)
    )
    assert pq.read_metadata(path).num_row_groups == 1
    convert_to_deltalake(str(tmp_path))
    query = QueryBuilder().register("t", DeltaTable(str(tmp_path)))
    found = query.execute(f"explain analyze select * from t where text = '{texts[count // 2]}'")
    metrics = str(pa.table(found.read_all()).to_pylist())
    pattern = r"page_index_rows_pruned=[^,]* → ([\d.]+)( K)? matched"
    rows, thousands = re.findall(pattern, metrics)[0]
    # A text may be in two pages; those of the other column begin where a batch does.
    assert 0 < float(rows) * (1_000 if thousands else 1) <= 2 * page_rows
