"""Logs and tables as other writers, and early ones, leave them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data.reader import FilePart, Located, TableRows
from liquidlog.errors import SchemaChangeError, UnsupportedFeatureError
from liquidlog.table import Table
from support.commands import said
from support.logs import added
from support.partitioned import rewritten
from support.plans import schema_json_of

MANIFESTS = "delta.compatibility.symlinkFormatManifest.enabled"
FORMAT = {"provider": "parquet", "options": {}}


def table_of(path: Path, *actions: dict[str, Any], **metadata: Any) -> Table:
    """Return a table of one commit with these actions."""
    (path / "_delta_log").mkdir(parents=True)
    definition = {"id": "x", "format": FORMAT, "partitionColumns": [], "configuration": {}}
    first = [{"metaData": {**definition, **metadata}}, *actions]
    if not any("protocol" in action for action in actions):
        first.insert(0, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
    log = "\n".join(map(json.dumps, first))
    (path / "_delta_log" / f"{0:020d}.json").write_text(log)
    return Table.open(str(path))


def written(path: Path, rows: pa.Table, values: dict[str, str | None]) -> dict[str, Any]:
    """Write a file, and return its add."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, store_schema=False)
    stats = json.dumps({"numRecords": len(rows)})
    return added(path.name, path.stat().st_size, partitionValues=values, stats=stats)


def rows_of(table: Table) -> list[tuple[Any, ...]]:
    plan = table.plan_read()
    names = [field["name"] for field in json.loads(plan.schema_string)["fields"]]
    reader = TableRows.of_plan(plan, names, storage=table.opened.store.storage, max_bytes=1 << 20)
    files = zip(plan.files, plan.partition_numbers, strict=True)
    parts = (
        FilePart(located=Located.of(table.uri, file), values=plan.partitions[number])
        for file, number in files
    )
    found = pa.concat_tables(rows for part in parts for rows in reader.read(part))
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))


def test_a_feature_under_its_early_name_is_the_protocols(tmp_path: Path) -> None:
    early = ["timestampWithoutTimezone"]
    protocol = {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": early,
            "writerFeatures": [*early, "invariants"],
        }
    }
    table = table_of(
        tmp_path / "t", protocol, schemaString=schema_json_of({"id": "long", "at": "timestamp_ntz"})
    )
    assert "timestampNtz" in table.detail()["tableFeatures"]
    table.cluster_by("id")
    assert table.snapshot().protocol.reader_features == ("timestampNtz",)


@pytest.fixture
def early(tmp_path: Path) -> Table:
    """A table partitioned by timestamps in the protocol's first form."""
    path = tmp_path / "early"
    texts = ("2021-09-08 11:11:11", "2021-09-09 11:11:11.5", "2021-09-10T11:11:11Z", None)
    files = [
        written(path / f"{n}.parquet", pa.table({"id": pa.array([n])}), {"p": text})
        for n, text in enumerate(texts)
    ]
    columns = schema_json_of({"id": "long", "p": "timestamp"})
    return table_of(path, *files, schemaString=columns, partitionColumns=["p"])


def hours(table: Table) -> list[str | None]:
    return [None if at is None else f"{at:%dT%H:%M:%S.%f}" for _, at in rows_of(table)]


IN_UTC = ["08T11:11:11.000000", "09T11:11:11.500000", "10T11:11:11.000000", None]
OF_BERLIN = ["08T09:11:11.000000", "09T09:11:11.500000", "10T11:11:11.000000", None]


def test_timestamps_without_a_zone_are_of_utc_or_of_the_tables(early: Table) -> None:
    assert hours(early) == IN_UTC
    early.set_properties({"liquidlog.partitionTimeZone": "Europe/Berlin"})
    assert hours(early) == OF_BERLIN
    with pytest.raises(SchemaChangeError):
        early.set_properties({"liquidlog.partitionTimeZone": "Europe/Bonn"})


@pytest.mark.parametrize(
    ("option", "expected"),
    [((), IN_UTC), (("--set", "partition_time_zone=Europe/Berlin"), OF_BERLIN)],
)
def test_a_migration_says_the_zone_that_it_takes(
    early: Table, option: tuple[str, ...], expected: list[str | None]
) -> None:
    words = ("migrate", early.uri, "--cluster-by", "p", "--executor", "local", *option)
    status, out, err = said(*words, "--yes")
    assert status == 0
    zone = option[1].partition("=")[2] if option else "UTC"
    assert f"timestamps of p that name no zone become moments in {zone}" in out + err
    assert hours(Table.open(early.uri)) == expected


def test_files_that_others_add_are_of_the_zone_of_the_saved_plan(early: Table) -> None:
    made = early.plan_migration("p", partition_time_zone="Europe/Berlin")
    path = Path(early.uri)
    more = written(path / "9.parquet", pa.table({"id": [9]}), {"p": "2021-09-11 11:11:11"})
    (path / "_delta_log" / f"{1:020d}.json").write_text(json.dumps(more))
    table = Table.open(early.uri)
    rewritten(table.plan_migration(add_to=made), table)
    assert hours(Table.open(early.uri)) == [*OF_BERLIN, "11T09:11:11.000000"]


def test_a_compaction_keeps_the_form_of_timestamps(tmp_path: Path) -> None:
    path, text = tmp_path / "t", "2021-09-08 11:11:11"
    files = [written(path / f"{n}.parquet", pa.table({"id": [n]}), {"p": text}) for n in range(2)]
    columns = schema_json_of({"id": "long", "p": "timestamp"})
    table = table_of(path, *files, schemaString=columns, partitionColumns=["p"])
    table.optimize(executor="local")
    [file] = Table.open(str(path)).snapshot().files["partition_values_json"].to_pylist()
    assert json.loads(file) == {"p": text}


@pytest.mark.parametrize("verb", ["vacuum", "orphans", "checkpoint", "doctor", "optimize"])
def test_removes_of_an_early_checkpoint_have_a_path_only(tmp_path: Path, verb: str) -> None:
    path = tmp_path / "t"
    add = written(path / "a.parquet", pa.table({"id": pa.array([1], pa.int32())}), {})
    table_of(path, add, schemaString=schema_json_of({"id": "integer"}))
    protocol = {"minReaderVersion": 1, "minWriterVersion": 1}
    metadata = {
        "id": "x",
        "format": {"provider": "parquet"},
        "schemaString": schema_json_of({"id": "integer"}),
        "partitionColumns": [],
        "configuration": {},
    }
    del add["add"]["partitionValues"], add["add"]["stats"]
    rows = [{"protocol": protocol}, {"metaData": metadata}, add]
    rows.append({"remove": {"path": "gone.parquet", "dataChange": True}})
    checkpoint = path / "_delta_log" / f"{0:020d}.checkpoint.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=_early_schema()), checkpoint)
    (path / "_delta_log" / "_last_checkpoint").write_text('{"version":0,"size":4}')
    options = ("--executor", "local") if verb == "optimize" else ()
    assert said(verb, str(path), *options)[0] == 0


def _early_schema() -> pa.Schema:
    text = pa.string()
    parts = {"path": text, "dataChange": pa.bool_()}
    kinds = {
        "protocol": {"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()},
        "metaData": {
            "id": text,
            "format": pa.struct({"provider": text}),
            "schemaString": text,
            "partitionColumns": pa.list_(text),
            "configuration": pa.map_(text, text),
        },
        "add": {**parts, "size": pa.int64(), "modificationTime": pa.int64()},
        "remove": parts,
    }
    return pa.schema({name: pa.struct(fields) for name, fields in kinds.items()})


def test_manifests_that_would_go_stale_are_no_table_to_write_to(tmp_path: Path) -> None:
    path = tmp_path / "t"
    add = written(path / "a.parquet", pa.table({"id": pa.array([1])}), {})
    columns = schema_json_of({"id": "long"})
    table = table_of(path, add, schemaString=columns, configuration={MANIFESTS: "true"})
    with pytest.raises(UnsupportedFeatureError, match="manifests"):
        table.append(pa.table({"id": [2]}))
    with pytest.raises(UnsupportedFeatureError, match="manifests"):
        table.optimize(executor="local")
    table.set_properties({MANIFESTS: "false"})
    table.append(pa.table({"id": [2]}))
    with pytest.raises(SchemaChangeError):
        table.set_properties({MANIFESTS: "true"})
