"""The columns that get Bloom filters in every file, because the table remembers it."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.data.footer import read_footer
from liquidlog.errors import SchemaChangeError, UsageError
from liquidlog.table import Table
from support.properties import set_elsewhere


def test_remembered_filters_are_in_every_file_and_follow_a_rename(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.int64()), ("s", pa.string())])
    properties = {"delta.columnMapping.mode": "name", "liquidlog.bloomFilter": "S"}
    table = Table.create(tmp_path / "t", schema=schema, properties=properties)
    table.rename_column("s", "name")
    assert table.detail()["properties"]["liquidlog.bloomFilter"] == "name"
    names = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(5000)]
    table.append(pa.table({"x": pa.array(range(5000)), "name": names}))
    (path,) = table.files()["path"].to_pylist()
    with pa.OSFile(str(tmp_path / "t" / path)) as file:
        footer, _ = read_footer(file, file.size())
    chunks = footer.row_groups[0].chunks
    assert [chunk.bloom_filter is not None for chunk in chunks] == [False, True]
    assert table.plan().writer_options.bloom_filters == (chunks[1].path,)
    with pytest.raises(SchemaChangeError):
        table.drop_column("name")


def test_a_wrong_value_is_refused_before_rows_are_read(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", schema=pa.schema([("x", pa.int64())]))
    set_elsewhere(table, {"liquidlog.bloomFilter": "x, y"})
    with pytest.raises(UsageError, match="bloomFilter"):
        table.append(str(tmp_path / "missing.parquet"))
    with pytest.raises(UsageError, match="bloomFilter"):
        table.plan()
    assert not table.files().num_rows
