"""The executor before it asks Spark for anything."""

import pytest

from liquidlog.errors import ExecutorError
from liquidlog.rewriting.groups import file_location


@pytest.mark.parametrize(
    ("uri", "path", "expected"),
    [
        ("/data/t", "a b.parquet", "/data/t/a b.parquet"),
        ("/data/t", "", "/data/t"),
        ("/data/t/", "p=1/a.parquet", "/data/t/p=1/a.parquet"),
        ("file:///data/a%20b", "x%20y.parquet", "/data/a b/x%20y.parquet"),
        ("/data/t", "/elsewhere/a.parquet", "/elsewhere/a.parquet"),
        ("s3://bucket/t", "p=1/a b.parquet", "s3://bucket/t/p=1/a b.parquet"),
        ("s3://bucket/t", "s3a://other/a.parquet", "s3a://other/a.parquet"),
        ("/data/t", "/else%20where/a.parquet", "/else%20where/a.parquet"),
    ],
)
def test_location_joins_table_and_file(uri: str, path: str, expected: str) -> None:
    assert file_location(uri, path) == expected


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("s3://bucket/t", "/elsewhere/a.parquet"),
        ("/data/t", "file:///else%20where/a.parquet"),
        ("/data/t", "file://host/a.parquet"),
        ("s3://bucket/t", "gs://bucket/a.parquet"),
        ("abfss://c@one.dfs.core.windows.net/t", "abfss://c@two.dfs.core.windows.net/a.parquet"),
        ("/data/t", "gs://bucket/a.parquet"),
    ],
)
def test_location_refuses_a_file_in_another_storage(uri: str, path: str) -> None:
    with pytest.raises(ExecutorError):
        file_location(uri, path)
