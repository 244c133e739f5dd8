"""Columns that a codec does not shrink go without it, and the files stay copies of themselves."""

import io
from pathlib import Path
from unittest.mock import patch

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data import row_groups
from liquidlog.data.concatenation import CopySource
from liquidlog.data.file_encoding import ColumnBytes, FileEncoding, Trial, left_uncompressed
from liquidlog.data.footer import NotMovableError, read_footer
from liquidlog.data.pages import data_pages
from liquidlog.data.reader import DataFile
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
    arguments = FileEncoding.measure(table(4_000), compression="zstd").arguments(ROWS)
    assert arguments["compression"] == "zstd"


def test_values_whose_likeness_takes_many_to_see_keep_the_codec() -> None:
    cents = np.random.default_rng(1).integers(100, 100_000, ROWS) / 100
    arguments = FileEncoding.measure(pa.table({"a": cents}), compression="zstd").arguments(ROWS)
    assert arguments["compression"] == "zstd"


def test_no_codec_is_no_choice() -> None:
    arguments = FileEncoding.measure(table(), compression="uncompressed").arguments(ROWS)
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
    arguments = FileEncoding.measure(pa.table(columns), compression="zstd").arguments(ROWS)
    assert arguments["compression"] == "zstd"


def test_large_values_say_enough_in_few_rows(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    blobs = [random.bytes(1 << 16) for _ in range(200)]
    assert written(tmp_path / "a.parquet", pa.table({"id": blobs}), "zstd") == {
        "id": "uncompressed"
    }


@pytest.mark.parametrize(("column", "movable"), [("text", True), ("blob", False)])
def test_row_groups_are_copied_if_a_column_has_the_codec(
    tmp_path: Path, column: str, *, movable: bool
) -> None:
    random = np.random.default_rng(1)
    blobs = pa.table({"blob": [random.bytes(1 << 16) for _ in range(200)]})
    path, rows = tmp_path / "a.parquet", table().select(["mode", "text"]) if movable else blobs
    found = written(path, rows, "zstd")
    assert (found[column] == "zstd") == movable
    assert "uncompressed" in found.values()
    schema = delta_schema(rows.schema)
    with DataFile.open(str(path), schema=schema) as file:
        if movable:
            assert CopySource.of(file, schema, options_of("zstd")).wanted
        else:
            with pytest.raises(NotMovableError, match="none of its pages is compressed"):
                CopySource.of(file, schema, options_of("zstd"))


@pytest.mark.parametrize(("rows", "pages"), [(ROWS, 1), (70_000, 4)])
def test_small_row_groups_have_one_page_per_column(tmp_path: Path, rows: int, pages: int) -> None:
    path, few = tmp_path / "a.parquet", table(rows).select(["mode", "day"])
    options = options_of("zstd")
    with DataFileWriter(str(path), schema=delta_schema(few.schema), options=options) as writer:
        with patch.object(row_groups, "ROW_GROUP_ROWS", rows):
            writer.write(few)
        writer.finish(path.name)
    content = path.read_bytes()
    (group,) = read_footer(io.BytesIO(content), len(content))[0].row_groups
    for chunk in group.chunks:
        start, size = chunk.span
        stored = memoryview(content)[start : start + size]
        assert len(data_pages(stored, num_values=rows)) == pages
