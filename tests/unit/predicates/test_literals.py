"""Literals as engines and logs write them: time zones by name, quotes inside texts."""

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from liquidlog.predicates.literals import ANY_SESSION, Moment, moment_text
from liquidlog.predicates.matching import judged_each
from liquidlog.spec.schema import PrimitiveType, StructField, StructType
from liquidlog.workload.catalyst import sql_literal
from support.snapshots import FileSpec, bounds_of, snapshot_of

# What Spark 4.2 makes of these texts, in seconds since 1970: `unix_timestamp(timestamp'...')`.
ZONED = {
    "2024-02-01 09:00:00 UTC": 1706778000,
    "2024-02-01 09:00:00UTC": 1706778000,
    "2024-02-01 09:00:00  UTC": 1706778000,
    "2024-02-01T09:00:00 UTC": 1706778000,
    "2024-02-01 09:00:00 GMT": 1706778000,
    "2024-02-01 09:00:00 UT": 1706778000,
    "2024-02-01 09:00:00 Z": 1706778000,
    "2024-02-01 09:00:00 +01:00": 1706774400,
    "2024-02-01 09:00:00 Europe/Berlin": 1706774400,
    "2024-02-01 09:00:00Europe/Berlin": 1706774400,
    "2024-10-27 02:30:00 Europe/Berlin": 1729989000,
    "2024-03-31 02:30:00 Europe/Berlin": 1711848600,
}


@pytest.mark.parametrize("text", ZONED)
def test_times_with_zones_are_the_instants_that_spark_reads(text: str) -> None:
    moment = moment_text(text, is_local=False)
    assert moment is not None
    assert moment.offset_us is not None
    assert moment.written_us - moment.offset_us == ZONED[text] * 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        "2024-02-01 09:00:00 utc",
        "2024-02-01 09:00:00 EST",
        "2024-02-01 09:00:00 europe/berlin",
        "2024-02-01 09:00:00 Mars/Base",
        "2024-02-01 09:00:00 ../../etc/passwd",
        "2024-02-01 UTC",
        "1900-02-01 09:00:00 Europe/Berlin",
        "2090-02-01 09:00:00 Europe/Berlin",
    ],
)
def test_other_zones_are_unknown(text: str) -> None:
    assert moment_text(text, is_local=False) is None


def test_a_region_has_the_offset_of_its_clocks() -> None:
    for month in range(1, 13):
        written = dt.datetime(2025, month, 15, 12, 0, tzinfo=ZoneInfo("America/New_York"))
        found = moment_text(f"{written:%Y-%m-%d %H:%M:%S} America/New_York", is_local=False)
        assert isinstance(found, Moment)
        assert found.offset_us is not None
        assert found.written_us - found.offset_us == round(written.timestamp() * 1e6)


def _kept(column: str, value: object, where: str) -> tuple[bool, tuple[str, ...]]:
    schema = StructType((StructField("x", PrimitiveType(column)),))
    file = FileSpec(path="1", bounds={"x": (value, value)}, nulls={"x": 0})
    snapshot = snapshot_of([file], schema=schema, cluster_by=None)
    (found,) = judged_each(snapshot, [where], bounds_of(snapshot), ANY_SESSION)
    return bool(found.may_match[0].as_py()), found.cannot_prune


def test_times_as_event_logs_give_them_prune() -> None:
    literal = sql_literal("2024-02-01T09:00:00Z", "timestamp")
    assert _kept("timestamp", "2024-02-01T08:59:59.000Z", f"x >= {literal}") == (False, ())
    assert _kept("timestamp", "2024-02-01T09:00:00.000Z", f"x >= {literal}") == (True, ())


@pytest.mark.parametrize("kept", ["it's", "its"])
def test_a_doubled_quote_is_a_quote_or_nothing(kept: str) -> None:
    assert _kept("string", kept, "x = 'it''s'") == (True, ())
    assert _kept("string", kept, "x IN ('it''s', 'a')") == (True, ())


@pytest.mark.parametrize("other", ["it", "itt", "it ", "j"])
def test_a_text_with_a_doubled_quote_prunes(other: str) -> None:
    assert _kept("string", other, "x = 'it''s'") == (False, ())


def test_every_reading_of_many_quotes_is_kept() -> None:
    for value in ("a' b'", "a b'", "a' b", "a b"):
        assert _kept("string", value, "x = 'a'' b'''")[0]
    assert _kept("string", "z", "x = 'a''b''c''d''e''f'")[0]


def test_a_called_concat_is_no_literal() -> None:
    assert _kept("string", "z", "x = concat('it', 's')")[0]
