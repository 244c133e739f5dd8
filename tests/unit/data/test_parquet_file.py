from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data.parquet_file import ParquetFile
from liquidlog.errors import DataFileError


@pytest.fixture
def path(tmp_path: Path) -> str:
    table = pa.table(
        {
            "few": [f"v{row % 3}" for row in range(3_000)],
            "many": [f"unique value {row}" for row in range(3_000)],
            "n": range(3_000),
        }
    )
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=1_000)
    return str(tmp_path / "f.parquet")


def test_row_groups_are_read_whole_or_in_parts(path: str) -> None:
    with ParquetFile(path) as file:
        assert file.metadata.num_row_groups == 3
        whole = file.read([1], ["n"])
        parts = list(file.read_in_parts(1, ["n"], max_rows=300))
    assert [len(part) for part in parts] == [300, 300, 300, 100]
    assert pa.concat_tables(parts)["n"].to_pylist() == whole["n"].to_pylist()
    assert whole["n"].to_pylist() == list(range(1_000, 2_000))


def test_text_of_few_values_is_a_candidate_for_dictionaries(path: str) -> None:
    with ParquetFile(path) as file:
        assert file.dictionary_candidates(file.schema) == {"few"}
    with ParquetFile(path, dictionaries=frozenset({"few"})) as file:
        assert isinstance(file.read([0])["few"].type, pa.DictionaryType)


@pytest.mark.parametrize("content", [None, b"", b"not a parquet file"])
def test_what_is_no_parquet_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    other = tmp_path / "other.parquet"
    if content is not None:
        other.write_bytes(content)
    with pytest.raises(DataFileError) as caught:
        ParquetFile(str(other))
    assert caught.value.path == str(other)
