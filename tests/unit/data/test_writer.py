import errno
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake

from liquidlog.data import encodings
from liquidlog.data import writer as writing
from liquidlog.data.encodings import (
    decimals_of,
    decoded,
    filter_bytes,
    with_light_dictionaries,
    worth_dictionaries,
)
from liquidlog.data.reader import DataFile
from liquidlog.data.writer import (
    DataFileWriter,
    StatisticsCollector,
    encoded_bytes,
    truncate_max,
    truncate_min,
)
from liquidlog.errors import StorageError, UsageError
from liquidlog.plan import DEFAULT_ROW_GROUP_ROWS, WriterOptions, WrittenFile
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.bounds import FileStatistics
from liquidlog.spec.schema import Path as Column
from liquidlog.spec.schema import leaves
from support.table_rows import filters_in


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


def test_parquet_schema_is_what_delta_readers_expect(tmp_path: Path) -> None:
    _write(tmp_path / "f", ROWS)
    found = pq.ParquetFile(tmp_path / "f")
    columns = [found.schema.column(number) for number in range(len(found.schema))]
    nested = ["s.x.list.element", "m.key_value.key", "m.key_value.value"]
    assert [column.path for column in columns] == ["a", "t", "n", *nested, "d"]
    instant, local = (json.loads(columns[number].logical_type.to_json()) for number in (1, 2))
    assert (instant["isAdjustedToUTC"], local["isAdjustedToUTC"]) == (True, False)
    assert instant["timeUnit"] == local["timeUnit"] == "microseconds"
    assert all(child.nullable for child in found.schema_arrow)
    assert found.metadata.metadata == {b"org.apache.spark.version": b"4.0.0"}
    assert found.metadata.row_group(0).column(0).statistics.has_min_max


def test_unknown_codec_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    options = _options(ROWS.schema, compression="rar")
    with pytest.raises(UsageError):
        DataFileWriter(str(tmp_path / "f"), schema=delta_schema(ROWS.schema), options=options)
    assert not (tmp_path / "f").exists()


def row_groups(path: Path) -> list[int]:
    metadata = pq.read_metadata(path)
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def test_slices_are_gathered_into_row_groups_by_rows_and_by_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"a": range(250)})
    _write(tmp_path / "small", *(table.slice(n, 7) for n in range(0, 250, 7)), row_group_rows=100)
    _write(tmp_path / "large", table, row_group_rows=100)
    assert row_groups(tmp_path / "small") == row_groups(tmp_path / "large") == [100, 100, 50]
    monkeypatch.setattr(writing, "ROW_GROUP_BYTES", 10_000)
    wide = pa.table({"a": [b"x" * 1000] * 25})
    _write(tmp_path / "wide", *(wide.slice(row, 3) for row in range(0, 25, 3)))
    assert sum(row_groups(tmp_path / "wide")) == 25
    assert max(row_groups(tmp_path / "wide")) <= 10
    _write(tmp_path / "huge", pa.table({"a": [b"x" * 20_000] * 2}))
    assert row_groups(tmp_path / "huge") == [1, 1]


def test_rows_of_another_schema_are_refused(tmp_path: Path) -> None:
    wanted = pa.schema([("a", pa.int64())])
    for rows in (pa.table({"b": [1]}), pa.table({"a": ["x"]}), pa.table({"a": [1], "b": [1]})):
        with pytest.raises(ValueError, match="a"):
            _write(tmp_path / "f", rows, wanted=wanted)
        assert not (tmp_path / "f").exists()


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


def test_a_full_disk_is_an_error_of_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(StorageError):
        _write(tmp_path / "f", ROWS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("edge", [1, 5, 900])
def test_a_file_says_nothing_of_chunks_of_its_rows(tmp_path: Path, edge: int) -> None:
    texts = pa.array([f"value {number % 7}" for number in range(1_000)]).dictionary_encode()
    rows = pa.table({"t": texts})
    head = rows.slice(0, edge).to_pydict()["t"]
    few = pa.table({"t": pa.array(head).dictionary_encode()})
    wanted = pa.schema([("t", pa.string())])
    _write(tmp_path / "whole", rows, wanted=wanted)
    _write(tmp_path / "parts", few, rows.slice(edge), wanted=wanted)
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "parts").read_bytes()


# Which columns get dictionaries and which go without the codec, and how large pages are.


ROWS_FILE_ENCODING = 40_000
CODECS = ("zstd", "snappy")


def table(rows: int = ROWS_FILE_ENCODING) -> pa.Table:
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


def test_leaves_of_few_values_get_dictionaries_and_all_inside_lists_and_maps() -> None:
    rows = [{"s": {"few": n % 3, "many": n}, "l": [], "m": [("a", n)]} for n in range(1_000)]
    inner = pa.struct([("few", pa.int64()), ("many", pa.int64())])
    kinds = {"s": inner, "l": pa.list_(inner), "m": pa.map_(pa.string(), pa.int64())}
    found = pa.Table.from_pylist(rows, pa.schema(list(kinds.items())))
    inside = ["l.list.element.few", "l.list.element.many", "m.key_value.key", "m.key_value.value"]
    assert [*worth_dictionaries(found)] == ["s.few", *inside]


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_hardly_grows(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table()
    chosen_bytes = encoded_bytes(rows, options_of(codec))
    monkeypatch.setattr("liquidlog.data.encodings._MAX_GROWTH", -1.0)
    assert chosen_bytes <= 1.012 * encoded_bytes(rows, options_of(codec))


@pytest.mark.parametrize(("text_bytes", "page_rows"), [(8, 20_000), (4_000, 270)])
def test_readers_skip_pages_inside_groups(tmp_path: Path, text_bytes: int, page_rows: int) -> None:
    random, count = np.random.default_rng(1), min(ROWS_FILE_ENCODING, 4_000_000 // text_bytes)
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


def test_digits_that_foreign_files_have_beyond_their_type_are_kept(tmp_path: Path) -> None:
    stored = pa.array([10**15, -5], pa.int64())
    rows = pa.table({"a": decimals_of(stored, pa.decimal128(12, 2))})
    _write(tmp_path / "f", rows)
    assert pq.read_table(tmp_path / "f").equals(rows)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([None, 1, 1, 3], True),
        ([None, None], True),
        ([1, 3, None], False),
        ([2, 1], False),
        ([Decimal("1.5"), Decimal("2.5")], True),
        (["a", "b", "ä"], True),
        ([1.0, 2.0], False),
    ],
)
def test_the_footer_says_the_rows_order(tmp_path: Path, values: list[Any], *, said: bool) -> None:
    kind = pa.int64() if values == [None, None] else None
    rows = pa.table({"x": pa.nulls(len(values), pa.int32()), "a": pa.array(values, kind)})
    options, schema = _options(rows.schema), delta_schema(rows.schema)
    path = str(tmp_path / "f")
    with DataFileWriter(path, schema=schema, options=options, sorted_by="a") as writer:
        writer.write(rows)
        writer.finish("f")
    found = pq.read_metadata(path).row_group(0).sorting_columns
    assert found == ((pq.SortingColumn(1, descending=False, nulls_first=True),) if said else ())


def test_no_order_is_said_of_a_file_of_several_row_groups(tmp_path: Path) -> None:
    options, schema = _options(ROWS.schema, row_group_rows=1), delta_schema(ROWS.schema)
    with DataFileWriter(
        str(tmp_path / "f"), schema=schema, options=options, sorted_by="a"
    ) as writer:
        writer.write(ROWS.sort_by("a"))
        writer.finish("f")
    metadata = pq.read_metadata(tmp_path / "f")
    assert metadata.num_row_groups == 3
    assert not any(metadata.row_group(number).sorting_columns for number in range(3))


# Texts of few values travel in dictionaries; no other column, and no value, changes.


ROWS_LIGHT_DICTIONARIES = 20_000


def table_light_dictionaries(rows: int) -> pa.Table:
    few = ["a", None, "", "\U0010ffff"]
    return pa.table(
        {
            "few": [few[n % 4] for n in range(rows)],
            "many": [f"value {n}" for n in range(rows)],
            "late": ["same" if n < rows // 2 else f"value {n}" for n in range(rows)],
            "none": pa.nulls(rows, pa.string()),
            "raw": pa.array([b"x"] * rows, pa.binary()),
            "list": [["a"]] * rows,
            "number": range(rows),
        }
    )


def test_texts_of_few_values_are_codes() -> None:
    before = table_light_dictionaries(ROWS_LIGHT_DICTIONARIES)
    chunked = pa.concat_tables([before.slice(0, 7_000), before.slice(7_000)])
    after = with_light_dictionaries(chunked)
    changed = [name for name in before.column_names if after[name].type != before[name].type]
    assert changed == ["few", "none"]
    assert decoded(after).equals(before)


def _collect(*slices: pa.Table) -> FileStatistics:
    schema = slices[0].schema
    collector = StatisticsCollector(delta_schema(schema), _options(schema))
    for rows in slices:
        collector.add(rows)
    return collector.finish()


def _bounds(*values: Any, kind: pa.DataType) -> tuple[Any, Any]:
    """The bounds, the same whether the values come in one slice or one by one."""
    column = pa.array(values, kind)
    whole = _collect(pa.table({"a": column}))
    single = _collect(*(pa.table({"a": column.slice(row, 1)}) for row in range(len(column))))
    found = whole.min_values.get(("a",)), whole.max_values.get(("a",))
    assert repr((single.min_values.get(("a",)), single.max_values.get(("a",)))) == repr(found)
    return found


def test_years_beyond_the_calendar_have_no_bound() -> None:
    year_10000 = 253402300800
    date, moment = pa.date32(), pa.timestamp("us", tz="UTC")
    assert _bounds(year_10000 // 86400 - 1, kind=date) == ("9999-12-31", "9999-12-31")
    assert _bounds(0, year_10000 // 86400, kind=date) == ("1970-01-01", None)
    assert _bounds(-719163, 0, kind=date) == (None, "1970-01-01")
    assert _bounds(0, year_10000 * 10**6, kind=moment) == ("1970-01-01T00:00:00.000Z", None)
    assert _bounds(2**63 - 1, -(2**63), kind=moment) == (None, None)


def test_ends_of_floats_have_the_order_of_spark_and_few_digits() -> None:
    nan, single, double = float("nan"), pa.float32(), pa.float64()
    assert _bounds(1.0, nan, -2.5, kind=double) == (-2.5, "NaN")
    assert _bounds(nan, nan, kind=single) == ("NaN", "NaN")
    assert repr(_bounds(0.0, -0.0, kind=double)) == repr((-0.0, 0.0))
    assert _bounds(0.1, 0.3, kind=single) == (0.1, 0.3)
    ends = float("-inf"), float("inf")
    assert _bounds(*ends, kind=double) == ("-Infinity", "Infinity")


def test_text_that_is_not_utf8_has_no_bound() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
    )
    found = _collect(pa.table({"a": broken}))
    assert (found.num_records, found.min_values, found.max_values) == (1, {}, {})


def test_dictionaries_count_only_the_values_they_use() -> None:
    used = pa.DictionaryArray.from_arrays(pa.array([1, None, 1]), pa.array(["a", "b", "c"]))
    found = _collect(pa.table({"a": used}))
    assert (found.min_values, found.max_values) == ({("a",): "b"}, {("a",): "b"})
    assert found.null_count == {("a",): 1}


def test_maximum_is_the_prefix_and_a_larger_character() -> None:
    top, balloon = "\U0010ffff", "\U0001f388"
    maxima = {
        "abcd\x7e": "abcd\x7f",
        "abcd\x7f": "abcd" + top,
        "abc" + balloon + "x": "abc" + balloon + "\x7f",
        "abcd" + top + "x": "abcd" + top + "\x7f",
        "abcd" + top * 2: "abcd" + top * 2,
        "abcd" + top * 3: None,
    }
    assert {text: truncate_max(text, 4) for text in maxima} == maxima


def test_prefix_of_no_characters_gives_no_bound() -> None:
    assert truncate_min("a", 0) is truncate_max("a", 0) is None


# Bloom filters in data files: right, sized by their values, bounded, and used by readers.


FILTERED_ROWS = 8_000
GROUP_ROWS = 2_000


def unordered(seed: int = 1) -> pa.Table:
    """Rows in no order, without nearby values."""
    random = np.random.default_rng(seed)
    values = random.permutation(FILTERED_ROWS) * 7
    return pa.table(
        {
            "integer": pa.array(values, pa.int32()),
            "long": pa.array(values << 33),
            "text": pa.array([f"name {value}" for value in values]),
            "few": pa.array([f"name {value % 50}" for value in values]).dictionary_encode(),
            "small": pa.array([Decimal(int(v)) / 100 for v in values], pa.decimal128(9, 2)),
            "wide": pa.array([Decimal(int(v)) / 100 for v in values], pa.decimal128(38, 2)),
            "filler": pa.array([random.bytes(40).hex() for _ in values]),
        }
    )


Filters = list[dict[str, int]]
"""Of each row group the bytes of its filters, by their columns."""


def filtered(
    path: Path, rows: pa.Table, *columns: Column, row_group_rows: int = GROUP_ROWS
) -> Filters:
    """Write rows to a file with filters of these columns; return those that it has."""
    plain = pa.schema([_plain(child) for child in rows.schema])
    options = WriterOptions(indexed=(), bloom_filters=columns, row_group_rows=row_group_rows)
    with DataFileWriter(str(path), schema=delta_schema(plain), options=options) as file:
        file.write(rows)
        facts = file.finish("f")
    assert facts.size_bytes == path.stat().st_size
    found = DataFile.open(str(path), schema=delta_schema(plain)).read()
    assert found.equals(rows.cast(found.schema))
    return filters_in(str(path))


def _plain(child: pa.Field) -> pa.Field:
    is_encoded = isinstance(child.type, pa.DictionaryType)
    return child.with_type(child.type.value_type) if is_encoded else child


@pytest.fixture
def any_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encodings, "MAX_FILTER_SHARE", 1.0)


@pytest.mark.usefixtures("any_share")
def test_delta_rs_finds_every_value_and_skips_by_filters(tmp_path: Path) -> None:
    rows = unordered()
    filtered(tmp_path / "f.parquet", rows, *[(name,) for name in rows.column_names])
    convert_to_deltalake(str(tmp_path))
    query = QueryBuilder().register("t", DeltaTable(str(tmp_path)))

    def counted(where: str) -> int:
        result = query.execute(f"select count(*) as n from t where {where}")
        return int(pa.table(result.read_all())["n"][0].as_py())

    places = np.random.default_rng(2).integers(0, FILTERED_ROWS, 5).tolist()
    for name in ("integer", "long", "text", "small", "wide", "few"):
        for value in rows[name].take(pa.array(places)).to_pylist():
            shown = f"arrow_cast('{value}', '{_arrow_name(rows[name].type)}')"
            expected = pc.sum(pc.equal(rows[name], pa.scalar(value))).as_py()
            assert counted(f"{name} = {shown}") == expected
    found = query.execute("explain analyze select * from t where text = 'name 15'").read_all()
    metrics = str(pa.table(found).to_pylist())
    assert (
        f"row_groups_pruned_bloom_filter={FILTERED_ROWS // GROUP_ROWS} total → 0 matched" in metrics
    )


def _arrow_name(found: pa.DataType) -> str:
    if pa.types.is_decimal(found):
        return f"Decimal128({found.precision}, {found.scale})"
    return "Utf8" if not pa.types.is_integer(found) else str(found).capitalize()


@pytest.mark.parametrize("distinct", [1, GROUP_ROWS])
@pytest.mark.usefixtures("any_share")
def test_filters_are_sized_by_the_first_row_group(tmp_path: Path, distinct: int) -> None:
    values = pa.array([place % distinct for place in range(2 * GROUP_ROWS)])
    rows = pa.table({"a": values, "filler": [f"{place}" * 99 for place in range(2 * GROUP_ROWS)]})
    for group in filtered(tmp_path / "f.parquet", rows, ("a",)):
        # Behind a header.
        assert filter_bytes(distinct) < group["a"] < filter_bytes(distinct) + 32
    assert filter_bytes(1) == 32
    # 9.7 bits per value, up to the next power of two.
    assert filter_bytes(2_000) == 4_096


def test_a_filter_that_would_take_too_much_is_left_out(tmp_path: Path) -> None:
    rows = unordered().select(["integer", "text", "filler"])
    asked = [("integer",), ("text",), ("filler",)]
    path = tmp_path / "f.parquet"
    kept = filtered(path, rows, *asked)
    metadata = pq.read_metadata(path)
    for number, filters in enumerate(kept):
        group = metadata.row_group(number)
        assert {"integer"} <= filters.keys() < {".".join(column) for column in asked}
        pages = sum(group.column(place).total_compressed_size for place in range(3))
        assert sum(filters.values()) <= pages / 10
    # The first that is asked for is the first to be kept.
    assert all("filler" in one for one in filtered(tmp_path / "g.parquet", rows, *asked[::-1]))


def test_a_pyarrow_without_filters_is_refused_before_a_file_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(self: object, where: object, schema: object) -> None: ...

    monkeypatch.setattr(pq.ParquetWriter, "__init__", without)
    schema = delta_schema(pa.schema([("long", pa.int64())]))
    for asked in ((("long",),), ()):
        options = WriterOptions(indexed=(), bloom_filters=asked)
        if not asked:
            with DataFileWriter(str(tmp_path / "f"), schema=schema, options=options):
                continue
        with pytest.raises(UsageError, match="need a newer pyarrow than"):
            DataFileWriter(str(tmp_path / "f"), schema=schema, options=options)
    assert not [*tmp_path.iterdir()]
