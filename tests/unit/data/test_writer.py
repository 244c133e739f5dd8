import errno
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data import writer as writing
from liquidlog.data.file_encoding import worth_dictionaries
from liquidlog.data.reader import DataFile
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import StorageError, UsageError
from liquidlog.plan import DEFAULT_ROW_GROUP_ROWS, WriterOptions, WrittenFile
from liquidlog.spec.arguments import CODEC_NAMES
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.schema import leaves, parse_schema


def _options(schema: pa.Schema, **options: Any) -> WriterOptions:
    indexed = tuple(leaf.physical for leaf in leaves(delta_schema(schema)))
    return WriterOptions(indexed=indexed, **options)


def _write(
    path: Path,
    *slices: pa.Table,
    wanted: pa.Schema | None = None,
    row_group_rows: int = DEFAULT_ROW_GROUP_ROWS,
) -> WrittenFile:
    schema = wanted or slices[0].schema
    options = _options(schema, row_group_rows=row_group_rows)
    with DataFileWriter(str(path), schema=delta_schema(schema), options=options) as writer:
        for rows in slices:
            writer.write(rows)
        return writer.finish(f"part/{path.name}")


ROWS = pa.table(
    {
        "a": pa.array([1, None, 3], pa.int64()),
        "t": pa.array([0, None, 1], pa.timestamp("us", tz="UTC")),
        "n": pa.array([0, None, 1], pa.timestamp("us")),
        "s": pa.array(
            [{"x": [b"1"]}, None, {"x": None}], pa.struct([("x", pa.list_(pa.binary()))])
        ),
        "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "d": pa.array([None, None, 1], pa.decimal128(38, 2)),
    }
)


def test_facts_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    written = _write(path, ROWS, ROWS)
    assert written.path == "part/f.parquet"
    assert written.size_bytes == path.stat().st_size
    assert written.modification_time_ms == path.stat().st_mtime_ns // 1_000_000
    assert written.num_records == json.loads(written.stats)["numRecords"] == 6
    found = DataFile.open(str(path), schema=delta_schema(ROWS.schema)).read()
    assert found.equals(pa.concat_tables([ROWS, ROWS]))


def test_parquet_schema_is_what_delta_readers_expect(tmp_path: Path) -> None:
    _write(tmp_path / "f", ROWS)
    found = pq.ParquetFile(tmp_path / "f")
    columns = {c.path: c for c in (found.schema.column(i) for i in range(len(found.schema)))}
    assert set(columns) == {
        "a",
        "t",
        "n",
        "s.x.list.element",
        "m.key_value.key",
        "m.key_value.value",
        "d",
    }
    assert (columns["t"].physical_type, columns["n"].physical_type) == ("INT64", "INT64")
    assert json.loads(columns["t"].logical_type.to_json())["isAdjustedToUTC"] is True
    assert json.loads(columns["n"].logical_type.to_json())["isAdjustedToUTC"] is False
    assert json.loads(columns["n"].logical_type.to_json())["timeUnit"] == "microseconds"
    assert all(child.nullable for child in found.schema_arrow)
    assert found.metadata.metadata == {b"org.apache.spark.version": b"4.0.0"}
    chunk = found.metadata.row_group(0).column(0)
    assert chunk.statistics.has_min_max


def test_names_and_ids_are_physical(tmp_path: Path) -> None:
    schema = parse_schema(
        '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":'
        '{"delta.columnMapping.id":7,"delta.columnMapping.physicalName":"col-1"}}]}',
        where="test",
    )
    options = WriterOptions(indexed=(("col-1",),))
    with DataFileWriter(str(tmp_path / "f"), schema=schema, options=options) as writer:
        writer.write(pa.table({"col-1": [5]}))
        stats = json.loads(writer.finish("f").stats)
    assert stats["minValues"] == {"col-1": 5}
    found = pq.read_schema(tmp_path / "f")
    assert found.names == ["col-1"]
    assert found.field(0).metadata == {b"PARQUET:field_id": b"7"}


@pytest.mark.parametrize("codec", [*CODEC_NAMES, "ZSTD", "Snappy", "NONE"])
def test_codec_is_the_one_asked_for(tmp_path: Path, codec: str) -> None:
    options = _options(ROWS.schema, compression=codec)
    path = str(tmp_path / "f")
    with DataFileWriter(path, schema=delta_schema(ROWS.schema), options=options) as writer:
        writer.write(ROWS)
        writer.finish("f")
    expected = {"none": "UNCOMPRESSED", "lz4_raw": "LZ4"}.get(codec.lower(), codec.upper())
    assert pq.read_metadata(path).row_group(0).column(0).compression == expected
    with DataFile.open(path, schema=delta_schema(ROWS.schema)) as file:
        assert file.read().equals(ROWS)


def test_unknown_codec_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    options = _options(ROWS.schema, compression="rar")
    with pytest.raises(UsageError):
        DataFileWriter(str(tmp_path / "f"), schema=delta_schema(ROWS.schema), options=options)
    assert not (tmp_path / "f").exists()


def test_slices_are_gathered_into_row_groups_by_rows(tmp_path: Path) -> None:
    table = pa.table({"a": range(250)})
    slices = (table.slice(row, 7) for row in range(0, 250, 7))
    _write(tmp_path / "small", *slices, row_group_rows=100)
    _write(tmp_path / "large", table, row_group_rows=100)
    for name in ("small", "large"):
        metadata = pq.read_metadata(tmp_path / name)
        rows = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
        assert rows == [100, 100, 50]
        assert pq.read_table(tmp_path / name).equals(table)


def test_slices_are_gathered_into_row_groups_by_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "ROW_GROUP_BYTES", 10_000)
    wide = pa.table({"a": [b"x" * 1000] * 25})
    _write(tmp_path / "f", *(wide.slice(row, 3) for row in range(0, 25, 3)))
    metadata = pq.read_metadata(tmp_path / "f")
    rows = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    assert sum(rows) == 25
    assert max(rows) <= 10
    _write(tmp_path / "huge", pa.table({"a": [b"x" * 20_000] * 2}))
    assert pq.read_metadata(tmp_path / "huge").num_row_groups == 2


def test_dictionaries_and_plain_strings_mix_in_one_file(tmp_path: Path) -> None:
    plain = pa.table({"a": ["x", "y", None, "x"]})
    encoded = pa.table({"a": plain["a"].dictionary_encode()})
    other = pa.table({"a": pa.array(["z", None]).dictionary_encode()})
    for number, slices in enumerate(
        [[encoded, plain], [plain, encoded], [encoded.slice(0, 2), plain, other], [other, encoded]]
    ):
        path = tmp_path / str(number)
        written = _write(path, *slices, wanted=plain.schema, row_group_rows=4)
        expected = [value for rows in slices for value in rows["a"].to_pylist()]
        assert pq.read_table(path)["a"].to_pylist() == expected
        assert pq.read_schema(path) == plain.schema
        assert json.loads(written.stats)["nullCount"]["a"] == expected.count(None)


def test_file_without_rows_is_sound(tmp_path: Path) -> None:
    written = _write(tmp_path / "f", ROWS.slice(0, 0))
    assert written.num_records == 0
    assert DataFile.open(str(tmp_path / "f"), schema=delta_schema(ROWS.schema)).num_rows == 0


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"b": [1]}),
        pa.table({"a": ["x"]}),
        pa.table({"a": [1], "b": [1]}),
        pa.table({"a": pa.array([1]).dictionary_encode()}).cast(pa.schema([("a", pa.int32())])),
    ],
    ids=["name", "type", "extra", "width"],
)
def test_rows_of_another_schema_are_refused(tmp_path: Path, rows: pa.Table) -> None:
    wanted = pa.schema([("a", pa.int64())])
    with pytest.raises(ValueError, match="a"):
        _write(tmp_path / "f", rows, wanted=wanted)
    assert not (tmp_path / "f").exists()


def test_unfinished_file_is_deleted(tmp_path: Path) -> None:
    with DataFileWriter(
        str(tmp_path / "f"), schema=delta_schema(ROWS.schema), options=_options(ROWS.schema)
    ) as writer:
        writer.write(ROWS)
        assert writer.num_rows == 3
    assert list(tmp_path.iterdir()) == []


def test_failure_deletes_the_file_even_after_row_groups(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="columns"):
        _write(tmp_path / "f", ROWS, ROWS.select(["a"]), row_group_rows=1)
    assert list(tmp_path.iterdir()) == []


def test_existing_file_is_never_touched(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"theirs")
    with pytest.raises(StorageError):
        _write(path, ROWS)
    assert path.read_bytes() == b"theirs"


def test_missing_directory_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        _write(tmp_path / "none" / "f", ROWS)


def test_full_disk_is_a_storage_error_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(StorageError):
        _write(tmp_path / "f", ROWS)
    assert list(tmp_path.iterdir()) == []


MANY = 20_000
UNIQUE = pa.array(range(MANY))
FEW = pa.array([row % 100 for row in range(MANY)])


def test_columns_that_repeat_are_chosen_at_every_depth() -> None:
    inner = pa.StructArray.from_arrays([UNIQUE, FEW], ["unique", "few"])
    table = pa.table({"unique": UNIQUE, "few": FEW, "s": inner})
    assert list(worth_dictionaries(table)) == ["few", "s.few"]


def test_leaves_of_lists_and_maps_and_dictionaries_are_always_chosen() -> None:
    kinds = {
        "l": pa.list_(pa.field("element", pa.struct([("a", pa.int64())]))),
        "m": pa.map_(pa.string(), pa.list_(pa.field("element", pa.int64()))),
        "d": pa.dictionary(pa.int32(), pa.string()),
    }
    table = pa.schema(list(kinds.items())).empty_table()
    assert list(worth_dictionaries(table)) == [
        "l.list.element.a",
        "m.key_value.key",
        "m.key_value.value.list.element",
        "d",
    ]


def test_the_sample_is_spread_over_all_rows() -> None:
    late = pa.concat_arrays([pa.array([0] * (MANY // 8)), UNIQUE.slice(0, MANY * 7 // 8)])
    assert list(worth_dictionaries(pa.table({"late": late}))) == []


@pytest.mark.parametrize("edge", [1, 5, 900])
def test_a_file_says_nothing_of_the_chunks_in_which_its_rows_came(
    tmp_path: Path, edge: int
) -> None:
    texts = pa.array([f"value {number % 7}" for number in range(1_000)]).dictionary_encode()
    rows = pa.table({"t": texts})
    head = rows.slice(0, edge).to_pydict()["t"]
    few = pa.table({"t": pa.array(head).dictionary_encode()})
    wanted = pa.schema([("t", pa.string())])
    _write(tmp_path / "whole", rows, wanted=wanted)
    _write(tmp_path / "parts", few, rows.slice(edge), wanted=wanted)
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "parts").read_bytes()
