"""Data files of the reference engine: the rows it reads, the statistics it wrote."""

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data.checksum import multiset_checksum
from liquidlog.data.reader import DataFile
from liquidlog.data.statistics import StatisticsCollector
from liquidlog.data.writer import DataFileWriter
from liquidlog.plan import WriterOptions
from liquidlog.spec.arrow import VARIANT, arrow_schema
from liquidlog.spec.bounds import encode_stats, indexed_leaves, parse_bounds
from liquidlog.spec.schema import MappingMode, StructType, leaves, mapping_mode, parse_schema
from support.repository import ROOT

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
def test_collected_statistics_equal_those_in_the_log(case: Path) -> None:
    compared = 0
    for commit, add in _added(case):
        rows = _read(case, commit, add["path"])
        collector = StatisticsCollector(commit.schema, commit.options)
        for start in range(0, rows.num_rows, 32):
            collector.add(rows.slice(start, 32))
        assert _parsed(encode_stats(collector.finish())) == _parsed(add["stats"])
        compared += 1
    assert compared > 0


@by_table
def test_rewritten_file_holds_the_same_rows_and_statistics(case: Path, tmp_path: Path) -> None:
    for commit, add in _added(case):
        rows = _read(case, commit, add["path"])
        path = tmp_path / Path(add["path"]).name
        with DataFileWriter(str(path), schema=commit.schema, options=commit.options) as writer:
            writer.write(rows)
            written = writer.finish(path.name)
        mapping = commit.mapping
        with DataFile.open(str(path), schema=commit.schema, mapping=mapping) as again:
            assert again.num_rows == written.num_records == rows.num_rows
            assert multiset_checksum(again.read()) == multiset_checksum(rows)
        assert _parsed(written.stats) == _parsed(add["stats"])


@by_table
def test_rewritten_file_has_the_names_and_field_ids_of_the_engines(
    case: Path, tmp_path: Path
) -> None:
    for commit, add in _added(case):
        path = tmp_path / Path(add["path"]).name
        with DataFileWriter(str(path), schema=commit.schema, options=commit.options) as writer:
            writer.write(_read(case, commit, add["path"]))
            writer.finish(path.name)
        assert _parquet_ids(str(path)) == _parquet_ids(_file(case, add["path"]))


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
