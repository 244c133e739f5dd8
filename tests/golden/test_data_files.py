"""Data files of the reference engine: the rows it reads, the statistics it wrote."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data.checksum import multiset_checksum
from liquidlog.data.reader import DataFile, check_file
from liquidlog.data.statistics import StatisticsCollector
from liquidlog.data.writer import DataFileWriter
from liquidlog.plan import WriterOptions
from liquidlog.spec.arrow import arrow_schema
from liquidlog.spec.schema import StructType, leaves, parse_schema
from liquidlog.spec.stats import encode_stats, indexed_leaves, parse_bounds
from support.repository import ROOT

TABLES = sorted(path for path in (ROOT / "fixtures" / "tables").iterdir() if path.is_dir())
by_table = pytest.mark.parametrize("case", TABLES, ids=lambda path: path.name)


def _actions(case: Path) -> list[dict[str, Any]]:
    logs = sorted((case / "table" / "_delta_log").glob("*.json"))
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


def _metadata(case: Path) -> dict[str, Any]:
    found: dict[str, Any] = [a["metaData"] for a in _actions(case) if "metaData" in a][-1]
    return found


def _schema(case: Path) -> StructType:
    return parse_schema(_metadata(case)["schemaString"], where=case.name)


def _file(case: Path, path: str) -> str:
    return str(case / "table" / unquote(path))


def _live(case: Path) -> list[str]:
    live: dict[str, None] = {}
    for action in _actions(case):
        if "remove" in action:
            live.pop(action["remove"]["path"], None)
        if "add" in action:
            live[action["add"]["path"]] = None
    return list(live)


def _options(case: Path) -> WriterOptions:
    configuration = _metadata(case)["configuration"]
    indexed = indexed_leaves(_schema(case), configuration)
    return WriterOptions(
        indexed=tuple(leaf.physical for leaf in indexed),
        string_prefix_chars=int(configuration.get("delta.dataSkippingStringPrefixLength", 32)),
    )


def _parsed(stats: str) -> Any:
    return json.loads(stats, parse_float=Decimal)


@by_table
def test_live_files_hold_the_rows_that_the_engine_reads(case: Path) -> None:
    schema = _schema(case)
    files = [DataFile.open(_file(case, path), schema=schema).read() for path in _live(case)]
    rows = pq.read_table(case / "rows.parquet").cast(arrow_schema(schema))
    assert multiset_checksum(pa.concat_tables(files)) == multiset_checksum(rows)


@by_table
def test_collected_statistics_equal_those_in_the_log(case: Path) -> None:
    compared = 0
    for action in _actions(case):
        if "add" not in action:
            continue
        rows = DataFile.open(_file(case, action["add"]["path"]), schema=_schema(case)).read()
        collector = StatisticsCollector(_schema(case), _options(case))
        for start in range(0, rows.num_rows, 32):
            collector.add(rows.slice(start, 32))
        assert _parsed(encode_stats(collector.finish())) == _parsed(action["add"]["stats"])
        compared += 1
    assert compared > 0


@by_table
def test_rewritten_file_holds_the_same_rows_and_statistics(case: Path, tmp_path: Path) -> None:
    schema = _schema(case)
    for action in _actions(case):
        if "add" not in action:
            continue
        rows = DataFile.open(_file(case, action["add"]["path"]), schema=schema).read()
        path = tmp_path / Path(action["add"]["path"]).name
        with DataFileWriter(str(path), schema=schema, options=_options(case)) as writer:
            writer.write(rows)
            written = writer.finish(path.name)
        assert check_file(str(path), schema) == written.num_records == rows.num_rows
        again = DataFile.open(str(path), schema=schema).read()
        assert multiset_checksum(again) == multiset_checksum(rows)
        assert _parsed(written.stats) == _parsed(action["add"]["stats"])


@by_table
def test_parsed_bounds_contain_every_value(case: Path) -> None:
    schema = _schema(case)
    columns = list(leaves(schema))
    for action in _actions(case):
        if "add" not in action:
            continue
        bounds = parse_bounds(pa.array([action["add"]["stats"]]), columns)
        with DataFile.open(_file(case, action["add"]["path"]), schema=schema) as file:
            for number, leaf in enumerate(columns):
                values = file.read(columns=[leaf.physical]).column(0).drop_null().to_pylist()
                low, high = (bounds[f"{side}.{number}"][0].as_py() for side in ("min", "max"))
                assert low is None or not any(value < low for value in values)
                assert high is None or not any(value > high for value in values)
