"""What holds of every table on its way into a data file and back."""

import tempfile
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.data.append import conform
from liquidlog.data.checksum import add_checksums, multiset_checksum
from liquidlog.data.reader import DataFile
from liquidlog.data.statistics import StatisticsCollector, truncate_max, truncate_min
from liquidlog.data.writer import DataFileWriter
from liquidlog.plan import WriterOptions
from liquidlog.spec.arrow import delta_schema, leaf_column
from liquidlog.spec.bounds import FileStatistics, encode_stats, parse_bounds
from liquidlog.spec.schema import ArrayType, MapType, leaves
from support.tables import ordered, tables, values

cuts = st.lists(st.integers(0, 12), max_size=4)


def _slices(table: pa.Table, at: list[int]) -> list[pa.Table]:
    bounds = [0, *sorted(min(cut, table.num_rows) for cut in at), table.num_rows]
    return [table.slice(start, end - start) for start, end in pairwise(bounds)]


def _options(table: pa.Table, prefix_chars: int = 32) -> WriterOptions:
    indexed = tuple(leaf.physical for leaf in leaves(delta_schema(table.schema)))
    return WriterOptions(indexed=indexed, string_prefix_chars=prefix_chars)


def _collect(slices: list[pa.Table], prefix_chars: int = 32) -> FileStatistics:
    options = _options(slices[0], prefix_chars)
    collector = StatisticsCollector(delta_schema(slices[0].schema), options)
    for rows in slices:
        collector.add(rows)
    return collector.finish()


@given(table=tables(), data=st.data())
def test_checksum_does_not_depend_on_the_order_of_rows(
    table: pa.Table, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(table.num_rows)))
    shuffled = table.take(pa.array(order, pa.int64()))
    assert multiset_checksum(shuffled) == multiset_checksum(table)


@given(table=tables(), at=cuts)
def test_checksum_of_slices_adds_up(table: pa.Table, at: list[int]) -> None:
    parts = [multiset_checksum(rows) for rows in _slices(table, at)]
    assert add_checksums(*parts) == multiset_checksum(table)


@given(table=tables(), data=st.data())
def test_checksum_notices_any_changed_value(table: pa.Table, data: st.DataObject) -> None:
    if table.num_rows == 0:
        return
    number = data.draw(st.integers(0, table.num_columns - 1))
    row = data.draw(st.integers(0, table.num_rows - 1))
    column = table.column(number).combine_chunks()
    other = pa.array([data.draw(values(column.type))], column.type)
    changed = pa.concat_arrays([column.slice(0, row), other, column.slice(row + 1)])
    replaced = table.set_column(number, table.field(number), changed)
    # repr tells -0.0 from 0.0; NaNs of any payload look alike, so they are not compared.
    before, after = repr(column[row].as_py()), repr(other[0].as_py())
    if "nan" in before and "nan" in after:
        return
    same = multiset_checksum(replaced) == multiset_checksum(table)
    assert same == (before == after)


@given(table=tables())
def test_checksum_notices_a_lost_or_doubled_row(table: pa.Table) -> None:
    whole = multiset_checksum(table)
    for row in range(table.num_rows):
        rest = pa.concat_tables([table.slice(0, row), table.slice(row + 1)])
        doubled = pa.concat_tables([table, table.slice(row, 1)])
        assert len({whole, multiset_checksum(rest), multiset_checksum(doubled)}) == 3


@given(table=tables(), at=cuts)
def test_written_file_holds_the_rows_and_says_so(table: pa.Table, at: list[int]) -> None:
    schema = delta_schema(table.schema)
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "f.parquet")
        with DataFileWriter(path, schema=schema, options=_options(table)) as writer:
            for rows in _slices(table, at):
                writer.write(rows)
            written = writer.finish("f.parquet")
        with DataFile.open(path, schema=schema, dictionary=True) as file:
            found = file.read()
            flat = file.read(columns=[leaf.physical for leaf in leaves(schema)])
        assert written.num_records == found.num_rows == table.num_rows
        assert written.stats == encode_stats(_collect([table]))
        assert multiset_checksum(found) == multiset_checksum(table)
        expected = [leaf_column(table, leaf.physical) for leaf in leaves(schema)]
        assert multiset_checksum(flat) == multiset_checksum(pa.table(expected, flat.schema.names))


@given(table=tables(), at=cuts, prefix_chars=st.sampled_from([1, 3, 32]))
def test_statistics_do_not_depend_on_slicing(
    table: pa.Table, at: list[int], prefix_chars: int
) -> None:
    sliced = _collect(_slices(table, at), prefix_chars)
    assert encode_stats(sliced) == encode_stats(_collect([table], prefix_chars))


@given(table=tables(), prefix_chars=st.sampled_from([1, 3, 32]))
def test_parsed_statistics_bound_every_value(table: pa.Table, prefix_chars: int) -> None:
    columns = list(leaves(delta_schema(table.schema)))
    stats = encode_stats(_collect([table], prefix_chars))
    found = parse_bounds(pa.array([stats]), columns)
    assert found.num_records[0].as_py() == table.num_rows
    for number, leaf in enumerate(columns):
        column = leaf_column(table, leaf.physical)
        ends = found.columns[number]
        low, high = ordered(ends.low[0].as_py()), ordered(ends.high[0].as_py())
        nulls = ends.null_count[0].as_py()
        # Some writers count nulls of elements wrongly, so nobody's count of them is believed.
        assert nulls == column.null_count or (
            nulls is None and isinstance(leaf.data_type, ArrayType | MapType)
        )
        present = [ordered(value) for value in column.drop_null().to_pylist()]
        has_nan = any(value != value for value in present)  # noqa: PLR0124  only NaN does
        assert low is None or not any(value < low for value in present)
        assert high is None or not any(value > high for value in present)
        assert high is None or not has_nan or high != high  # noqa: PLR0124


@given(table=tables())
def test_data_of_the_table_schema_conforms_unchanged(table: pa.Table) -> None:
    shuffled = table.select(table.schema.names[::-1])
    found = pa.concat_tables(
        [table.schema.empty_table(), *conform(shuffled, delta_schema(table.schema), where="law")]
    )
    assert multiset_checksum(found) == multiset_checksum(table)


@given(text=st.text(max_size=40), prefix_chars=st.integers(1, 12))
def test_truncated_bounds_enclose_the_text(text: str, prefix_chars: int) -> None:
    low, high = truncate_min(text, prefix_chars), truncate_max(text, prefix_chars)
    assert low is not None
    assert low <= text
    assert high is None or high >= text
