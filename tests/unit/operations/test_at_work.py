"""Whose rewrites may be at work on a table, by what the markers of their runs say."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.data.runs import (
    APPEND,
    Origin,
    Run,
    decode_origin,
    encode_origin,
    running_in,
    runs_in,
)
from liquidlog.operations.at_work import at_work
from liquidlog.spec.text import rough_duration
from liquidlog.table import Table

OTHER = Origin(verb="optimize", host="host-a", pid=4711, started_ms=0, plan_id="p")
OLD, NEW, THIRD = "0123456789ab", "ba9876543210", "0123456789ff"
HOUR_S = 3_600


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table.create(tmp_path / "t", schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])


def begin(table: Table, token: str, origin: Origin | None) -> Run:
    run = Run(table.uri, token)
    run.begin(origin)
    return run


def age(path: Path, seconds: int) -> None:
    written = path.stat().st_mtime - seconds
    os.utime(path, (written, written))


def marker(run: Run) -> Path:
    return Path(run.directory, f"_liquidspark-{run.token}")


def test_nobody_is_at_work_on_a_table_at_rest(table: Table) -> None:
    table.append(pa.table({"x": [1]}))
    assert at_work(table.opened.store, table.opened.clock) == ()


def test_groups_of_one_process_are_one(table: Table) -> None:
    first, second = begin(table, OLD, OTHER), begin(table, NEW, OTHER)
    third = begin(table, THIRD, Origin.here("run", now_ms=OTHER.started_ms))
    assert first.origin() == second.origin() == OTHER
    found = {one.origin: one.groups for one in at_work(table.opened.store, table.opened.clock)}
    assert found == {OTHER: 2, third.origin(): 1}


def test_age_is_since_the_process_began(table: Table) -> None:
    now_ms = begin(table, OLD, None).last_trace_ms()
    assert now_ms is not None
    begin(table, NEW, Origin(verb="run", host="h", pid=1, started_ms=now_ms - 90 * 60_000))
    begin(table, THIRD, Origin(verb="run", host="fast", pid=1, started_ms=now_ms + 10**9))
    ages = {
        one.origin and one.origin.host: one.age_ms
        for one in at_work(table.opened.store, table.opened.clock)
    }
    assert ages["fast"] == 0
    assert ages[None] < 60_000
    assert 90 * 60_000 <= ages["h"] < 91 * 60_000
    said = [str(one) for one in at_work(table.opened.store, table.opened.clock)]
    assert any("run on h, process 1, begun 1 h ago, with 1 group under way" in one for one in said)


@pytest.mark.parametrize("content", [b"", b"\n", b"{", b"[]", b'{"verb": "optimize"}', b"\xff"])
def test_a_marker_that_says_nothing_is_somebody(table: Table, content: bytes) -> None:
    run = begin(table, OLD, None)
    marker(run).write_bytes(content)
    assert [one.origin for one in at_work(table.opened.store, table.opened.clock)] == [None]
    assert "does not say who" in str(at_work(table.opened.store, table.opened.clock)[0])


def test_appends_take_no_file_from_a_rewrite(table: Table) -> None:
    begin(table, OLD, Origin.here(APPEND, now_ms=0))
    assert at_work(table.opened.store, table.opened.clock) == ()


def test_a_run_that_has_ended_is_not_at_work(table: Table) -> None:
    begin(table, OLD, OTHER).retire()
    begin(table, NEW, OTHER).discard()
    assert (at_work(table.opened.store, table.opened.clock), running_in(table.uri)) == ((), ())
    assert [run.token for run in runs_in(table.uri)] == [OLD]


def test_a_run_that_wrote_nothing_for_a_day_is_dead(table: Table) -> None:
    run = begin(table, OLD, OTHER)
    age(marker(run), 23 * HOUR_S)
    assert len(at_work(table.opened.store, table.opened.clock)) == 1
    age(marker(run), 2 * HOUR_S)
    assert at_work(table.opened.store, table.opened.clock) == ()
    Path(table.uri, run.file_name(0, "x", "zstd")).write_bytes(b"12345")
    assert len(at_work(table.opened.store, table.opened.clock)) == 1


def test_orphans_say_whose_files_they_are(table: Table) -> None:
    run = begin(table, OLD, OTHER)
    path = Path(table.uri, run.file_name(0, "x", "zstd"))
    path.write_bytes(b"12345")
    (kept,) = table.orphans()
    assert "optimize on host-a, process 4711" in kept["reason"]
    for one in (path, marker(run)):
        age(one, 48 * HOUR_S)
    (dead,) = table.orphans(delete=True)
    assert "optimize on host-a, process 4711" in dead["reason"]
    assert dead["deleted"]
    assert runs_in(table.uri) == ()


NAMES = st.text(min_size=1, max_size=255)
ORIGINS = st.builds(
    Origin,
    verb=NAMES,
    host=NAMES,
    pid=st.integers(0, 2**31),
    started_ms=st.integers(-(2**60), 2**60),
    plan_id=st.none() | st.text(),
)


@given(origin=ORIGINS)
def test_an_origin_is_read_as_it_was_written(origin: Origin) -> None:
    assert decode_origin(encode_origin(origin)) == origin


@given(content=st.binary(max_size=60))
def test_no_marker_is_too_strange_to_be_read(content: bytes) -> None:
    assert decode_origin(content) is None


def test_later_releases_may_say_more() -> None:
    said = {**json.loads(encode_origin(OTHER)), "user": "somebody"}
    assert decode_origin(json.dumps(said).encode()) == OTHER


@pytest.mark.parametrize(
    ("duration_ms", "expected"),
    [(0, "0 s"), (59_999, "59 s"), (60_000, "1 min"), (3_600_000, "1 h"), (172_800_000, "2 d")],
)
def test_durations_are_rough(duration_ms: int, expected: str) -> None:
    assert rough_duration(duration_ms) == expected
