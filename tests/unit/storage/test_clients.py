"""Clients of object stores: what is said where one is not installed."""

import sys

import pytest

from liquidlog.errors import UsageError
from liquidlog.storage.addresses import parse_object_address
from liquidlog.storage.clients import FAMILIES, open_client
from liquidlog.storage.options import NO_OPTIONS

ADDRESSES = {
    "s3": "s3://bucket/table",
    "gcs": "gs://bucket/table",
    "azure": "abfss://container@account.dfs.core.windows.net/table",
    "hdfs": "hdfs://namenode:8020/table",
}
PACKAGES = {"s3": "s3fs", "gcs": "gcsfs", "azure": "adlfs", "hdfs": "hdfs-native"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_missing_client_names_the_extra_and_its_package(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, uri = FAMILIES[family], ADDRESSES[family]
    monkeypatch.delitem(sys.modules, "liquidlog.storage.hdfs", raising=False)
    monkeypatch.setitem(sys.modules, "hdfs_native" if family == "hdfs" else kind.module, None)
    with pytest.raises(UsageError) as caught:
        open_client(parse_object_address(uri), uri, NO_OPTIONS)
    assert f"the extra {kind.extra} of liquidlog" in caught.value.message
    assert f"({PACKAGES[family]})" in caught.value.message
    assert "pip install" not in caught.value.message
