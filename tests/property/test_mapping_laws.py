"""What holds of every table with column mapping on its way into a data file and back."""

import re
import tempfile
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.data.append import conform
from liquidlog.data.checksum import multiset_checksum
from liquidlog.data.reader import DataFile
from liquidlog.data.writer import DataFileWriter
from liquidlog.plan import WriterOptions
from liquidlog.spec.arrow import arrow_schema, delta_schema
from liquidlog.spec.schema import (
    FIELD_ID,
    MAX_COLUMN_ID,
    MODE,
    MappingMode,
    StructType,
    fields_with_paths,
    mapping_problems,
    parse_schema,
    schema_json,
    with_fields,
    with_new_mapping,
    without_mapping,
)
from support.tables import tables


def _mapped(table: pa.Table) -> tuple[StructType, int]:
    numbers = count(100)
    return with_new_mapping(delta_schema(table.schema), lambda: f"u{next(numbers)}")


def _written(table: pa.Table, schema: StructType, path: str) -> None:
    with DataFileWriter(path, schema=schema, options=WriterOptions(indexed=())) as writer:
        for rows in conform(table, schema, where="law"):
            writer.write(rows)
        writer.finish("f")


def _read(path: str, schema: StructType, mode: MappingMode) -> pa.Table:
    with DataFile.open(path, schema=schema, mapping=mode) as file:
        return file.read()


@given(table=tables())
def test_mapped_rows_come_back_by_name_and_by_id(table: pa.Table) -> None:
    schema, largest = _mapped(table)
    configuration = {MODE: "id", MAX_COLUMN_ID: str(largest)}
    assert mapping_problems(schema, configuration) == ()
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "f")
        _written(table, schema, path)
        for mode in (MappingMode.NAME, MappingMode.ID):
            found = _read(path, schema, mode)
            assert found.schema == arrow_schema(schema, physical=True)
            assert multiset_checksum(found) == multiset_checksum(table)


@given(table=tables())
def test_every_field_has_its_id_in_the_footer_and_nothing_else_has_one(table: pa.Table) -> None:
    schema, _ = _mapped(table)
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "f")
        _written(table, schema, path)
        footer = re.findall(r"field_id=(-?\d+) ([\w-]+)", str(pq.ParquetFile(path).schema))
    found = [(int(number), name) for number, name in footer if int(number) >= 0]
    fields = [field for _, field in fields_with_paths(schema)]
    expected = [(field.metadata[FIELD_ID], field.physical_name) for field in fields]
    assert found == expected


@given(table=tables(), data=st.data())
def test_by_id_the_names_in_the_table_may_be_any(table: pa.Table, data: st.DataObject) -> None:
    schema, _ = _mapped(table)
    names = [field.physical_name for _, field in fields_with_paths(schema)]
    shuffled = iter(data.draw(st.permutations(names)))
    other = with_fields(
        schema,
        lambda field: type(field)(
            field.name,
            field.data_type,
            metadata={**field.metadata, "delta.columnMapping.physicalName": next(shuffled)},
        ),
    )
    with tempfile.TemporaryDirectory() as directory:
        path = str(Path(directory) / "f")
        _written(table, schema, path)
        found = _read(path, other, MappingMode.ID)
    assert multiset_checksum(found) == multiset_checksum(table)


@given(table=tables())
def test_mapping_goes_away_without_a_trace_and_survives_json(table: pa.Table) -> None:
    schema = delta_schema(table.schema)
    mapped, _ = _mapped(table)
    assert without_mapping(mapped) == schema
    assert parse_schema(schema_json(mapped), where="law") == mapped
