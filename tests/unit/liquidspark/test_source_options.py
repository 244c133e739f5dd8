"""Options of the data source, as Spark gives them."""

from collections.abc import Mapping

import pytest

from liquidlog.errors import UsageError
from liquidspark.source_options import ReadOptions, WriteOptions, read_options, write_options


def test_options_of_any_case_become_values() -> None:
    given = {
        "PATH": "t",
        "VERSIONASOF": "3",
        "columns": "a, `b,c`",
        "filesWhere": "a = 1",
        "storage.aws_region": "x",
    }
    assert read_options(given) == ReadOptions(
        path="t",
        version=3,
        columns=("a", "b,c"),
        files_where="a = 1",
        storage={"aws_region": "x"},
    )
    given = {"path": "t", "cluster": "TRUE", "maxFileSize": "1MiB", "mergeschema": "false"}
    assert write_options({**given, "txnappid": "a", "txnVersion": "7"}) == WriteOptions(
        path="t", storage={}, cluster=True, max_file_size="1MiB", txn=("a", 7)
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "the path of the table is missing"),
        ({"path": "t", "version": "1"}, "versionAsOf"),
        ({"path": "t", "versionAsOf": "-1"}, "whole number"),
        ({"path": "t", "versionAsOf": "1", "timestampAsOf": "2020-01-01"}, "not both"),
        ({"path": "t", "columns": "a.b"}, "whole columns"),
        ({"path": "t", "columns": ""}, "whole columns"),
        ({"path": "t", "cluster": "true"}, "reading has no option cluster"),
    ],
)
def test_wrong_options_to_read_are_refused(given: Mapping[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_options(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": "t", "replaceWhere": "a = 1"}, "writing has no option replaceWhere"),
        ({"path": "t", "mergeSchema": "1"}, "true or false"),
        ({"path": "t", "txnVersion": "1"}, "together"),
        ({"path": "t", "txnAppId": "a", "txnVersion": "x"}, "whole number"),
    ],
)
def test_wrong_options_to_write_are_refused(given: Mapping[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        write_options(given)
