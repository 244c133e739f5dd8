"""Spark's event log: every scan that was recorded is found, with what it asked and read."""

import gzip
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.operations.workloads import import_workload
from liquidlog.workload import sources as line_rules
from liquidlog.workload.form import Imported
from liquidlog.workload.sources import DamagedStreamError, chunks
from support.repository import ROOT

LOGS = ROOT / "fixtures" / "workload"
RECORDED = LOGS / "recorded" / "local-recorded.zstd"
ROLLING = LOGS / "types" / "eventlog_v2_types"


def _log() -> bytes:
    with RECORDED.open("rb") as file:
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
    found = import_workload([str(RECORDED)])
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
    found = import_workload([str(RECORDED)])
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
    whole = import_workload([str(RECORDED)])
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
    assert found == import_workload([str(RECORDED)])


@pytest.mark.parametrize("frame", FRAMES)
def test_log_that_is_cut_off_is_used_as_far_as_it_goes(
    frame: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    whole = frame(_log() * 3)
    for cut in (10, 25):
        found = _imported(whole[: len(whole) - cut], tmp_path)
        assert found.used >= import_workload([str(RECORDED)]).used
        reasons = [one.reason for one in found.not_understood]
        assert any("cannot be read to its end" in reason for reason in reasons)


def test_damaged_blocks_are_no_traceback(tmp_path: Path) -> None:
    for frame in FRAMES:
        broken = bytearray(frame(_log()))
        for place in range(200, len(broken), 97):
            broken[place] ^= 0xFF
        (tmp_path / "app").write_bytes(bytes(broken))
        with (tmp_path / "app").open("rb") as file, pytest.raises(DamagedStreamError):
            _consumed(chunks(file))


def _consumed(pieces: Iterable[bytes]) -> int:
    return sum(len(piece) for piece in pieces)


def test_lines_that_are_no_events_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_rules, "MAX_LINE_BYTES", 1 << 20)
    sql = b'{"Event":"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"'
    deep = sql + b',"executionId":1,"sparkPlanInfo":' + b'{"children":[' * 20_000
    bad = [b"garbage", b"\xff\xfe\x00", deep, sql + b',"executionId":"x"}', b"x" * (9 << 20)]
    found = _imported(_log() + b"\n".join(bad) + b"\n", tmp_path)
    assert found.used == import_workload([str(RECORDED)]).used
    assert {one.reason: one.times for one in found.not_understood} == {
        "a line is no event": 2,
        "an event of a query cannot be decoded": 2,
        "a line is longer than 64 MiB": 1,
    }
