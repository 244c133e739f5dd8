"""Bars that can be judged: what a table reaches, measured against a full rewrite of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.errors import EXIT_BAR_CROSSED, EXIT_OK, EXIT_USAGE
from liquidlog.table import Table
from support.commands import call, said
from support.laid_out import file_of_rows, rows_of

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("s", pa.string())])
RATIOS = ("--fail-if", "depth_ratio > 1.5", "--fail-if", "read_ratio > 1.5")


def filled(uri: Path, *, files: int, rows: int = 200, **options: Any) -> Table:
    """Return a table of files with random rows, which nobody clustered."""
    made = Table.create(str(uri), schema=SCHEMA, **options)
    random = np.random.default_rng(0)
    for _ in range(files):
        x, y = random.integers(0, 10**6, (2, rows))
        texts = [f"name {number % 97}" for number in y.tolist()]
        made.append(pa.table([x, y, texts], schema=SCHEMA))
    return made


@pytest.fixture(scope="module")
def unclustered(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Thirty small files without clustering columns."""
    return filled(tmp_path_factory.mktemp("health") / "unclustered", files=30).uri


def test_files_that_nobody_clustered_pass_no_bar(unclustered: str, tmp_path: Path) -> None:
    trend, metrics = tmp_path / "trend.jsonl", tmp_path / "health.prom"
    files = ["--trend", str(trend), "--openmetrics", str(metrics)]
    status, out, err = said("health", unclustered, *files, "--fail-if", "max_depth > 9")
    assert status == EXIT_USAGE
    for word in ("max_depth is not measured", "--columns", "--workload"):
        assert word in err
    assert "total_file_count " in out
    for number in ("depth_ratio", "read_ratio", "average_depth", "max_depth"):
        assert f"{number} " not in out
        assert json.loads(trend.read_text())[number] is None
        assert f"liquidlog_health_{number}" not in metrics.read_text()
    bars = ["--fail-if", "total_file_count > 3", "--fail-if", "max_depth > 3"]
    status, _, err = said("health", unclustered, *bars)
    assert status == EXIT_BAR_CROSSED
    assert err == "bar crossed: total_file_count > 3\nbar not judged: max_depth > 3\n"


def test_a_workload_says_by_which_columns_to_measure(unclustered: str, tmp_path: Path) -> None:
    workload = tmp_path / "w.jsonl"
    asked = [("y = 5 and x > 3", 1), ("y > 7", 3), ("upper(s) = 'A'", 1), ("nope = 3", 1)]
    workload.write_text(
        "".join(json.dumps({"where": where, "weight": weight}) + "\n" for where, weight in asked)
    )
    _, found, _ = call("health", unclustered, "--workload", str(workload))
    assert found["cluster_by_keys"] == ["y", "s", "x"]
    assert "y (67% of queries), s (17% of queries), x (17% of queries)" in found["notes"][0]
    assert [one["where"] for one in found["not_usable"]] == ["nope = 3"]
    assert found["read_ratio"] > 1.5
    words = ["health", unclustered, "--workload", str(workload)]
    assert said(*words, "--columns", "x")[0] == EXIT_USAGE
    workload.write_text('{"where": "nope = 3"}\n')
    assert said(*words)[0] == EXIT_USAGE


def test_columns_without_statistics_are_named_and_left_out(tmp_path: Path) -> None:
    made = filled(tmp_path / "t", files=2, properties={"delta.dataSkippingStatsColumns": "x"})
    workload = tmp_path / "w.sql"
    workload.write_text("y = 5;\ny = 6;\nx = 7;\n")
    _, found, _ = call("health", made.uri, "--workload", str(workload))
    assert found["cluster_by_keys"] == ["x"]
    assert "columns without statistics: y" in found["notes"][1]
    workload.write_text("y = 5;\n")
    status, _, err = said("health", made.uri, "--workload", str(workload))
    assert status == EXIT_USAGE
    assert "compares no column that has statistics: y have none" in err


def test_what_chooses_files_says_what_cannot_prune_and_when_it_was_asked(unclustered: str) -> None:
    where = "lower(s) = 'x' AND x > year(current_date)"
    _, found, _ = call("health", unclustered, "--where", where, "--columns", "x")
    assert found["cannot_prune"] == ["lower(s) = 'x'"]
    assert found["asked_at"] is not None
    status, shown, _ = said("health", unclustered, "--where", where, "--columns", "x")
    assert status == EXIT_OK
    assert "cannot prune by: lower(s) = 'x'" in shown
    assert "the current time in predicates is " in shown


def test_a_fresh_table_of_264_files_crosses_no_ratio(tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "t"), schema=SCHEMA, cluster_by=["x", "y"])
    columns = rows_of("uniform", 2, 264 * 200)
    file = file_of_rows(columns, 264, curve="hilbert")
    rows = pa.table([*columns, pa.array(["a"] * len(file))], schema=SCHEMA)
    made.append([rows.filter(pa.array(file == number)) for number in range(264)])
    _, found, _ = call("health", made.uri)
    assert found["total_file_count"] == 264
    assert found["average_depth"] > 8
    assert found["depth_ratio"] == pytest.approx(1.0, abs=0.2)
    assert found["read_ratio"] == pytest.approx(1.0, abs=0.2)
    assert said("health", made.uri, *RATIOS)[0] == EXIT_OK
    spanning = pa.table([[0, 10**9], [0, 10**9], ["a", "b"]], schema=SCHEMA)
    made.append([spanning] * 40)
    assert said("health", made.uri, *RATIOS)[0] == EXIT_BAR_CROSSED
