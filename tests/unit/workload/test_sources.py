"""Sources are recognised by their content, and yield the same form."""

import json
import re
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.errors import LiquidlogError, UsageError
from liquidlog.operations.workloads import import_workload, read_workload, workload_of
from liquidlog.storage.options import NO_OPTIONS
from liquidlog.table import Table
from support.commands import said
from support.repository import ROOT

RECORDED = str(ROOT / "fixtures" / "workload" / "recorded" / "local-recorded.zstd")
SQL = "SELECT * FROM t JOIN u ON t.x = u.k WHERE t.x = 5 AND u.k > 1; DROP TABLE q; SELECT )"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    rows = pa.table({"x": pa.array(range(100), pa.int64()), "s": ["a"] * 100})
    made = Table.create(str(tmp_path / "t"), schema=rows.schema, cluster_by=["x"])
    made.append(rows)
    return made


def test_duckdb_itself_exports_its_query_log(tmp_path: Path, table: Table) -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT range x FROM range(10)")
    connection.execute("CALL enable_logging('QueryLog')")
    for _ in range(2):
        connection.execute("SELECT count(*) FROM t WHERE x = 3").fetchall()
    connection.execute("CALL disable_logging()")
    for name in ("log.csv", "log.json", "log.parquet"):
        target = str(tmp_path / name)
        connection.execute(f"COPY (SELECT * FROM duckdb_logs) TO '{target}'")
        found = import_workload([target], tables=[table.uri])
        assert [(one.conjuncts, one.weight) for one in found.queries] == [(("x = 3",), 2.0)]
        assert found.queries[0].source == "duckdb-log"
        assert found.queries[0].first_ms is not None


def test_databricks_history_in_three_formats(tmp_path: Path, table: Table) -> None:
    rows = pa.table(
        {
            "statement_text": [
                "SELECT * FROM main.s.t WHERE x < 4",
                "SELECT 1 FROM other",
                "nope(",
                "SELECT s FROM t WHERE x < 4",
            ],
            "start_time": [datetime(2026, 1, day) for day in (2, 2, 3, 1)],  # noqa: DTZ001
            "execution_status": ["FINISHED"] * 4,
            "read_files": [3, 1, 0, 5],
            "read_bytes": [300, 10, 0, 500],
        }
    )
    pq.write_table(rows, tmp_path / "h.parquet")
    frame = duckdb.from_arrow(rows)
    frame.to_csv(str(tmp_path / "h.csv"))
    (tmp_path / "h.json").write_text(
        "\n".join(json.dumps(row, default=str) for row in rows.to_pylist())
    )
    for name in ("h.parquet", "h.csv", "h.json"):
        found = import_workload([str(tmp_path / name)], tables=[table.uri])
        (query,) = found.queries
        assert query.document() == {
            "table": table.uri,
            "conjuncts": ["x < 4"],
            "weight": 2,
            "first": "2026-01-01T00:00:00.000Z",
            "last": "2026-01-02T00:00:00.000Z",
            "observed": {"files": 4, "bytes": 400},
            "ambiguous": False,
            "source": "databricks-history",
        }
        assert (found.scans, found.used, found.other_tables) == (4, 2, {"other": 1})
        assert [one.reason for one in found.not_understood] == ["it is not SQL"]


def test_trino_events(tmp_path: Path, table: Table) -> None:
    event = {
        "createTime": "2026-01-05T10:00:00Z",
        "metadata": {"query": "SELECT s FROM t WHERE x IN (1, 2)", "queryState": "FINISHED"},
        "statistics": {"physicalInputBytes": 77},
    }
    failed = {**event, "metadata": {**event["metadata"], "queryState": "FAILED"}}  # type: ignore[dict-item]
    (tmp_path / "q.json").write_text(json.dumps(event) + "\n" + json.dumps(failed) + "\n")
    found = import_workload([str(tmp_path / "q.json")], tables=[table.uri])
    assert [(one.conjuncts, one.source) for one in found.queries] == [
        (("x IN (1, 2)",), "trino-log")
    ]


def test_the_log_of_a_table_has_its_statements() -> None:
    case = ROOT / "fixtures" / "logs" / "12_dv_live" / "table"
    found = import_workload([str(case)])
    assert [one.source for one in found.queries] == ["delta-log"] * len(found.queries)
    assert found.queries


def test_an_imported_workload_can_be_imported_again(tmp_path: Path) -> None:
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    said("workload", "import", RECORDED, "-o", str(first))
    said("workload", "import", str(first), "-o", str(second))
    assert first.read_text() == second.read_text()


def test_redacted_workload_has_no_constant(tmp_path: Path) -> None:
    target = tmp_path / "w.jsonl"
    said("workload", "import", RECORDED, "--redact", "-o", str(target))
    text = "".join(
        "".join(json.loads(line)["conjuncts"]) for line in target.read_text().splitlines()
    )
    for constant in ("2024", "386", "'", "Neil", "shop", "400.5", "ios", "DE"):
        assert constant not in text
    assert "day >= :q200" in text


def test_workload_of_other_tables_names_them(table: Table) -> None:
    with pytest.raises(UsageError, match=r"asks nothing of .*; it asks /warehouse/demo"):
        read_workload(RECORDED, table=table.uri)


def test_sql_of_one_table_is_read_alike_by_every_verb(tmp_path: Path, table: Table) -> None:
    """Queries of another table never count; a name that is not the directory's does."""
    path = tmp_path / "q.sql"
    path.write_text(
        """
        -- the dashboard; weight: 10
        SELECT count(*) FROM db.t AS q WHERE q.x BETWEEN 3 AND 4 AND T.x > 2;
        /* weight=0.5 */ x IN (1, 2);
        SELECT * FROM elsewhere WHERE x = 9;
        SELECT * FROM t;
        x = 1; -- weight: 3
        -- weight: 4
        x = 3;  -- no weight
        x = 4 -- weight: 5
        ;
        t.nope = 7
        """.replace("T.x", "q.x")
    )
    asked = read_workload(str(path), table=table.uri)
    assert [(one.where, one.weight) for one in asked] == [
        ("(x >= 3) AND (x <= 4) AND (x > 2)", 10),
        ("x IN (1, 2)", 0.5),
        ("TRUE", 1),
        ("x = 1", 3),
        ("x = 3", 4),
        ("x = 4", 5),
        ("nope = 7", 1),
    ]
    imported = import_workload([str(path)], tables=[table.uri])
    assert [one.where for one in imported.queries] == [one.where for one in asked]
    assert workload_of([path.read_text()], table.uri, NO_OPTIONS) == asked
    path.write_text("SELECT * FROM db.renamed WHERE x = 9")
    assert [one.where for one in read_workload(str(path), table=table.uri)] == ["x = 9"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "asks nothing of"),
        (";", "asks nothing of"),
        ("'open", "it is not SQL: "),
        ("x = 1 -- weight: -1", "statement 1 has no positive weight but -1.0"),
        ("x = 1 -- weight: 1e999", "statement 1 has no positive weight but inf"),
        ("x = 1; x = 2 -- weight: e", "statement 2 has no positive weight but 'e'"),
        ("SELECT 1", "it reads no table: SELECT 1"),
        ("DROP TABLE t", "it is a statement of another kind: Drop"),
    ],
)
def test_sql_that_asks_nothing_says_why(
    tmp_path: Path, table: Table, text: str, reason: str
) -> None:
    path = tmp_path / "q.sql"
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(reason)):
        read_workload(str(path), table=table.uri)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.bin", b"\x00\x01\x02"),
        ("a.csv", b"x,y\n1,2\n"),
        ("empty", b""),
        ("a.gz", b"\x1f\x8bnot gzip"),
        ("a.lzf", b"ZV\x01aaaaaaaaaa"),
        ("a.parquet", b"PAR1 and no footer"),
    ],
)
def test_file_that_is_no_source_is_one_error(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LiquidlogError) as raised:
        import_workload([str(tmp_path / name)])
    assert str(tmp_path / name) in str(raised.value)
