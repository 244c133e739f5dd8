"""Bloom filters in data files: right, sized by their values, bounded, and used by readers."""

from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake

from liquidlog.data import writer
from liquidlog.data.reader import DataFile
from liquidlog.data.writer import DataFileWriter, filter_bytes
from liquidlog.errors import UsageError
from liquidlog.plan import WriterOptions
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.schema import Path as Column
from support.table_rows import filters_in

ROWS = 8_000
GROUP_ROWS = 2_000


def table(seed: int = 1) -> pa.Table:
    """Rows of every type that may have filters, in no order, without nearby values."""
    random = np.random.default_rng(seed)
    values = random.permutation(ROWS) * 7
    return pa.table(
        {
            "byte": pa.array(values % 100 - 50, pa.int8()),
            "short": pa.array(values % 30_000, pa.int16()),
            "integer": pa.array(values, pa.int32()),
            "long": pa.array(values << 33),
            "day": pa.array(values, pa.int32()).cast(pa.date32()),
            "at": pa.array(values * 1_000_000).cast(pa.timestamp("us", "UTC")),
            "local": pa.array(values * 1_000_000).cast(pa.timestamp("us")),
            "text": pa.array([f"name {value}" for value in values]),
            "few": pa.array([f"name {value % 50}" for value in values]).dictionary_encode(),
            "bytes": pa.array([b"%d" % value for value in values]),
            "small": pa.array([Decimal(int(v)) / 100 for v in values], pa.decimal128(9, 2)),
            "wide": pa.array([Decimal(int(v)) / 100 for v in values], pa.decimal128(38, 2)),
            "part": pa.array([{"a.b": int(value)} for value in values]),
            "filler": pa.array([random.bytes(40).hex() for _ in values]),
        }
    )


def paths_of(rows: pa.Table) -> tuple[Column, ...]:
    return tuple(("part", "a.b") if name == "part" else (name,) for name in rows.column_names)


Filters = list[dict[str, int]]
"""Of each row group the bytes of its filters, by their columns."""


def written(
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


def names_of(columns: tuple[Column, ...]) -> set[str]:
    return {".".join(column) for column in columns}


@pytest.fixture
def any_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_FILTER_SHARE", 1.0)


@pytest.mark.usefixtures("any_share")
def test_duckdb_excludes_absent_values(tmp_path: Path) -> None:
    rows = table()
    written(tmp_path / "f.parquet", rows, *paths_of(rows))
    connection = duckdb.connect()
    probe = f"select bloom_filter_excludes from parquet_bloom_probe('{tmp_path}/f.parquet', ?, ?)"
    asked = [("integer", value) for value in range(1, 7 * ROWS, 71) if value % 7]
    found = [excluded for one in asked for (excluded,) in connection.execute(probe, one).fetchall()]
    # One in a hundred is not excluded; twice as many would say that filters are too small.
    assert len(found) == len(asked) * ROWS // GROUP_ROWS
    assert sum(found) >= 0.98 * len(found)


@pytest.mark.usefixtures("any_share")
def test_delta_rs_finds_every_value_and_skips_by_filters(tmp_path: Path) -> None:
    rows = table().drop_columns(["local"])
    written(tmp_path / "f.parquet", rows, *paths_of(rows))
    convert_to_deltalake(str(tmp_path))
    query = QueryBuilder().register("t", DeltaTable(str(tmp_path)))

    def counted(where: str) -> int:
        result = query.execute(f"select count(*) as n from t where {where}")
        return int(pa.table(result.read_all())["n"][0].as_py())

    places = np.random.default_rng(2).integers(0, ROWS, 5).tolist()
    for name in ("byte", "short", "integer", "long", "text", "small", "wide", "few"):
        for value in rows[name].take(pa.array(places)).to_pylist():
            shown = f"arrow_cast('{value}', '{_arrow_name(rows[name].type)}')"
            expected = pc.sum(pc.equal(rows[name], pa.scalar(value))).as_py()
            assert counted(f"{name} = {shown}") == expected
    found = query.execute("explain analyze select * from t where text = 'name 15'").read_all()
    metrics = str(pa.table(found).to_pylist())
    assert f"row_groups_pruned_bloom_filter={ROWS // GROUP_ROWS} total → 0 matched" in metrics


def _arrow_name(found: pa.DataType) -> str:
    if pa.types.is_decimal(found):
        return f"Decimal128({found.precision}, {found.scale})"
    return "Utf8" if not pa.types.is_integer(found) else str(found).capitalize()


@pytest.mark.parametrize("distinct", [1, GROUP_ROWS])
@pytest.mark.usefixtures("any_share")
def test_filters_are_sized_by_the_values_of_the_first_row_group(
    tmp_path: Path, distinct: int
) -> None:
    values = pa.array([place % distinct for place in range(2 * GROUP_ROWS)])
    rows = pa.table({"a": values, "filler": [f"{place}" * 99 for place in range(2 * GROUP_ROWS)]})
    for group in written(tmp_path / "f.parquet", rows, ("a",)):
        # Behind a header.
        assert filter_bytes(distinct) < group["a"] < filter_bytes(distinct) + 32
    assert filter_bytes(1) == 32
    # 9.7 bits per value, up to the next power of two.
    assert filter_bytes(2_000) == 4_096


def test_a_filter_that_would_take_too_much_is_left_out(tmp_path: Path) -> None:
    rows = table().select(["integer", "text", "filler"])
    asked = [("integer",), ("text",), ("filler",)]
    path = tmp_path / "f.parquet"
    kept = written(path, rows, *asked)
    metadata = pq.read_metadata(path)
    for number, filters in enumerate(kept):
        group = metadata.row_group(number)
        assert {"integer"} <= filters.keys() < names_of(tuple(asked))
        pages = sum(group.column(place).total_compressed_size for place in range(3))
        assert sum(filters.values()) <= pages / 10
    # The first that is asked for is the first to be kept.
    assert all("filler" in one for one in written(tmp_path / "g.parquet", rows, *asked[::-1]))


def test_a_pyarrow_without_filters_is_refused_before_a_file_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(self: object, where: object, schema: object) -> None: ...

    monkeypatch.setattr(pq.ParquetWriter, "__init__", without)
    schema = delta_schema(table().schema.remove(8))
    for asked in ((("long",),), ()):
        options = WriterOptions(indexed=(), bloom_filters=asked)
        if not asked:
            DataFileWriter(str(tmp_path / "f"), schema=schema, options=options).discard()
            continue
        with pytest.raises(UsageError, match="need a newer pyarrow than"):
            DataFileWriter(str(tmp_path / "f"), schema=schema, options=options)
    assert not [*tmp_path.iterdir()]
