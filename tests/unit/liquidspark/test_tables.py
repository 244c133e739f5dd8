"""DeltaTable without a session at work: arguments, and what only the log is needed for."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from liquidlog.errors import SchemaChangeError, UsageError
from liquidspark.tables import DeltaTable

OF_ANY: Any = DeltaTable


@pytest.fixture
def spark() -> Any:
    """What is looked at before a session is used."""
    return type("Session", (), {"read": None, "version": None})()


@pytest.fixture
def table(spark: Any, tmp_path: Path) -> DeltaTable:
    write_deltalake(str(tmp_path / "t"), pa.table({"id": [1]}))
    return DeltaTable.forPath(spark, str(tmp_path / "t"), {})


def builder(spark: Any) -> Any:
    return DeltaTable.create(spark)


CREATING: list[tuple[str, tuple[Any, ...]]] = [
    *(("tableName", (1,)), ("location", (1,)), ("comment", (1,)), ("property", ("p", 1))),
    *(("property", (1, "p")), ("clusterBy", (1,)), ("partitionedBy", (1,))),
    *(("addColumns", (1,)), ("addColumns", ("a int",)), ("addColumns", ([1],))),
    *(("addColumn", (1, "int")), ("addColumn", ("a", 1)), ("addColumn", ("a", "int", "no"))),
]
ASKING: list[tuple[str, tuple[Any, ...]]] = [
    *(("history", ("1",)), ("vacuum", ("1",)), ("addFeatureSupport", (1,))),
    *(("upgradeTableProtocol", ("3", 7)), ("upgradeTableProtocol", (1, 2.5))),
    *(("dropFeatureSupport", (1,)), ("dropFeatureSupport", ("clustering", "yes"))),
]


def test_an_argument_of_a_wrong_type_is_a_type_error(spark: Any, table: DeltaTable) -> None:
    wrong: list[Callable[[], Any]] = [
        lambda: OF_ANY.forPath("spark", "t"),
        lambda: OF_ANY.forPath(spark, 1),
        lambda: OF_ANY.forPath(spark, "t", "fs.s3a.access.key"),
        lambda: OF_ANY.forPath(spark, "t", {"fs.s3a.access.key": 1}),
        lambda: OF_ANY.forName(spark, 1),
        lambda: OF_ANY.isDeltaTable(spark, 1),
        lambda: builder("spark"),
        lambda: builder(spark).addColumn("a", "int", comment=1),
        lambda: OF_ANY.optimize(table).where(1),
        lambda: OF_ANY.optimize(table).executeZOrderBy(1),
        *(partial(getattr(builder(spark), name), *words) for name, words in CREATING),
        *(partial(getattr(table, name), *words) for name, words in ASKING),
    ]
    for call in wrong:
        with pytest.raises(TypeError):
            call()


def test_hadoops_words_for_s3_are_storage_options(spark: Any, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table({"id": [1]}))
    conf = {"fs.s3a.access.key": "a", "fs.s3a.endpoint.region": "eu-west-1"}
    with pytest.raises(UsageError, match="aws_access_key_id, aws_region"):  # not of a local disk
        DeltaTable.forPath(spark, str(tmp_path / "t"), hadoopConf=conf)
    wrong: tuple[dict[str, Any], ...] = (
        {"hadoopConf": {"fs.gs.x": "1"}},
        {"hadoopConf": conf, "storage_options": conf},
    )
    for more in wrong:
        with pytest.raises(UsageError, match="hadoopConf may have"):
            DeltaTable.forPath(spark, str(tmp_path / "t"), **more)


def test_features_and_versions_are_added(table: DeltaTable) -> None:
    table.addFeatureSupport("timestampntz")
    table.upgradeTableProtocol(1, 3)
    found = table.table.snapshot().protocol
    assert (found.min_reader_version, found.min_writer_version) == (3, 7)
    assert found.reader_features == ("timestampNtz",)
    assert {"appendOnly", "checkConstraints"} <= {*(found.writer_features or ())}
    with pytest.raises(SchemaChangeError):
        table.addFeatureSupport("rowTracking")
    with pytest.raises(SchemaChangeError):
        table.upgradeTableProtocol(4, 7)


def test_a_table_without_columns_is_not_created(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one column"):
        builder(spark).location(tmp_path / "t").execute()
    assert not (tmp_path / "t").exists()


def test_a_partitioned_table_is_created(spark: Any, tmp_path: Path) -> None:
    columns = builder(spark).location(tmp_path / "t").addColumn("a", "int").addColumn("b", "int")
    made = columns.partitionedBy("b").execute()
    assert made.table.detail()["partitionColumns"] == ["b"]
