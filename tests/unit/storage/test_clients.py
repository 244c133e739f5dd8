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
}
PACKAGES = {"s3": "s3fs", "gcs": "gcsfs", "azure": "adlfs"}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_missing_client_names_the_extra_and_its_package(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, uri = FAMILIES[family], ADDRESSES[family]
    monkeypatch.setitem(sys.modules, kind.module, None)
    with pytest.raises(UsageError) as caught:
        open_client(parse_object_address(uri), NO_OPTIONS)
    assert f"the extra {kind.extra} of liquidlog" in caught.value.message
    assert f"({PACKAGES[family]})" in caught.value.message
    assert "pip install" not in caught.value.message
