from pathlib import Path

import pytest

from liquidlog.errors import UsageError
from liquidlog.storage.addresses import file_address, local_path, table_address


@pytest.mark.parametrize(
    ("table", "path", "address"),
    [
        ("/t", "a b%20#?", "/t/a b%20#?"),
        ("/t", "/u/x%20y", "/u/x%20y"),
        ("/t", "./file:/x", "/t/./file:/x"),
        ("/t", "", "/t"),
        ("s3://b/t", "a%20b", "s3://b/t/a%20b"),
        ("s3://b/t", "./s3:/x", "s3://b/t/s3:/x"),
        ("s3://b/t", "../u/x", "s3://b/u/x"),
        ("s3://b/t", "s3a://c/x", "s3a://c/x"),
    ],
)
def test_a_canonical_path_is_not_decoded_again(table: str, path: str, address: str) -> None:
    assert file_address(table, path) == address


@pytest.mark.parametrize(
    ("table", "path"),
    [
        ("/t", "file://host/x"),
        ("/t", "file:/x"),
        ("/t", "//host/x"),
        ("/t", "s3://b/x"),
        ("/t", "a\0b"),
        ("s3://b/t", "/x"),
        ("s3://b/t", "../../x"),
        ("s3://b/t", "gs://b/x"),
    ],
)
def test_a_file_that_is_elsewhere_is_refused(table: str, path: str) -> None:
    with pytest.raises(UsageError):
        file_address(table, path)


def test_an_address_of_a_user_is_a_path_or_a_uri() -> None:
    assert table_address("//data/x%20y") == "/data/x%20y"
    assert table_address("file:////data/x%2520y/") == "/data/x%20y"
    assert table_address("file://localhost/data/x") == "/data/x"
    assert table_address("x%20y") == str(Path("x%20y").absolute())
    for wrong in ("file://host/x", "file:///a#b", "file:///a?b"):
        with pytest.raises(UsageError):
            local_path(wrong)
    with pytest.raises(UsageError):
        table_address("a\0b")
