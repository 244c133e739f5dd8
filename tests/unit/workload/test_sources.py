"""Sources are recognised by their content, and yield the same form."""

import gzip
import json
import re
import struct
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from liquidlog.errors import LiquidlogError, UsageError
from liquidlog.operations.advise import import_workload, read_workload, workload_of
from liquidlog.storage.addresses import NO_OPTIONS
from liquidlog.table import Table
from liquidlog.workload import sources as line_rules
from liquidlog.workload.queries import Imported
from liquidlog.workload.sources import DamagedStreamError, chunks
from support.commands import said
from support.repository import ROOT

RECORDED = str(ROOT / "fixtures" / "workload" / "recorded" / "local-recorded.zstd")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    rows = pa.table({"x": pa.array(range(100), pa.int64()), "s": ["a"] * 100})
    made = Table.create(str(tmp_path / "t"), schema=rows.schema, cluster_by=["x"])
    made.append(rows)
    return made


def test_databricks_history_in_three_formats(tmp_path: Path, table: Table) -> None:
    texts = ["SELECT * FROM main.s.t WHERE x < 4", "SELECT 1 FROM other", "nope("]
    rows = {
        "statement_text": [*texts, "SELECT s FROM t WHERE x < 4"],
        "start_time": [datetime(2026, 1, day) for day in (2, 2, 3, 1)],  # noqa: DTZ001
        "execution_status": ["FINISHED"] * 4,
        "read_files": [3, 1, 0, 5],
        "read_bytes": [300, 10, 0, 500],
    }
    frame = pd.DataFrame(rows)
    frame.to_parquet(tmp_path / "h.parquet")
    frame.to_csv(tmp_path / "h.csv")
    frame.to_json(tmp_path / "h.json", orient="records", lines=True, date_format="iso")
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
        found = import_workload([str(tmp_path / name)], tables=[table.uri], since="2026-01-02")
        assert [one.weight for one in found.queries] == [1]


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
    with pytest.raises(UsageError, match=r"has no query of .*; it has queries of /warehouse/demo"):
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
        ("", "has no query of"),
        (";", "has no query of"),
        ("'open", "it is not SQL: "),
        ("x = 1 -- weight: -1", "statement 1 has no positive weight but -1.0"),
        ("x = 1 -- weight: 1e999", "statement 1 has no positive weight but inf"),
        ("x = 1; x = 2 -- weight: e", "statement 2 has no positive weight but 'e'"),
        ("SELECT 1", "it reads no table: SELECT 1"),
        ("DROP TABLE t", "it is a statement of another kind: Drop"),
    ],
)
def test_sql_that_asks_nothing(tmp_path: Path, table: Table, text: str, reason: str) -> None:
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


# Spark's event log: every scan that was recorded is found, with what it asked and read.


LOGS = ROOT / "fixtures" / "workload"
RECORDED_LOG = LOGS / "recorded" / "local-recorded.zstd"
ROLLING = LOGS / "types" / "eventlog_v2_types"


def _log() -> bytes:
    with RECORDED_LOG.open("rb") as file:
        return b"".join(chunks(file))


def _imported(content: bytes, home: Path) -> Imported:
    (home / "app").write_bytes(content)
    return import_workload([str(home / "app")])


def _same(conjunct: str) -> object:
    """Return a condition with the members of its list in no order."""
    head, found, members = conjunct.partition(" IN (")
    return (head, frozenset(members.rstrip(")").split(", "))) if found else conjunct


def test_every_recorded_scan_is_found_with_its_conjuncts() -> None:
    recorded = json.loads((LOGS / "recorded" / "queries.json").read_text())
    expected: Counter[Any] = Counter()
    for query in recorded["queries"]:
        for scan in query["scans"]:
            key = scan["table"], frozenset(map(_same, scan["conjuncts"]))
            expected[key] += query["times"]
    found = import_workload([str(RECORDED_LOG)])
    asked = Counter(
        {
            (query.table.rpartition("/")[2], frozenset(map(_same, query.conjuncts))): query.weight
            for query in found.queries
        }
    )
    assert asked == expected
    assert not any(query.ambiguous for query in found.queries)
    assert found.not_understood == ()


def test_what_scans_read_is_that_of_their_counters() -> None:
    found = import_workload([str(RECORDED_LOG)])
    read = {query.conjuncts: query.observed for query in found.queries}
    after = read["day > DATE '2024-11-30'", "amount IS NULL OR amount < 1"]
    assert after is not None
    assert (after.files, after.bytes) == (9, 1_424_925)
    deleted, counted = read["user_id = 49999",], read[()]
    assert deleted is not None
    assert counted is not None
    assert deleted.files == counted.files == 0


def test_rolling_log_of_every_type_and_statement() -> None:
    expected = [
        json.loads(line) for line in (LOGS / "types" / "queries.jsonl").read_text().splitlines()
    ]
    found = import_workload([str(ROLLING)])
    names = ("table", "conjuncts", "weight", "observed", "ambiguous")
    assert [{name: query.document()[name] for name in names} for query in found.queries] == expected
    assert [one.reason for one in found.not_understood] == [
        "the only condition is none that SQL has"
    ]


def test_a_log_of_a_part_of_a_query_counts_it_once(tmp_path: Path) -> None:
    whole = import_workload([str(RECORDED_LOG)])
    without_ends = b"\n".join(
        line for line in _log().splitlines() if b"SQLExecutionEnd" not in line
    )
    assert _imported(without_ends, tmp_path).used == whole.used


def _lz4(content: bytes) -> bytes:
    codec = pa.Codec("lz4_raw")
    blocks = []
    for start in range(0, len(content), 32_768):
        block = content[start : start + 32_768]
        packed = codec.compress(block, asbytes=True)
        raw = len(packed) >= len(block)
        header = struct.pack(
            "<8sBiii", b"LZ4Block", 0x15 if raw else 0x25, len(block if raw else packed),
            len(block), 0,
        )  # fmt: skip
        blocks.append(header + (block if raw else packed))
    return b"".join(blocks) + struct.pack("<8sBiii", b"LZ4Block", 0x15, 0, 0, 0)


def _snappy(content: bytes) -> bytes:
    codec = pa.Codec("snappy")
    packed = [
        codec.compress(content[start : start + 32_768], asbytes=True)
        for start in range(0, len(content), 32_768)
    ]
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    return header + b"".join(struct.pack(">i", len(one)) + one for one in packed)


def _zstd(content: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(content, asbytes=True))


FRAMES: list[Callable[[bytes], bytes]] = [_lz4, _snappy, _zstd, gzip.compress]


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("times", [1, 2])
def test_compressed_logs_are_recognised_by_their_content(
    frame: Callable[[bytes], bytes], times: int, tmp_path: Path
) -> None:
    half = len(_log()) // 2
    parts = (_log(),) if times == 1 else (_log()[:half], _log()[half:])
    found = _imported(b"".join(frame(part) for part in parts), tmp_path)
    assert found == import_workload([str(RECORDED_LOG)])


@pytest.mark.parametrize("frame", FRAMES)
def test_logs_that_are_cut_off_are_used(frame: Callable[[bytes], bytes], tmp_path: Path) -> None:
    whole = frame(_log() * 3)
    for cut in (10, 25):
        found = _imported(whole[: len(whole) - cut], tmp_path)
        assert found.used >= import_workload([str(RECORDED_LOG)]).used
        reasons = [one.reason for one in found.not_understood]
        assert any("cannot be read to its end" in reason for reason in reasons)


def test_damaged_blocks_are_no_traceback(tmp_path: Path) -> None:
    for frame in FRAMES:
        broken = bytearray(frame(_log()))
        for place in range(200, len(broken), 97):
            broken[place] ^= 0xFF
        (tmp_path / "app").write_bytes(bytes(broken))
        with (tmp_path / "app").open("rb") as file, pytest.raises(DamagedStreamError):
            (sum(len(piece) for piece in chunks(file)))


def test_other_lines_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_rules, "MAX_LINE_BYTES", 1 << 20)
    sql = b'{"Event":"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"'
    deep = sql + b',"executionId":1,"sparkPlanInfo":' + b'{"children":[' * 20_000
    bad = [b"garbage", b"\xff\xfe\x00", deep, sql + b',"executionId":"x"}', b"x" * (9 << 20)]
    found = _imported(_log() + b"\n".join(bad) + b"\n", tmp_path)
    assert found.used == import_workload([str(RECORDED_LOG)]).used
    assert {one.reason: one.times for one in found.not_understood} == {
        "a line is no event": 2,
        "an event of a query cannot be decoded": 2,
        "a line is longer than 64 MiB": 1,
    }
