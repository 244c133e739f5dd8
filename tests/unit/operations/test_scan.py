import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from liquidlog.errors import LiquidlogError, UsageError
from liquidlog.operations.planning import criteria_of, judge_plan
from liquidlog.spec.text import CODEC_NAMES, CODEC_PROPERTY
from liquidlog.table import Table
from support.arrow_executor import execute
from support.logs import added, metadata_of, write_actions
from support.plans import schema_json_of
from support.repository import ROOT

NOON = 1_717_243_200_000_000
"""2024-06-01T12:00:00Z in microseconds."""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    schema = pa.schema([("t", pa.timestamp("us", "UTC"))])
    made = Table.create(str(tmp_path / "t"), schema=schema)
    made.append(pa.table({"t": [NOON]}, schema=schema))
    return made


@pytest.mark.parametrize(
    ("time_zone", "files"), [(None, 1), ("UTC", 0), ("utc", 0), ("Europe/Berlin", 1)]
)
def test_times_are_of_the_readers_zone(table: Table, time_zone: str | None, files: int) -> None:
    found = table.scan("t = '2024-06-01 14:00:00'", time_zone=time_zone)
    assert found.files_read == files


def test_predicates_that_are_no_condition_on_the_table_are_left_out(table: Table) -> None:
    text = """
        SELECT 1;
        t IS NULL; nope = 1; t = 7; date_format(t, 'EEE') = 'Mon'; t IN (SELECT other FROM y);
    """
    found = table.scan(workload=[text])
    assert [(one.share, one.files) for one in found.predicates] == [
        (1 / 3, 0),
        (1 / 3, 1),
        (1 / 3, 1),
    ]
    reasons = [one.reason for one in found.not_usable]
    assert "nope" in reasons[0]
    assert "cannot be compared with 7" in reasons[1]
    assert reasons[2] == "workload: it reads no table"
    assert found.cannot_prune == ("date_format(t, 'EEE') = 'Mon'",)
    assert found.asked_at is None


def test_the_current_time_is_said_where_it_counts(table: Table) -> None:
    found = table.scan("t > current_timestamp - INTERVAL 30 DAYS")
    assert found.files_read == 0
    assert found.asked_at is not None
    assert found.asked_at.endswith("Z")
    assert table.scan("t < now() - INTERVAL 30 DAYS").files.num_rows == 1
    assert table.scan("year(t) < 2024").asked_at is None


def test_a_plan_says_the_time_that_its_predicate_means(tmp_path: Path) -> None:
    made = Table.create(str(tmp_path / "p"), schema=pa.schema([("d", pa.date32())]), cluster_by="d")
    plan = made.plan(strategy="overlap", where="d < current_date AND d > date(now())")
    where = str(plan.policy.where)
    assert "current" not in where.lower()
    assert "now" not in where.lower()
    assert "CAST('2" in where


# What a rewrite would refuse for its calendar is said before it is begun.


_LIST: Final = {"type": "array", "elementType": "date", "containsNull": True}


SCHEMA: Final = schema_json_of(
    {"id": "long", "d": "date", "t": "timestamp", "ds": _LIST, "s": {"t": "timestamp", "i": "long"}}
)


def table_of(tmp_path: Path, case: str, lows: Mapping[str, object]) -> Table:
    """A table of two copies of a recorded file, with these lowest values in the log."""
    (tmp_path / "_delta_log").mkdir()
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    actions = [{"protocol": protocol}, metadata_of(SCHEMA)]
    stats = {"numRecords": 9, "minValues": lows, "maxValues": lows, "nullCount": {}}
    for name in ("a.parquet", "b.parquet"):
        shutil.copy(ROOT / "fixtures" / "calendars" / case / "rows.parquet", tmp_path / name)
        size_bytes = (tmp_path / name).stat().st_size
        actions.append(added(name, size_bytes, stats=json.dumps(stats)))
    write_actions(tmp_path, 0, *actions)
    return Table.open(tmp_path)


OLD: Final[Mapping[str, object]] = {"d": "0001-01-01", "t": "0001-01-01T00:00:00.000Z"}


@pytest.mark.parametrize(
    ("case", "lows", "named"),
    [
        ("2.4.8-int96", OLD, "column t"),
        ("2.4.8-int96", {"d": "0001-01-01", "t": "2024-01-01T00:00:00.000Z"}, None),
        ("2.4.0-int96", {"d": "0001-01-01"}, "column d"),
        ("3.0.3-int96-corrected", OLD, "column t"),
        ("3.5.9-micros-paris", OLD, "Europe/Paris"),
        ("3.5.9-micros-legacy", OLD, None),
        ("3.5.9-micros-corrected", OLD, None),
    ],
)
def test_plans_and_doctor_say_which_files_would_be_refused(
    tmp_path: Path, case: str, lows: Mapping[str, object], named: str | None
) -> None:
    table = table_of(tmp_path, case, lows)
    notes = table.plan().notes
    found = [one for one in table.doctor() if one.name == "refused-dates"]
    if named is None:
        assert (notes, found) == ((), [])
        return
    assert len(notes) == 2
    assert all("would refuse" in note and named in note for note in notes)
    assert [(one.files, one.command) for one in found] == [(2, None)]
    assert named in found[0].detail
    assert str(tmp_path / "a.parquet") in notes[0]


def test_what_a_rewrite_refuses_is_what_the_plan_said(tmp_path: Path) -> None:
    table = table_of(tmp_path, "3.5.9-micros-paris", OLD)
    before = table.snapshot().version
    with pytest.raises(LiquidlogError, match="Europe/Paris"):
        table.optimize(executor="local")
    assert table.snapshot().version == before


def test_a_rewrite_that_would_be_refused_is_not_worth_it(tmp_path: Path) -> None:
    often: dict[str, Any] = {"queries_per_day": 1e9, "payback_days": 3000.0}
    (tmp_path / "read").mkdir()
    assert table_of(tmp_path / "read", "3.5.9-micros-legacy", OLD).judge(**often).best is not None
    (tmp_path / "refused").mkdir()
    table = table_of(tmp_path / "refused", "3.5.9-micros-paris", OLD)
    judged = table.judge(**often)
    assert (judged.best, judged.answer) == (None, "leave")
    for words in ("a rewrite would refuse", "Europe/Paris", "and 1 more"):
        assert words in judged.sentence
    plan = table.plan()
    criteria = criteria_of(table.opened, **often)
    assert judge_plan(table.opened, plan, criteria).best is None
    unread = judge_plan(table.opened, plan, replace(criteria, reads_rows=False))
    assert unread.best is not None


# Every codec that a table may ask for is written by appends and rewrites, and read by others.


ROWS = pa.table({"a": range(3000), "b": [f"text {row % 40}" for row in range(3000)]})
FOOTER_NAMES = {"none": "UNCOMPRESSED", "lz4_raw": "LZ4"}


def codecs_of(table: Table) -> set[str]:
    """Return the codecs in the footers of the live files, as Arrow calls them."""
    found = set()
    for path in table.snapshot().files["path"].to_pylist():
        group = pq.read_metadata(f"{table.uri}/{path}").row_group(0)
        found |= {group.column(number).compression for number in range(group.num_columns)}
    return found


def made(path: Path, **properties: str) -> Table:
    return Table.create(str(path), schema=ROWS.schema, cluster_by=["a"], properties=properties)


@pytest.mark.parametrize("name", [*CODEC_NAMES[::2], *map(str.upper, CODEC_NAMES[1::2])])
def test_files_have_the_codec_that_the_table_asks_for(tmp_path: Path, name: str) -> None:
    created = made(tmp_path / "created", **{CODEC_PROPERTY: name})
    changed = made(tmp_path / "changed")
    changed.set_properties({CODEC_PROPERTY: name})
    for table in (created, changed):
        assert table.snapshot().metadata.configuration[CODEC_PROPERTY] == name
        for start in (0, 1500):
            table.append(ROWS.slice(start, 1500))
        expected = {FOOTER_NAMES.get(name.lower(), name.upper())}
        assert codecs_of(table) == expected
        plan = table.plan(full=True)
        assert plan.groups
        table.commit(plan, execute(plan))
        assert codecs_of(table) == expected
        theirs = pa.RecordBatchReader.from_stream(DeltaTable(table.uri).scan()).read_all()
        assert sorted(theirs.to_pylist(), key=lambda row: row["a"]) == ROWS.to_pylist()
        files = [f"{table.uri}/{path}" for path in table.snapshot().files["path"].to_pylist()]
        found = duckdb.execute("select * from read_parquet(?) order by a", [files]).fetchall()
        assert found == [tuple(row.values()) for row in ROWS.to_pylist()]


def test_a_table_that_asks_for_another_codec_is_not_written(tmp_path: Path) -> None:
    table = made(tmp_path / "t", **{CODEC_PROPERTY: "gzip"})
    log = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace('"gzip"', '"brotli"'))
    table = Table.open(str(tmp_path / "t"))
    with pytest.raises(UsageError) as caught:
        table.append(ROWS)
    assert caught.value.fields["compression"] == "brotli"
    assert not list((tmp_path / "t").glob("*.parquet"))
