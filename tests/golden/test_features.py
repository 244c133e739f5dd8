"""Tables of newer features that the reference engine wrote: rewritten, appended to, or refused."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.errors import LiquidlogError, UnsupportedFeatureError
from liquidlog.operations.inspect import plan_read
from liquidlog.operations.optimize import require_rewritable
from liquidlog.snapshot import Snapshot
from liquidlog.spec.arrow import arrow_schema
from liquidlog.table import Table
from support.arrow_executor import execute, read_group
from support.copies import copy_table, plan_of_all
from support.logs import change_actions
from support.repository import ROOT

PARTITIONED = ["iceberg_v2", "materialized"]


def recorded(case: str) -> pa.Table:
    return pq.read_table(ROOT / "fixtures" / "features" / case / "rows.parquet")


def counted(rows: pa.Table) -> Counter[str]:
    return Counter(repr(row) for row in rows.to_pylist())


def live_files(table: Table) -> list[str]:
    names = table.snapshot().files["path"].to_pylist()
    return [f"{table.uri}/{unquote(name)}" for name in names]


def rows_in_files(table: Table) -> pa.Table:
    """The rows that a reader of Parquet finds who knows nothing of the log but the schema."""
    schema = table.snapshot().schema
    wanted = arrow_schema(schema)
    parts = []
    for path in live_files(table):
        found = pq.ParquetFile(path).read()
        columns = []
        for field, kind in zip(schema.fields, wanted.types, strict=True):
            held = field.physical_name in found.column_names
            values = (
                found[field.physical_name] if held else pa.chunked_array([pa.nulls(len(found))])
            )
            columns.append(values.combine_chunks().view(kind) if held else values.cast(kind))
        parts.append(pa.table(columns, schema=wanted))
    return pa.concat_tables(parts)


def footer(path: str) -> list[str]:
    """Names, types and field ids of a file's parts, as its footer nests them."""
    lines = str(pq.ParquetFile(path).schema).splitlines()[2:]
    return [re.sub(r"Timestamp\(.*\)|(Decimal)\(.*\)", r"\1", line) for line in lines]


def adds_of(table: Table, version: int) -> list[dict[str, Any]]:
    commit = Path(table.uri, "_delta_log", f"{version:020d}.json")
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    return [action["add"] for action in actions if "add" in action]


@pytest.mark.parametrize("case", PARTITIONED)
def test_files_hold_partition_columns_last_with_all_field_ids(case: str, tmp_path: Path) -> None:
    """Footers and rows are the reference engine's, after a compaction and after an append."""
    table = Table.open(str(copy_table("features", case, tmp_path)))
    theirs = footer(max(live_files(table), key=lambda path: Path(path).stat().st_mtime_ns))
    before = recorded(case)
    named = before.cast(arrow_schema(table.snapshot().schema))
    assert counted(rows_in_files(table)) == counted(named)
    compacted = table.optimize(executor="local").versions[-1]
    assert len(adds_of(table, compacted)) == 2
    assert counted(rows_in_files(table)) == counted(named)
    appended = table.append(named).version
    assert counted(rows_in_files(table)) == counted(pa.concat_tables([named, named]))
    tags = {"ICEBERG_COMPAT_VERSION": "2"} if case == "iceberg_v2" else None
    partitions = set(table.snapshot().metadata.partition_columns)
    for add in (*adds_of(table, compacted), *adds_of(table, appended)):
        assert footer(f"{table.uri}/{unquote(add['path'])}") == theirs
        assert add.get("tags") == tags
        stats = json.loads(add["stats"])
        assert stats["numRecords"] > 0
        assert not partitions.intersection(stats["nullCount"])


def test_a_cube_of_an_iceberg_table_has_both_kinds_of_tags(tmp_path: Path) -> None:
    table = Table.open(str(copy_table("tables", "29_iceberg_compat_v2", tmp_path)))
    assert table.plan(full=True).format_version == 4  # which releases without the ids refuse
    [version] = table.optimize(executor="local", full=True).versions
    tags = [add["tags"] for add in adds_of(table, version)]
    assert {one.pop("ICEBERG_COMPAT_VERSION") for one in tags} == {"2"}
    assert all(one.keys() == {"ZCUBE_ID", "ZCUBE_ZORDER_BY"} for one in tags)


def test_pyiceberg_finds_every_column_by_its_field_id(tmp_path: Path) -> None:
    """It reads rewritten files under the table's names, though files have physical ones."""
    pytest.importorskip("pyiceberg", reason="pyiceberg is not installed; pip install pyiceberg")
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadataV2
    from pyiceberg.typedef import Record

    table = Table.open(str(copy_table("features", "iceberg_v2", tmp_path)))
    named = recorded("iceberg_v2").cast(arrow_schema(table.snapshot().schema))
    table.optimize(executor="local")
    table.append(named)
    schema = iceberg_schema(table.snapshot())
    facts = {
        "location": table.uri,
        "last-column-id": schema.highest_field_id,
        "schemas": [schema],
        "current-schema-id": schema.schema_id,
        "partition-specs": [UNPARTITIONED_PARTITION_SPEC],
        "default-spec-id": 0,
        "last-partition-id": 999,
    }
    metadata = TableMetadataV2.model_validate(facts)
    tasks = []
    for path in live_files(table):
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=pq.read_metadata(path).num_rows,
            file_size_in_bytes=Path(path).stat().st_size,
        )
        file.spec_id = 0
        tasks.append(FileScanTask(file))
    found = ArrowScan(metadata, PyArrowFileIO(), schema, AlwaysTrue()).to_table(tasks)
    # pyiceberg 0.12 gives a null map of structs as an empty one, also of Delta Spark's files.
    wanted = [{**row, "m": row["m"] or []} for row in named.to_pylist()]
    assert Counter(map(repr, found.to_pylist())) == Counter(map(repr, 2 * wanted))


def iceberg_schema(snapshot: Snapshot) -> Any:
    """The schema that a conversion to Iceberg writes: the table's names and ids."""
    from pyiceberg import types as ice
    from pyiceberg.schema import Schema

    plain = {
        "string": ice.StringType(),
        "long": ice.LongType(),
        "integer": ice.IntegerType(),
        "timestamp": ice.TimestamptzType(),
        "decimal(10,2)": ice.DecimalType(10, 2),
    }

    def converted(kind: Any, ids: dict[str, int], place: str) -> Any:
        if isinstance(kind, str):
            return plain[kind]
        if kind["type"] == "array":
            at = f"{place}.element"
            inner = converted(kind["elementType"], ids, at)
            return ice.ListType(ids[at], inner, element_required=False)
        if kind["type"] == "map":
            key, value = f"{place}.key", f"{place}.value"
            first = converted(kind["keyType"], ids, key)
            second = converted(kind["valueType"], ids, value)
            return ice.MapType(ids[key], first, ids[value], second, value_required=False)
        return ice.StructType(*fields(kind))

    def fields(struct: Any) -> list[Any]:
        found = []
        for one in struct["fields"]:
            own = one["metadata"]
            place = own["delta.columnMapping.physicalName"]
            kind = converted(one["type"], own["delta.columnMapping.nested.ids"], place)
            number = own["delta.columnMapping.id"]
            found.append(ice.NestedField(number, one["name"], kind, required=False))
        return found

    return Schema(*fields(json.loads(snapshot.metadata.schema_string)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"delta.columnMapping.mode": "none"}, "icebergCompatV2 without column mapping"),
        ({"delta.enableIcebergCompatV1": "true"}, "icebergCompatV1 and icebergCompatV2 at once"),
        ({"stats": None}, "icebergCompatV2 with 1 file(s) without numRecords"),
        ({"deletionVector": 1}, "icebergCompatV2 with deletion vectors of 1 file(s), which Delta"),
    ],
)
def test_a_table_against_the_rules_of_iceberg_is_neither_rewritten_nor_appended_to(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = copy_table("features", "iceberg_v2", tmp_path)
    vector = {
        "storageType": "i",
        "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@",
        "sizeInBytes": 40,
        "cardinality": 6,
    }

    def changed(action: dict[str, Any]) -> None:
        add = action.get("add")
        if add is not None and "stats" in change:
            del add["stats"]
        elif add is not None and "deletionVector" in change:
            add["deletionVector"] = vector
        elif "metaData" in action and change.keys() <= {*NAMES}:
            action["metaData"]["configuration"] |= change

    change_actions(path, 4 if change.keys() <= {*NAMES} else 3, changed)
    table = Table.open(str(path))
    for refused in (lambda: table.optimize(executor="local"), lambda: table.append(pa.table({}))):
        with pytest.raises(LiquidlogError, match=re.escape(reason)):
            refused()


NAMES = ("delta.columnMapping.mode", "delta.enableIcebergCompatV1")


@pytest.mark.parametrize("case", ["collated", "intervals"])
def test_rewrites_keep_values_that_are_never_looked_into(case: str, tmp_path: Path) -> None:
    table = Table.open(str(copy_table("features", case, tmp_path)))
    before = table.snapshot()
    plan = plan_of_all(before, outputs=1)
    wanted = recorded(case).cast(arrow_schema(before.schema))
    assert counted(read_group(plan, plan.groups[0])) == counted(wanted)
    require_rewritable(table.opened, plan)
    table.commit(plan, execute(plan))
    after = table.snapshot()
    assert counted(rows_in_files(table)) == counted(wanted)
    assert after.metadata.schema_string == before.metadata.schema_string
    [add] = adds_of(table, after.version)
    assert json.loads(add["stats"])["nullCount"].keys() == set(wanted.column_names)
    if case == "intervals":
        assert json.loads(add["stats"])["minValues"] == {"id": 1}


def test_intervals_are_neither_shown_nor_appended_to(tmp_path: Path) -> None:
    table = Table.open(str(copy_table("features", "intervals", tmp_path)))
    with pytest.raises(UnsupportedFeatureError, match="y: interval year to month"):
        table.append(recorded("intervals"))
    with pytest.raises(UnsupportedFeatureError, match=r"a\.element: interval month"):
        plan_read(table.opened.store, table.snapshot(), where=None)
    with pytest.raises(LiquidlogError, match="y"):
        table.cluster_by(["y"])


def test_shredded_variants_are_not_rewritten_and_get_unshredded_rows(tmp_path: Path) -> None:
    table = Table.open(str(copy_table("features", "shredded", tmp_path)))
    reason = "variantShredding-preview with the variant v, whose parts files may shred"
    with pytest.raises(UnsupportedFeatureError, match=reason):
        table.plan()
    plan = plan_of_all(table.snapshot())
    with pytest.raises(LiquidlogError, match="column v is a shredded variant"):
        read_group(plan, plan.groups[0])
    one = pa.array([{"value": b"\x00", "metadata": b"\x01\x00\x00"}])
    w = pa.array([{"w": {"value": b"\x00", "metadata": b"\x01\x00\x00"}}])
    table.append(pa.table({"id": pa.array([99], pa.int64()), "v": one, "s": w}))
    [add] = adds_of(table, table.snapshot().version)
    held = pq.read_schema(f"{table.uri}/{add['path']}").field("v").type
    assert [field.name for field in held] == ["value", "metadata"]


def test_geospatial_tables_are_read_by_their_log_alone(tmp_path: Path) -> None:
    table = Table.open(str(copy_table("features", "geospatial", tmp_path)))
    assert table.detail()["numFiles"] == 2
    assert table.health().total_file_count == 2
    plan = table.plan()
    with pytest.raises(UnsupportedFeatureError, match="geospatial"):
        require_rewritable(table.opened, plan)
    with pytest.raises(UnsupportedFeatureError, match="geospatial"):
        table.append(recorded("geospatial"))
