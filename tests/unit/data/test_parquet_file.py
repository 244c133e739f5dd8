from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import structs

from liquidlog.data.logical_file import LogicalFile
from liquidlog.errors import DataFileError
from liquidlog.plan import InputFile, RowTracking
from liquidlog.spec.schema import StructType, parse_schema
from support.plans import schema_json_of, write_inputs
from support.vectors import write_vector

SCHEMA: StructType = parse_schema(schema_json_of({"key": "long"}), where="test")
IDS = RowTracking(row_id_column="_id", row_commit_version_column="_version", preserved=True)


@pytest.fixture
def source(tmp_path: Path) -> InputFile:
    table = pa.table({"key": pa.array(range(10), pa.int64())})
    (written,) = write_inputs(tmp_path, table, 1, row_group_rows=4)
    vector = write_vector(tmp_path / "vector.bin", [0, 1, 2, 3, 5])
    return structs.replace(written, deletion_vector=vector, num_records=10)


def opened(
    directory: Path, source: InputFile, row_tracking: RowTracking | None = None
) -> LogicalFile:
    return LogicalFile.open(
        str(directory / source.path),
        source,
        schema=SCHEMA,
        vector_location=str(directory / "vector.bin"),
        row_tracking=row_tracking,
    )


def test_live_rows_are_those_that_the_vector_leaves(tmp_path: Path, source: InputFile) -> None:
    with opened(tmp_path, source) as file:
        assert file.num_rows == 5
        assert [file.row_group_rows(group) for group in range(3)] == [0, 3, 2]
        assert [file.row_group_physical_rows(group) for group in range(3)] == [4, 4, 2]
        assert file.read()["key"].to_pylist() == [4, 6, 7, 8, 9]
        assert file.read([("key",)], [2, 0])["key"].to_pylist() == [8, 9]
        parts = list(file.read_in_parts(None, 1, max_rows=3))
        assert [part["key"].to_pylist() for part in parts] == [[4, 6], [7]]


def test_rows_without_ids_get_those_of_their_physical_places(
    tmp_path: Path, source: InputFile
) -> None:
    numbered = structs.replace(source, base_row_id=100, default_row_commit_version=7)
    with opened(tmp_path, numbered, IDS) as file:
        rows = file.read()
    assert rows["_id"].to_pylist() == [104, 106, 107, 108, 109]
    assert rows["_version"].to_pylist() == [7] * 5


def test_a_file_that_is_not_what_the_log_says_is_refused(tmp_path: Path, source: InputFile) -> None:
    with pytest.raises(DataFileError):
        opened(tmp_path, structs.replace(source, num_records=11))
    with pytest.raises(DataFileError):
        opened(tmp_path, source, IDS)
    (tmp_path / "vector.bin").unlink()
    with pytest.raises(DataFileError):
        opened(tmp_path, source)
