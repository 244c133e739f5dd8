"""Data files of the reference engine: the rows it reads, the statistics it wrote."""

import json
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from liquidlog.data.encodings import multiset_checksum
from liquidlog.data.reader import DataFile, read_deletion_vector
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import LiquidlogError
from liquidlog.log import loader
from liquidlog.log.loader import (
    load_bounds,
    load_snapshot,
    open_store,
    raw_statistics,
    rendered_statistics,
)
from liquidlog.operations.optimize import require_rewritable
from liquidlog.plan import InputFile, WriterOptions
from liquidlog.snapshot import STATISTICS_TYPE, Snapshot
from liquidlog.spec.actions import vector_path
from liquidlog.spec.arrow import VARIANT, arrow_schema
from liquidlog.spec.bounds import indexed_leaves, parse_bounds
from liquidlog.spec.schema import MappingMode, StructType, leaves, mapping_mode, parse_schema
from liquidlog.table import Table
from support.arrow_executor import execute, read_group
from support.copies import copy_table, delta_rs_rows, plan_of_all
from support.repository import ROOT
from support.snapshots import statistics_text
from support.table_rows import plain_bounds

TABLES = sorted(path for path in (ROOT / "fixtures" / "tables").iterdir() if path.is_dir())
by_table = pytest.mark.parametrize("case", TABLES, ids=lambda path: path.name)


@dataclass(frozen=True)
class Commit:
    """One commit of a case, with the metadata that holds at its version."""

    operation: str
    metadata: dict[str, Any]
    adds: list[dict[str, Any]]
    removes: list[dict[str, Any]]

    @property
    def schema(self) -> StructType:
        return parse_schema(self.metadata["schemaString"], where="a fixture")

    @property
    def mapping(self) -> MappingMode:
        return mapping_mode(self.metadata["configuration"])

    @property
    def options(self) -> WriterOptions:
        configuration = self.metadata["configuration"]
        return WriterOptions(
            indexed=tuple(leaf.physical for leaf in indexed_leaves(self.schema, configuration)),
            string_prefix_chars=int(configuration.get("delta.dataSkippingStringPrefixLength", 32)),
        )


def _commits(case: Path) -> list[Commit]:
    metadata: dict[str, Any] = {}
    commits = []
    for log in sorted((case / "table" / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        metadata = next((a["metaData"] for a in actions if "metaData" in a), metadata)
        operation = next(a["commitInfo"]["operation"] for a in actions if "commitInfo" in a)
        adds = [a["add"] for a in actions if "add" in a]
        commits.append(
            Commit(operation, metadata, adds, [a["remove"] for a in actions if "remove" in a])
        )
    return commits


def _added(case: Path) -> list[tuple[Commit, dict[str, Any]]]:
    return [(commit, add) for commit in _commits(case) for add in commit.adds]


def _read(case: Path, commit: Commit, path: str) -> pa.Table:
    schema, mapping = commit.schema, commit.mapping
    with DataFile.open(_file(case, path), schema=schema, mapping=mapping) as file:
        return file.read()


def _file(case: Path, path: str) -> str:
    return str(case / "table" / unquote(path))


def _live(case: Path) -> list[str]:
    live: dict[str, None] = {}
    for commit in _commits(case):
        live = {path: None for path in live if path not in {r["path"] for r in commit.removes}}
        live |= dict.fromkeys(add["path"] for add in commit.adds)
    return list(live)


def _parsed(stats: str) -> Any:
    return json.loads(stats, parse_float=Decimal)


@by_table
def test_live_files_hold_the_rows_that_the_engine_reads(case: Path) -> None:
    newest = _commits(case)[-1]
    rows = pq.read_table(case / "rows.parquet")
    files = pa.concat_tables([_read(case, newest, path) for path in _live(case)])
    # The engine's rows show variants as JSON; here they are bytes that are never looked into.
    kept = [number for number, kind in enumerate(files.schema.types) if kind != VARIANT]
    assert files.num_columns - len(kept) == (case.name == "14_payload_types")
    wanted = pa.schema([arrow_schema(newest.schema).field(number) for number in kept])
    assert multiset_checksum(files.select(kept)) == multiset_checksum(
        rows.select(kept).cast(wanted)
    )


@by_table
def test_inputs_of_an_optimize_read_as_its_outputs(case: Path) -> None:
    for commit in _commits(case):
        if commit.operation == "OPTIMIZE":
            sides = (
                pa.concat_tables([_read(case, commit, file["path"]) for file in files])
                for files in (commit.removes, commit.adds)
            )
            assert len({multiset_checksum(rows) for rows in sides}) == 1


@by_table
def test_a_file_written_again_has_the_rows_statistics_names_and_ids_of_the_engines(
    case: Path, tmp_path: Path
) -> None:
    for commit, add in _added(case):
        rows = _read(case, commit, add["path"])
        path = tmp_path / Path(add["path"]).name
        with DataFileWriter(str(path), schema=commit.schema, options=commit.options) as writer:
            for start in range(0, rows.num_rows, 32):
                writer.write(rows.slice(start, 32))
            written = writer.finish(path.name)
        assert _parsed(written.stats) == _parsed(add["stats"])
        assert _parquet_ids(str(path)) == _parquet_ids(_file(case, add["path"]))
        with DataFile.open(str(path), schema=commit.schema, mapping=commit.mapping) as again:
            assert again.num_rows == written.num_records == rows.num_rows
            assert multiset_checksum(again.read()) == multiset_checksum(rows)


def _parquet_ids(path: str) -> list[str]:
    """Return name and field id of every group and column, as the footer nests them."""
    lines = str(pq.ParquetFile(path).schema).splitlines()
    names = re.findall(r"field_id=\S+ [^;{(\n]+", "\n".join(lines))
    return [name.strip() for name in names[1:]]  # the first is the root, named by the writer


@by_table
def test_parsed_bounds_contain_every_value(case: Path) -> None:
    for commit, add in _added(case):
        columns = list(leaves(commit.schema))
        bounds = parse_bounds(pa.array([add["stats"]]), columns)
        path = _file(case, add["path"])
        with DataFile.open(path, schema=commit.schema, mapping=commit.mapping) as file:
            for number, leaf in enumerate(columns):
                values = file.read(columns=[leaf.physical]).column(0).drop_null().to_pylist()
                low, high = (ends[0].as_py() for ends in (bounds.low(number), bounds.high(number)))
                assert low is None or not any(value < low for value in values)
                assert high is None or not any(value > high for value in values)


# Tables with deletion vectors and row ids: what we read, rewrite and leave behind.


FIXTURES = ROOT / "fixtures"
CASES = [
    *(("logical", path.name) for path in sorted((FIXTURES / "logical").glob("*/"))),
    ("clones", "27_shallow_clone"),
]
VECTORS = [(kind, name) for kind, name in CASES if "_row_tracking" not in name or "_dv" in name]
by_case = pytest.mark.parametrize(("kind", "case"), CASES)


def recorded_rows(kind: str, case: str, snapshot: Snapshot) -> pa.Table:
    return pq.read_table(FIXTURES / kind / case / "rows.parquet").cast(
        arrow_schema(snapshot.schema)
    )


def test_there_are_all_kinds_of_vectors() -> None:
    kinds = set()
    for kind, case in CASES:
        snapshot = load_snapshot(open_store(str(FIXTURES / kind / case / "table")))
        vectors = snapshot.files["deletion_vector"].drop_null().to_pylist()
        kinds |= {vector["storageType"] for vector in vectors}
    assert kinds == {"i", "p", "u"}


@by_case
def test_live_rows_are_those_that_the_engine_reads(kind: str, case: str, tmp_path: Path) -> None:
    snapshot = Table.open(str(copy_table(kind, case, tmp_path))).snapshot()
    plan = plan_of_all(snapshot)
    rows = read_group(plan, plan.groups[0]).select(arrow_schema(snapshot.schema).names)
    assert multiset_checksum(rows) == multiset_checksum(recorded_rows(kind, case, snapshot))


@pytest.mark.parametrize(("kind", "case"), VECTORS)
def test_deleted_rows_are_those_that_delta_rs_decodes(kind: str, case: str, tmp_path: Path) -> None:
    path = copy_table(kind, case, tmp_path)
    plan = plan_of_all(Table.open(str(path)).snapshot())
    theirs = pa.table(DeltaTable(str(path)).deletion_vectors())
    kept = {
        unquote(name.removeprefix("file://")).rpartition("/")[2]: np.array(mask)
        for name, mask in zip(*(theirs.column(i).to_pylist() for i in range(2)), strict=True)
    }
    deleted = [file for file in plan.groups[0].inputs if file.deletion_vector is not None]
    assert {file.path.rpartition("/")[2] for file in deleted} == set(kept)
    for file in deleted:
        mask = kept[file.path.rpartition("/")[2]]
        assert positions(path, file).tolist() == np.flatnonzero(~mask).tolist()


def positions(table: Path, file: InputFile) -> np.ndarray:
    assert file.deletion_vector is not None
    assert file.num_records is not None
    vector = file.deletion_vector.descriptor
    location = vector_path(vector)
    if location is not None and not location.startswith("file:"):
        location = str(table / location)
    return read_deletion_vector(
        vector, location=location, data_file=file.path, num_rows=file.num_records
    )


@by_case
def test_a_rewrite_keeps_live_rows_and_purges_vectors(kind: str, case: str, tmp_path: Path) -> None:
    path = copy_table(kind, case, tmp_path)
    table = Table.open(str(path))
    plan = plan_of_all(table.snapshot())
    require_rewritable(table.opened, plan)
    table.commit(plan, execute(plan))
    newest = table.snapshot()
    expected = recorded_rows(kind, case, newest)
    assert newest.files["deletion_vector"].null_count == newest.files.num_rows == 2
    assert multiset_checksum(delta_rs_rows(path, newest)) == multiset_checksum(expected)
    tight = '"tightBounds":true' in statistics_text(newest, 0)
    assert tight == ("deletionVectors" in table.detail()["tableFeatures"])


TRACKED = [path.parent.name for path in sorted((FIXTURES / "logical").glob("*/row_ids.parquet"))]


def recorded_row_ids(case: str, names: list[str], snapshot: Snapshot) -> pa.Table:
    """The rows of the newest version with row ids and versions as last columns, so named."""
    recorded = pq.read_table(FIXTURES / "logical" / case / "row_ids.parquet")
    schema = arrow_schema(snapshot.schema)
    for name in names:
        schema = schema.append(pa.field(name, pa.int64()))
    return recorded.rename_columns(schema.names).cast(schema)


def hidden_names(snapshot: Snapshot) -> list[str]:
    prefix = "delta.rowTracking.materialized"
    configuration = snapshot.metadata.configuration
    return [configuration[f"{prefix}Row{kind}ColumnName"] for kind in ("Id", "CommitVersion")]


@pytest.mark.parametrize("case", TRACKED)
def test_row_ids_are_those_that_the_engine_reads(case: str, tmp_path: Path) -> None:
    snapshot = Table.open(str(copy_table("logical", case, tmp_path))).snapshot()
    plan = plan_of_all(snapshot)
    expected = recorded_row_ids(case, hidden_names(snapshot), snapshot)
    assert multiset_checksum(read_group(plan, plan.groups[0])) == multiset_checksum(expected)


@pytest.mark.parametrize("case", TRACKED)
def test_rows_keep_their_ids_through_rewrites(case: str, tmp_path: Path) -> None:
    path = copy_table("logical", case, tmp_path)
    table = Table.open(str(path))
    marks, rows = [], pa.table({})
    for number in range(2):
        plan = plan_of_all(table.snapshot(), plan_id=f"plan-{number}")
        require_rewritable(table.opened, plan)
        table.commit(plan, execute(plan))
        newest = table.snapshot()
        names = hidden_names(newest)
        files = [path / name for name in newest.files["path"].to_pylist()]
        # Every row has its ids in the file itself: read them without our reader.
        rows = pa.concat_tables(pq.ParquetFile(file).read() for file in files)
        expected = recorded_row_ids(case, names, newest)
        assert multiset_checksum(rows.select(expected.column_names)) == multiset_checksum(expected)
        assert not any(name in statistics_text(newest, 0) for name in names)
        marks.append(check_fresh_ids(path, newest))
    assert marks[1] == marks[0] + rows.num_rows


@pytest.mark.parametrize("case", [*TRACKED, "15_row_tracking_supported_only"])
def test_an_append_gets_fresh_row_ids(case: str, tmp_path: Path) -> None:
    path = copy_table("logical", case, tmp_path)
    table = Table.open(str(path))
    before = table.snapshot()
    rows = recorded_rows("logical", case, before).slice(0, 30)
    table.append([rows, rows.slice(0, 7)])
    newest = table.snapshot()
    assert check_fresh_ids(path, newest) == high_water_mark(before) + 37


def check_fresh_ids(path: Path, newest: Snapshot) -> int:
    """The last commit's files got row ids that nobody has, up to the mark that is returned."""
    log = path / "_delta_log"
    lines = (log / f"{newest.version:020d}.json").read_text().splitlines()
    adds = [json.loads(line)["add"] for line in lines if '{"add"' in line[:10]]
    earlier = high_water_mark(Table.open(str(path)).snapshot(newest.version - 1))
    assert {add["defaultRowCommitVersion"] for add in adds} == {newest.version}
    for add in adds:
        assert add["baseRowId"] == earlier + 1
        earlier += json.loads(add["stats"])["numRecords"]
    assert high_water_mark(newest) == earlier
    return earlier


def high_water_mark(snapshot: Snapshot) -> int:
    mark: int = json.loads(snapshot.domains["delta.rowTracking"].configuration)[
        "rowIdHighWaterMark"
    ]
    return mark


@pytest.mark.parametrize("verb", ["append", "rewrite"])
def test_a_commit_that_lost_a_race_gets_row_ids_after_the_winner(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy_table("logical", "15_row_tracking", tmp_path)
    table, other = Table.open(str(path)), Table.open(str(path))
    before = table.snapshot()
    rows = recorded_rows("logical", "15_row_tracking", before)
    plan = plan_of_all(before)
    result = execute(plan)
    store: Any = type(open_store(str(path)))
    put = store.put_log_if_absent

    def lose(*words: Any) -> bool:
        monkeypatch.setattr(store, "put_log_if_absent", put)
        other.append(rows.slice(0, 9))
        landed: bool = put(*words)
        return landed

    monkeypatch.setattr(store, "put_log_if_absent", lose)
    if verb == "append":
        table.append(rows.slice(0, 4))
    else:
        table.commit(plan, result)
    newest = table.snapshot()
    assert newest.version == before.version + 2
    taken = 9 + (4 if verb == "append" else len(rows))
    assert check_fresh_ids(path, newest) == high_water_mark(before) + taken


# Statistics read as text from recorded checkpoints say what they say read as columns.


CHECKPOINTED = sorted(
    {
        path.parents[1]
        for pattern in ("*.checkpoint*.parquet", "*.checkpoint*.json")
        for path in (ROOT / "fixtures" / "logs").glob(f"*/table/_delta_log/{pattern}")
    }
)


@pytest.mark.parametrize("table", CHECKPOINTED, ids=lambda table: table.parent.name)
def test_texts_and_bounds_of_some_files_are_those_of_columns(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(str(table))
    try:
        snapshot = load_snapshot(store)
    except LiquidlogError:
        pytest.skip("cannot be read at all")
    leaves = indexed_leaves(snapshot.schema, snapshot.metadata.configuration)
    texts = pa.array(raw_statistics(store, snapshot, snapshot.files), STATISTICS_TYPE)
    among_all = load_bounds(store, snapshot, leaves)
    assert plain_bounds(parse_bounds(texts, leaves)) == plain_bounds(among_all)
    monkeypatch.setattr(loader, "_FEW_SHARE", 1.0)
    for step in (1, 2, 3):
        rows = pa.array(range(0, snapshot.files.num_rows, step), pa.int64())
        some = replace(snapshot, files=snapshot.files.take(rows), plain_files=None)
        found = load_bounds(store, some, leaves)
        assert plain_bounds(found) == plain_bounds(among_all.take(rows))


def test_rendered_values_are_the_protocols() -> None:
    text = rendered_statistics(
        {
            "numRecords": 2,
            "minValues": {
                "d": Decimal("12345678901234567890.123456789012345678"),
                "f": float("-inf"),
                "n": None,
            },
            "maxValues": {"f": float("nan"), "t": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)},
        }
    )
    assert text == (
        '{"numRecords":2,"minValues":{"d":12345678901234567890.123456789012345678,'
        '"f":"-Infinity"},"maxValues":{"f":"NaN","t":"2026-01-02T03:04:05.678Z"}}'
    )
