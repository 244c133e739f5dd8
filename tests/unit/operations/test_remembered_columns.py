"""Properties that name columns: Bloom filters of every file, a prefix, weights of columns."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.errors import SchemaChangeError, UsageError
from liquidlog.table import Table
from support.filters import filters_in
from support.properties import set_elsewhere


def test_remembered_filters_are_in_every_file_and_follow_a_rename(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.int64()), ("s", pa.string())])
    properties = {"delta.columnMapping.mode": "name", "liquidlog.bloomFilter": "S"}
    table = Table.create(tmp_path / "t", schema=schema, properties=properties)
    table.rename_column("s", "name")
    assert table.detail()["properties"]["liquidlog.bloomFilter"] == "name"
    names = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(5000)]
    table.append(pa.table({"x": pa.array(range(5000)), "name": names}))
    (path,) = table.files()["path"].to_pylist()
    (found,) = filters_in(str(tmp_path / "t" / path))
    (named,) = table.plan().writer_options.bloom_filters
    assert found.keys() == {*named}
    with pytest.raises(SchemaChangeError):
        table.drop_column("name")


def test_a_wrong_value_is_refused_before_rows_are_read(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", schema=pa.schema([("x", pa.int64())]))
    set_elsewhere(table, {"liquidlog.bloomFilter": "x, y"})
    with pytest.raises(UsageError, match="bloomFilter"):
        table.append(str(tmp_path / "missing.parquet"))
    with pytest.raises(UsageError, match="bloomFilter"):
        table.plan()
    assert not table.files().num_rows


def test_a_prefix_and_weights_are_in_plans_and_follow_a_rename(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64())])
    properties = {
        "delta.columnMapping.mode": "name",
        "liquidlog.prefix": "A",
        "liquidlog.weights": "b=3, A=1",
    }
    table = Table.create(
        tmp_path / "t", schema=schema, properties=properties, cluster_by=["a", "b"]
    )
    planned = table.plan()
    assert planned.policy.prefix == (("a",),)
    assert planned.decided_by["prefix"] == "liquidlog.prefix"
    assert planned.readers is not None
    assert planned.readers.column_weights == (0.25, 0.75)
    assert table.plan(prefix="b").policy.prefix == (("b",),)
    table.rename_column("a", "the = one")
    remembered = table.detail()["properties"]
    assert remembered["liquidlog.prefix"] == "`the = one`"
    assert remembered["liquidlog.weights"] == "b=3,`the = one`=1"
    again = table.plan().readers
    assert again is not None
    assert again.column_weights == (0.25, 0.75)
    table.rename_column("c", "d")
    assert table.detail()["layout"]["weights"]["value"] == ["b=3", "`the = one`=1"]
    table.cluster_by(["b", "d"])
    with pytest.raises(UsageError, match=r"liquidlog\.prefix"):
        table.plan()
    with pytest.raises(UsageError, match=r"liquidlog\.weights"):
        table.plan(prefix="d")


@pytest.mark.parametrize("value", ["", "a", "a=", "a=x", "a=-1", "a=0", "a=1,", "a=1,a=2", "z=1"])
def test_wrong_weights_are_not_set(tmp_path: Path, value: str) -> None:
    table = Table.create(tmp_path / "t", schema=pa.schema([("a", pa.int64())]), cluster_by="a")
    with pytest.raises(UsageError, match=r"liquidlog\.weights"):
        table.set_properties({"liquidlog.weights": value})
    set_elsewhere(table, {"liquidlog.weights": value})
    with pytest.raises(UsageError, match=r"liquidlog\.weights"):
        table.plan()
