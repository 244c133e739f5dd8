from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data.statistics import rescan
from liquidlog.errors import DataFileError
from liquidlog.plan import WriterOptions
from liquidlog.spec.schema import parse_schema
from support.plans import schema_json_of

SCHEMA = parse_schema(schema_json_of({"a": "long", "b": "string"}), where="test")
OPTIONS = WriterOptions(indexed=(("a",),))


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = pa.table({"a": pa.array([3, None, 1, 2], pa.int64()), "b": ["x", "y", "z", None]})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=2)
    return str(tmp_path / "f.parquet")


def test_statistics_are_those_of_all_row_groups_and_of_the_asked_leaves(path: str) -> None:
    found = rescan(path, schema=SCHEMA, options=OPTIONS, num_records=4)
    assert found.num_records == 4
    assert (found.min_values, found.max_values) == ({("a",): 1}, {("a",): 3})
    assert found.null_count == {("a",): 1}


def test_a_file_of_other_rows_than_the_log_says_is_refused(path: str) -> None:
    with pytest.raises(DataFileError):
        rescan(path, schema=SCHEMA, options=OPTIONS, num_records=5)
