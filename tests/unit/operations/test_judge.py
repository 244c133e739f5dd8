"""What is worth doing to a table, and what is better left alone, on tables made here."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.data.logical_file import LogicalFile
from liquidlog.errors import UsageError
from liquidlog.operations.judge import criteria_of, judge_plan
from liquidlog.table import Table
from support.arrow_executor import execute
from support.commands import said

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("z", pa.int64())])


def rows(count: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    columns = [random.integers(0, 2**62, count) for _ in SCHEMA]
    return pa.table([pa.array(column) for column in columns], schema=SCHEMA)


def names(table: Table) -> set[str]:
    return {finding.name for finding in table.doctor()}


def good(uri: str, count: int = 1_000_000) -> Table:
    """A table of eight files of 3 MiB, as an OPTIMIZE left them."""
    table = Table.create(uri, schema=SCHEMA, cluster_by=["x"])
    table.append(rows(count, 0))
    plan = table.plan(max_file_size=table.snapshot().size_bytes // 8)
    table.commit(plan, execute(plan))
    return table


def test_small_files_that_nobody_clustered_are_told(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), schema=SCHEMA)
    for seed in range(30):
        table.append(rows(50, seed))
    assert names(table) == {"small-files", "no-clustering-columns"}
    (small,) = [one for one in table.doctor() if one.name == "small-files"]
    assert small.files == 30
    assert small.command == f"liquidlog optimize {table.uri} --max-file-size 1GiB"
    status, text, _ = said("doctor", table.uri)
    assert (status, "nothing is wrong" in text) == (0, False)
    assert text.splitlines()[1].strip() == small.command
    plan = table.judge().options[0].plan
    table.commit(plan, execute(plan))
    assert table.doctor().findings == ()
    assert table.judge().best is None


def test_what_cannot_be_measured_is_not_recommended_and_not_called_right(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), schema=SCHEMA, cluster_by=["x"])
    for seed in range(8):
        table.append(rows(1000, seed))
    for path in (Path(table.uri) / "_delta_log").glob("*.json"):
        path.write_text(re.sub(r'"stats":"(\\.|[^"\\])*"', '"stats":null', path.read_text()))
    table = Table.open(table.uri)
    found = table.judge()
    assert found.best is None
    assert found.answer == "unknown"
    assert "8 of 8 files" in found.sentence
    assert {"missing-statistics", "unclustered-files"} <= names(table)
    text = said("doctor", table.uri)[1]
    assert "optimize" not in text
    assert text.splitlines()[0] == found.sentence
    plan = table.plan()
    assert judge_plan(table.opened, plan, criteria_of(table.opened)).answer == "unknown"


def test_no_command_is_recommended_that_would_be_refused(tmp_path: Path) -> None:
    table = good(str(tmp_path / "t"), 10_000)
    table.append(rows(100, 1))
    log = Path(table.uri) / "_delta_log"
    version = table.snapshot().version + 1
    known = table.snapshot().metadata
    metadata = {
        "id": known.id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": known.schema_string,
        "partitionColumns": ["x"],
        "configuration": {},
    }
    (log / f"{version:020d}.json").write_text(json.dumps({"metaData": metadata}))
    table = Table.open(table.uri)
    found = table.judge()
    assert (found.best, found.options) == (None, ())
    assert "cannot be optimized" in found.sentence
    assert "partitioned" in names(table)
    assert all("optimize" not in (one.command or "") for one in table.doctor())


def test_later_payback_than_asked_is_not_worth_it(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), schema=SCHEMA, cluster_by=["x"])
    for seed in range(20):
        table.append(rows(200, seed))
    best = table.judge().best
    assert best is not None
    assert best.payback_queries is not None
    per_day = best.payback_queries / 31
    late = table.judge(queries_per_day=per_day)
    assert late.best is None
    assert "pay back only after" in late.sentence
    assert "in 31 days" in late.sentence
    assert table.judge(queries_per_day=per_day, payback_days=32).best is not None
    with pytest.raises(UsageError, match="payback_days must be a number above 0"):
        table.judge(payback_days=0)
    with pytest.raises(UsageError, match="queries_per_day must be a number"):
        table.judge(queries_per_day=-1)


def test_what_a_workload_lacks_is_told(tmp_path: Path) -> None:
    table = Table.create(
        str(tmp_path / "t"),
        schema=SCHEMA,
        cluster_by=["x"],
        properties={"delta.dataSkippingStatsColumns": "x,y"},
    )
    for seed in range(4):
        table.append(rows(1000, seed))
    readers = tmp_path / "w.sql"
    readers.write_text("z = 5;\ny < 100;\nupper(x) = 'a';\nx = t.y;\n")
    status, text, error = said("doctor", table.uri, "--workload", str(readers))
    assert (status, error) == (0, "")
    lines = text.splitlines()
    (lacking,) = [n for n, line in enumerate(lines) if line.startswith("statistics-missing-for")]
    assert "4 file(s) without statistics of z" in lines[lacking]
    words = shlex.split(lines[lacking + 1])
    assert '"delta.dataSkippingStatsColumns" = "x,y,z"' in words[2]
    assert said(*words[1:])[0] == 0
    assert any("upper(x) = 'a'" in line for line in lines)
    (unlike,) = [n for n, line in enumerate(lines) if line.startswith("layout-unlike-workload")]
    assert "ask for z, y" in lines[unlike]
    assert shlex.split(lines[unlike + 1])[1:] == ["advise", table.uri, "--workload", str(readers)]


def test_many_who_compare_one_column_do_not_wait_longer_for_others(tmp_path: Path) -> None:
    """Each query is one of sixty; half of them find their rows in one file now."""
    table = Table.create(str(tmp_path / "t"), schema=SCHEMA)
    for file in range(12):
        columns = rows(4_000, file).drop_columns(["x"])
        x = pa.array(range(4_000 * file, 4_000 * (file + 1)), pa.int64())
        table.append(columns.add_column(0, "x", x).select(["x", "y", "z"]))
    values = rows(4_000, 0)["y"].to_pylist()
    asked = [f"x = {1_600 * number}" for number in range(30)]
    asked += [f"y = {values[130 * number]}" for number in range(30)]
    found = table.judge(workload=asked, workload_source="queries.sql")
    for option in found.options:
        of_x = [one for one in option.prediction.predicates if one.columns == ("x",)]
        before, after = (
            sum(getattr(one, f"seconds_{when}") for one in of_x) for when in ("before", "after")
        )
        assert len(of_x) == 30
        assert after <= 1.2 * before or not option.is_worth_it
    said_of_x = [one.problem or "" for one in found.options]
    assert any(text.startswith("queries for values of x would wait") for text in said_of_x)


def test_one_sample_answers_all_that_is_asked_by_the_same_criteria(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"x": np.arange(40_000) % 997, "y": np.arange(40_000)})
    table = Table.create(
        tmp_path / "t",
        schema=rows.schema,
        cluster_by=["x", "y"],
        properties={"liquidlog.maxFileSize": "32KiB"},
    )
    for start in range(0, 40_000, 2_500):
        table.append(rows.slice(start, 2_500))
    read = []
    opened = LogicalFile.open

    def counted(path: str, *arguments: Any, **options: Any) -> LogicalFile:
        read.append(path)
        return opened(path, *arguments, **options)

    monkeypatch.setattr(LogicalFile, "open", counted)
    workload = tmp_path / "asked.sql"
    workload.write_text("SELECT * FROM t WHERE x = 5;\nSELECT * FROM t WHERE y = 7;\n")
    status, out, _ = said("plan", str(tmp_path / "t"), "--workload", str(workload), "--json")
    assert status == 0
    assert json.loads(out)["prediction"]["sampled_files"] == 16
    assert len(read) == 16
