"""`liquidlog sql`: a statement does and prints what its verb does."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.table import Table
from support.commands import call, printed_statements, said

pytestmark = pytest.mark.usefixtures("started")

ROWS = pa.table({"col1": pa.array(range(50), pa.int32()), "col2": [f"s{n}" for n in range(50)]})
DAYS = pa.array([19_000, 19_001], pa.date32())


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(
        tmp_path / "t",
        schema=ROWS.schema,
        cluster_by=["col1"],
        properties={"delta.columnMapping.mode": "name"},
    )
    for _ in range(3):
        made.append(ROWS)
    return made


def test_every_printed_statement_runs_or_is_refused_with_the_reason(tmp_path: Path) -> None:
    for statement, reason in printed_statements():
        written = re.sub(r"\b(events2?|nothing)\b", rf"delta.`{tmp_path}/\1`", statement)
        status, _, err = said("sql", written)
        assert (status != 0) == (reason is not None), (statement, err)
        assert "Traceback" not in err
        assert (reason or "") in err, statement
        if statement.startswith("CREATE TABLE events (") and status == 0:
            for _ in range(2):
                Table.open(tmp_path / "events").append(ROWS)
    rows = pa.concat_tables(pq.read_table(path) for path in _live(tmp_path / "events"))
    assert sorted(rows.column(0).to_pylist()) == sorted([*range(50), *range(50)])


def _live(path: Path) -> Iterator[Path]:
    for name in Table.open(path).files()["path"].to_pylist():
        yield path / name


SAME = {
    "DESCRIBE DETAIL {t}": "detail {p}",
    "DESCRIBE HISTORY {t} LIMIT 2": "history {p} --limit 2",
    "SELECT * FROM clustering_information('{p}')": "health {p}",
    "ALTER TABLE {t} CLUSTER BY (col2, col1)": "cluster-by {p} col2,col1 --dry-run",
    "ALTER TABLE {t} CLUSTER BY NONE": "cluster-by {p} --none --dry-run",
    "EXPLAIN OPTIMIZE {t} FULL": "optimize {p} --full --dry-run",
    "OPTIMIZE {t}": "optimize {p} --dry-run",
    "ALTER TABLE {t} RECLUSTER FINAL WHERE col1 = 7": (
        "optimize {p} --strategy overlap --set final=true --where 'col1 = 7' --dry-run"
    ),
}


def test_a_statement_prints_what_its_verb_prints(table: Table) -> None:
    for statement, words in SAME.items():
        verb = [word.format(p=table.uri) for word in shlex.split(words)]
        dry = ["--dry-run"] if "--dry-run" in verb and not statement.startswith("EXPLAIN") else []
        text = statement.format(t=f"delta.`{table.uri}`", p=table.uri)
        status, document, _ = call("sql", text, *dry)
        assert (status, _timeless(document)) == (0, _timeless(call(*verb)[1])), statement
        shown, printed = said("sql", text, *dry), said(*verb)
        assert _timeless(shown[1]) == _timeless(printed[1])


def test_a_change_says_what_the_table_would_have(table: Table) -> None:
    version = table.snapshot().version + 1
    for change, has in (
        ("RENAME COLUMN col2 TO `a b`", "have the column `a b` instead of col2"),
        ("DROP COLUMN IF EXISTS col2", "have no column col2"),
        ("ADD COLUMNS (c INT, d INT)", "have the new columns c, d"),
        ("SET TBLPROPERTIES ('a' = 'b=c')", "have these properties"),
    ):
        status, out, _ = said("sql", f"ALTER TABLE '{table.uri}' {change}", "--dry-run")
        assert (status, out) == (0, f"version {version} would {has}; nothing was written\n")


def _timeless(document: Any) -> str:
    return re.sub(
        r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
        r"|\d{4}-\d\d-\d\dT[\d:.]+Z|'(seconds|average_depth)': [\d.]+|where': \{.*?\}",
        "*",
        str(document),
    )


def test_nothing_to_do_changes_nothing(table: Table) -> None:
    version = table.snapshot().version
    for text in (
        f"ALTER TABLE '{table.uri}' DROP COLUMN IF EXISTS nope",
        f"ALTER TABLE '{table.uri}' UNSET TBLPROPERTIES IF EXISTS ('nope')",
        f"CREATE TABLE IF NOT EXISTS '{table.uri}' (x INT)",
        f"ALTER TABLE '{table.uri}' CLUSTER BY (col1)",
    ):
        status, document, _ = call("sql", text)
        assert (status, document["version"], table.snapshot().version) == (0, version, version)


def test_create_takes_columns_and_comment(tmp_path: Path) -> None:
    text = f"CREATE TABLE '{tmp_path}/n' (a INT NOT NULL, b STRING) CLUSTER BY (b) COMMENT 'c'"
    status, document, _ = call("sql", text, "--dry-run")
    assert (status, document["dry_run"], (tmp_path / "n").exists()) == (0, True, False)
    assert call("sql", text)[0] == 0
    detail = Table.open(tmp_path / "n").detail()
    assert (detail["description"], detail["clusteringColumns"]) == ("c", ["b"])
    assert call("sql", text)[2]["error"]["code"] == "table_exists"
    like = f"CREATE TABLE '{tmp_path}/m' LIKE '{tmp_path}/n' TBLPROPERTIES ('p' = 'q')"
    assert call("sql", like)[0] == 0
    detail = Table.open(tmp_path / "m").detail()
    assert (detail["description"], detail["properties"]["p"]) == ("c", "q")
    assert detail["clusteringColumns"] == ["b"]


def test_a_partitioned_table_is_created_and_copied(tmp_path: Path) -> None:
    text = f"CREATE TABLE '{tmp_path}/n' (a INT) PARTITIONED BY (day DATE)"
    assert call("sql", text)[0] == 0
    for options, laid_out in (
        ([], (["day"], [])),
        (["--partition-by", "a"], (["a"], [])),
        (["--cluster-by", "day"], ([], ["day"])),
        (["--partition-by", "a", "--cluster-by", "day"], None),
    ):
        copy = tmp_path / "-".join(["m", *options])
        status = call("create", str(copy), "--like", f"{tmp_path}/n", *options)[0]
        assert (status, copy.exists()) == ((2, False) if laid_out is None else (0, True))
        if laid_out is not None:
            detail = Table.open(copy).detail()
            assert (detail["partitionColumns"], detail["clusteringColumns"]) == laid_out
            Table.open(copy).append(pa.table({"a": DAYS.cast(pa.int32()), "day": DAYS}))


def test_optimize_takes_the_named_executor(table: Table, started: list[tuple[Any, ...]]) -> None:
    words = ("--executor", "spark", "--spark-conf", "a=b")
    status, document, _ = call("sql", f"OPTIMIZE '{table.uri}'", *words)
    assert (status, len(document["groups"]), started) == (0, 1, [("spark", {"a": "b"}, {})])
    assert table.files().num_rows == 1


REFUSED = (
    ("OPTIMIZE sales", "", "without Spark there is no catalog"),
    ("CREATE TABLE sales (a INT) LOCATION '/x'", "", "LOCATION is for tables with a name"),
    ("DESCRIBE DETAIL '{t}'", "--dry-run", "--dry-run has no effect"),
    ("DESCRIBE DETAIL '{t}'", "--executor spark", "are only for OPTIMIZE"),
    ("ALTER TABLE '{t}' CLUSTER BY NONE", "--spark-conf a=b", "are only for OPTIMIZE"),
    ("OPTIMIZE '{t}'", "--storage-option a=b", "option"),
    ("ALTER TABLE '{t}' ADD COLUMN COL1 INT", "", "there is a column col1 already"),
    ("ALTER TABLE '{t}' ADD COLUMN x INT NOT NULL", "", "leave NOT NULL out"),
    ("ALTER TABLE '{t}' ADD COLUMN x TIMESTAMP_NTZ", "", "timestampNtz"),
    ("ALTER TABLE '{t}' ADD COLUMN col1.x INT", "", "col1 is no struct"),
    ("ALTER TABLE '{t}' ADD COLUMN nope.x INT", "", "there is no column nope"),
)


def test_what_cannot_be_is_refused(table: Table) -> None:
    version = table.snapshot().version
    for text, options, reason in REFUSED:
        status, out, err = said("sql", text.format(t=table.uri), *options.split())
        assert (status, out) == (2, "")
        assert reason in err
        assert table.snapshot().version == version


def test_optimize_takes_conditions_on_partition_columns_only(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path / "p", ROWS, partition_by=["col1"])
    at = f"'{tmp_path}/p'"
    assert call("sql", f"EXPLAIN OPTIMIZE {at} WHERE col1 = 1")[0] == 0
    refused = call("sql", f"OPTIMIZE {at} WHERE col2 = 's1'")[2]["error"]["message"]
    assert "partition columns only (col1), found col2" in refused
