import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, convert_to_deltalake

from liquidlog.data.concatenation import ConcatenatedFile, CopySource, written_schema
from liquidlog.data.footer import Footer, NotMovableError, framed, read_footer
from liquidlog.data.reader import DataFile
from liquidlog.data.row_group_digest import stored_digests
from liquidlog.data.statistics import StatisticsCollector
from liquidlog.data.thrift import BINARY, I64
from liquidlog.data.writer import DataFileWriter
from liquidlog.data.writers import is_trusted
from liquidlog.errors import DataFileError
from liquidlog.plan import WriterOptions, WrittenFile
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.codecs import Codec
from liquidlog.spec.schema import leaves

ROWS = 3_000
OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "row_group_size": 500,
    "store_decimal_as_integer": True,
    "write_page_index": True,
    "write_page_checksum": True,
}


def rows(seed: int = 1) -> pa.Table:
    random = np.random.default_rng(seed)
    floats = random.random(ROWS)
    floats[::100] = np.nan
    floats[1::100] = -0.0
    cents = pa.array(random.integers(-9999, 9999, ROWS), pa.int32())
    return pa.table(
        {
            "id": pa.array(random.integers(-(1 << 60), 1 << 60, ROWS)),
            "small": pa.array(random.integers(-100, 100, ROWS), pa.int8()),
            "text": [f"{n:x} \U0010ffff" * 9 for n in random.integers(0, 90, ROWS).tolist()],
            "float": floats,
            "day": pa.array(random.integers(-900, 30_000, ROWS), pa.int32()).cast(pa.date32()),
            "at": pa.array(random.integers(0, 1 << 50, ROWS)).cast(pa.timestamp("us", "UTC")),
            "price": cents.cast(pa.decimal128(12, 2)),
            "wide": pa.array(random.integers(-9999, 9999, ROWS)).cast(pa.decimal128(30, 3)),
            "flag": pa.array([True, None, False] * (ROWS // 3)),
            "none": pa.nulls(ROWS, pa.int32()),
            "raw": pa.array([b"\xff", None, b""] * (ROWS // 3)),
            "list": pa.array([[1, None], None, []] * (ROWS // 3)),
            "part": pa.array([{"x": 1, "y": "q"}, None, {"x": None, "y": "r"}] * (ROWS // 3)),
        }
    )  # fmt: skip


def options_for(table: pa.Table, **options: Any) -> WriterOptions:
    indexed = tuple(leaf.physical for leaf in leaves(delta_schema(table.schema)))
    return WriterOptions(indexed=indexed, **options)


def source_of(
    path: Path, table: pa.Table, like: pa.Table | None = None, **options: Any
) -> CopySource:
    """Write rows and open them as a source of a table that has the columns of `like`."""
    pq.write_table(table, path, **(OPTIONS | options))
    return opened(path, table if like is None else like)


def opened(path: Path, table: pa.Table) -> CopySource:
    schema = delta_schema(table.schema)
    return CopySource.of(DataFile.open(str(path), schema=schema), schema, options_for(table))


Step: TypeAlias = tuple[CopySource, int] | pa.Table


def concatenated(
    path: Path, table: pa.Table, steps: list[Step], *, tight_bounds: bool = False
) -> tuple[WrittenFile, list[int]]:
    source = next(step[0] for step in steps if isinstance(step, tuple))
    digests = []
    with ConcatenatedFile(
        str(path),
        schema=delta_schema(table.schema),
        options=options_for(table, tight_bounds=tight_bounds),
        footer_schema=source.footer.schema,
    ) as file:
        for step in steps:
            if isinstance(step, tuple):
                digests.append(file.copy(*step))
            else:
                file.write(step)
        written = file.finish(path.name)
        copied = file.copied
    assert stored_digests(str(path), copied)[1] == digests
    return written, digests


@pytest.fixture
def both(tmp_path: Path) -> tuple[list[Step], pa.Table]:
    """Copies of two files with rows between them, and what they are together."""
    first, between, second = rows(1), rows(2).slice(100, 200), rows(3)
    sources = [source_of(tmp_path / f"{n}.parquet", t) for n, t in enumerate((first, second))]
    steps: list[Step] = [(sources[0], number) for number in range(6)]
    steps += [between, *((sources[1], number) for number in range(6))]
    return steps, pa.concat_tables([first, between, second])


def test_every_reader_finds_the_rows(both: tuple[list[Step], pa.Table], tmp_path: Path) -> None:
    steps, expected = both
    directory = tmp_path / "table"
    directory.mkdir()
    path = directory / "out.parquet"
    concatenated(path, expected, steps)
    assert same(pq.read_table(path, page_checksum_verification=True), expected)
    assert same(DataFile.open(str(path), schema=delta_schema(expected.schema)).read(), expected)
    query = "select id, text, price, list, part from read_parquet(?) where text > '3'"
    tables = (
        duckdb.connect().execute(query, [str(name)]) for name in (path, tmp_path / "all.parquet")
    )
    pq.write_table(expected, tmp_path / "all.parquet")
    assert len({str(sorted(map(str, found.fetchall()))) for found in tables}) == 1
    convert_to_deltalake(str(directory))
    found = DeltaTable(str(directory)).to_pyarrow_table()
    assert sorted(found["id"].to_pylist()) == sorted(expected["id"].to_pylist())
    assert found["float"].null_count == 0


def test_statistics_are_those_of_decoded_rows(
    both: tuple[list[Step], pa.Table], tmp_path: Path
) -> None:
    steps, expected = both
    for tight in (True, False):
        path = tmp_path / f"{tight}.parquet"
        written, _ = concatenated(path, expected, steps, tight_bounds=tight)
        options = options_for(expected, tight_bounds=tight)
        with DataFileWriter(
            f"{path}.decoded", schema=delta_schema(expected.schema), options=options
        ) as writer:
            writer.write(expected)
            decoded = writer.finish("decoded")
        assert written.stats == decoded.stats
        assert written.num_records == decoded.num_records == len(expected)
        assert written.size_bytes == path.stat().st_size


def test_only_what_no_footer_says_is_read(
    both: tuple[list[Step], pa.Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, expected = both
    asked = []
    read = CopySource.read_columns

    def noticed(self: CopySource, row_group: int, names: list[str]) -> Any:
        asked.append(names)
        return read(self, row_group, names)

    monkeypatch.setattr(CopySource, "read_columns", noticed)
    concatenated(tmp_path / "out.parquet", expected, steps)
    # NaN, decimals in bytes, and what is nested.
    assert asked == [["float", "wide", "list", "part"]] * 12


def test_bounds_that_are_truncated_are_read_where_they_must_be_tight(tmp_path: Path) -> None:
    table = rows()
    source = source_of(tmp_path / "in.parquet", table)
    for group in source.footer.row_groups:
        for chunk in group.chunks:
            statistics: dict[int, Any] = dict(chunk.statistics)
            chunk.column[12] = (12, statistics)  # type: ignore[index]
            statistics.pop(7, None)
    collector = StatisticsCollector(delta_schema(table.schema), options_for(table))
    exact = source.known_columns(0, collector, exact=True)
    wide = source.known_columns(0, collector, exact=False)
    assert set(wide) - set(exact) == {("text",)}


def test_page_indexes_move_with_their_pages(
    both: tuple[list[Step], pa.Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("liquidlog.data.file_encoding._BYTES_WITHOUT_INDEX", -1)
    steps, expected = both
    path = tmp_path / "out.parquet"
    concatenated(path, expected, steps)
    content = path.read_bytes()
    footer, _ = read_footer(io.BytesIO(content), len(content))
    assert len(footer.row_groups) == 13
    for chunk in (chunk for group in footer.row_groups for chunk in group.chunks):
        assert chunk.offset_index is not None
        assert chunk.column_index is not None or chunk.path[0] in {"list", "none", "part"}


def test_an_index_of_other_pages_is_dropped(tmp_path: Path) -> None:
    table = rows().select(["id"])
    source = source_of(tmp_path / "in.parquet", table)
    wrong = source.footer.row_groups[1].chunks[0]
    first = source.footer.row_groups[0].chunks[0]
    offset = wrong.fields[4]
    first.fields[4] = offset  # type: ignore[index]
    concatenated(tmp_path / "out.parquet", table, [(source, number) for number in range(6)])
    found = pq.read_metadata(tmp_path / "out.parquet")
    kept = [found.row_group(number).column(0).has_offset_index for number in range(6)]
    assert kept == [False, True, True, True, True, True]
    assert same(pq.read_table(tmp_path / "out.parquet"), table)


def test_required_columns_stay_required(tmp_path: Path) -> None:
    table = rows().select(["id", "text"])
    strict = table.cast(pa.schema([child.with_nullable(nullable=False) for child in table.schema]))
    source = source_of(tmp_path / "in.parquet", strict, table)
    schema, options = delta_schema(table.schema), options_for(table)
    assert source.footer.schema.key != written_schema(schema, options).key
    concatenated(tmp_path / "out.parquet", table, [(source, 0)])
    assert not pq.read_schema(tmp_path / "out.parquet").field("id").nullable
    with pytest.raises(ValueError, match="several schemas"):
        concatenated(tmp_path / "other.parquet", table, [(source, 0), table])
    assert not (tmp_path / "other.parquet").exists()


def test_schemas_of_engines_that_mean_the_same_are_the_same(tmp_path: Path) -> None:
    table = rows()
    source = source_of(tmp_path / "in.parquet", table)
    assert (
        source.footer.schema.key
        == written_schema(delta_schema(table.schema), options_for(table)).key
    )


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (lambda t: t, {"compression": "snappy"}),
        (lambda t: t, {"compression": {"id": "zstd", "text": "gzip"}}),
        (lambda t: t.select(["id"]), {}),
        (lambda t: t.select(["text", "id"]), {}),
        (lambda t: t.set_column(0, "id", t["id"].cast(pa.int32(), safe=False)), {}),
    ],
    ids=["codec", "codec of a column", "column missing", "order", "type"],
)
def test_other_files_are_decoded(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], options: dict[str, Any]
) -> None:
    like = rows().select(["id", "text"])
    path = tmp_path / "in.parquet"
    pq.write_table(change(like), path, **(OPTIONS | options))
    schema = delta_schema(like.schema)
    try:
        file = DataFile.open(str(path), schema=schema)
    except DataFileError:
        return  # refused, not decoded
    with pytest.raises(NotMovableError):
        CopySource.of(file, schema, options_for(like))


@pytest.mark.parametrize("kind", [pa.timestamp("ms", "UTC"), pa.timestamp("ns", "UTC")], ids=str)
def test_timestamps_of_another_unit_are_decoded(tmp_path: Path, kind: pa.DataType) -> None:
    like = pa.table({"at": pa.array([1000, None], pa.timestamp("us", "UTC"))})
    with pytest.raises(NotMovableError):
        source_of(tmp_path / "in.parquet", like.cast(pa.schema([("at", kind)])), like)


def test_int96_is_decoded(tmp_path: Path) -> None:
    like = pa.table({"at": pa.array([1000, None], pa.timestamp("us", "UTC"))})
    with pytest.raises(NotMovableError):
        source_of(tmp_path / "in.parquet", like, use_deprecated_int96_timestamps=True)


def created_by(footer: Footer, name: str) -> None:
    footer.fields[6] = (BINARY, name.encode())  # type: ignore[index]


def unknown_field(footer: Footer, _: str) -> None:
    footer.row_groups[0].chunks[0].column[99] = (I64, 4)  # type: ignore[index]


def other_order(footer: Footer, _: str) -> None:
    del footer.fields[7]  # type: ignore[attr-defined]


def encrypted(footer: Footer, _: str) -> None:
    footer.row_groups[0].chunks[0].fields[8] = (12, {})  # type: ignore[index]


def elsewhere(footer: Footer, _: str) -> None:
    footer.row_groups[0].chunks[0].fields[1] = (BINARY, b"x.parquet")  # type: ignore[index]


def outside(footer: Footer, _: str) -> None:
    footer.row_groups[0].chunks[0].column[9] = (I64, 1 << 40)  # type: ignore[index]


@pytest.mark.parametrize(
    "change", [created_by, unknown_field, other_order, encrypted, elsewhere, outside]
)
def test_what_a_footer_should_not_say_is_decoded(
    tmp_path: Path, change: Callable[[Footer, str], None]
) -> None:
    source_of(tmp_path / "in.parquet", rows().select(["id", "text"]))
    content = (tmp_path / "in.parquet").read_bytes()
    footer, start = read_footer(io.BytesIO(content), len(content))
    change(footer, "made-up version 1.0.0")
    other = content[:start] + framed(footer)
    changed, _ = read_footer(io.BytesIO(other), len(other))
    with pytest.raises(NotMovableError):
        changed.require_movable(Codec.ZSTD, end=start)


@pytest.mark.parametrize(
    ("name", "trusted"),
    [
        ("parquet-mr version 1.15.2 (build 859eac165b08f927fa14590c34bc5f476405fb68)", True),
        ("parquet-mr version 1.8.3 (build abc)", False),
        ("parquet-mr version 1.9.0", False),
        ("parquet-cpp-arrow version 26.0.1", True),
        ("parquet-cpp version 1.5.1-SNAPSHOT", False),
        ("parquet-rs version 60.0.0", True),
        ("liquidlog version 0.1.0", True),
        ("DuckDB", False),
        ("", False),
    ],
)
def test_only_writers_whose_statistics_are_right_are_trusted(name: str, *, trusted: bool) -> None:
    assert is_trusted(name) is trusted


def test_a_damaged_page_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    table = rows().select(["id", "text"])
    source = source_of(tmp_path / "in.parquet", table)
    start, size = source.footer.row_groups[2].chunks[1].span
    content = bytearray((tmp_path / "in.parquet").read_bytes())
    content[start + size - 3] ^= 1
    (tmp_path / "in.parquet").write_bytes(content)
    with pytest.raises(DataFileError) as caught:
        concatenated(tmp_path / "out.parquet", table, [(source, n) for n in range(6)])
    assert caught.value.path == str(tmp_path / "in.parquet")
    assert "text" in caught.value.detail
    assert not (tmp_path / "out.parquet").exists()


def test_a_copy_of_a_copy_is_the_same(both: tuple[list[Step], pa.Table], tmp_path: Path) -> None:
    steps, expected = both
    _, first = concatenated(tmp_path / "first.parquet", expected, steps)
    source = opened(tmp_path / "first.parquet", expected)
    _, second = concatenated(
        tmp_path / "second.parquet", expected, [(source, n) for n in range(13)]
    )
    assert second[:6] + second[7:] == first
    assert (tmp_path / "first.parquet").read_bytes() == (tmp_path / "second.parquet").read_bytes()


def same(found: pa.Table, expected: pa.Table) -> bool:
    """Compare with NaN equal to itself."""
    return (
        found.drop_columns("float").equals(
            expected.drop_columns("float").cast(found.drop_columns("float").schema)
        )
        and np.array_equal(
            found["float"].to_numpy().view(np.int64), expected["float"].to_numpy().view(np.int64)
        )
        if "float" in expected.column_names
        else found.equals(expected)
    )
