"""No file that holds a row which a predicate is true for is skipped, in any session.

A session has ANSI mode on or off and some time zone; the truth is found row by row.
"""

import math
from collections.abc import Sequence
from random import Random  # noqa: TID251  a test
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liquidlog.errors import UsageError
from liquidlog.predicates.matching import every_row_matches, judged_or_refused
from liquidlog.predicates.sessions import Session as Asking
from support.effort import effort
from support.random_predicates import Compare, Predicate, random_predicate, sql
from support.random_tables import SPARK_TYPES, Row, random_files
from support.skipping import snapshot_of_rows
from support.snapshots import bounds_of
from support.spark_truth import Session, Unjudged, is_true

ZONES = ("UTC", "America/New_York", "Pacific/Kiritimati", "Asia/Kolkata", "Pacific/Apia")
SESSIONS = [Session(ansi=ansi, zone=zone) for ansi in (True, False) for zone in ZONES]
PREDICATES = 40
FLOATS = ("f", "d", "st.q.r")


def matching(predicate: Predicate, files: Sequence[Sequence[Row]], session: Session) -> list[bool]:
    """Return which files hold a row that satisfies the predicate, no file where none can say."""
    try:
        return [any(is_true(predicate, row, session) for row in rows) for rows in files]
    except Unjudged:
        return [False] * len(files)


def check_refused(predicate: Predicate, files: Sequence[Sequence[Row]]) -> None:
    """Check that no session finds a row by a comparison that is refused."""
    # With ANSI mode off, a text that is no number is null, which is <=> to nulls.
    if isinstance(predicate, Compare) and predicate.operator != "<=>":
        found = [any(matching(predicate, files, session)) for session in SESSIONS]
        assert not any(found), sql(predicate)


@settings(max_examples=effort(12, 600))
@given(st.integers(0, 2**32))
def test_no_file_with_a_matching_row_is_skipped_in_any_session(seed: int) -> None:
    random = Random(seed)
    files = random_files(random, 6)
    snapshot = snapshot_of_rows(files)
    predicates = [random_predicate(random) for _ in range(PREDICATES)]
    texts = [sql(predicate) for predicate in predicates]
    kept = judged_or_refused(snapshot, texts, bounds_of(snapshot), Asking())
    for predicate, judged in zip(predicates, kept, strict=True):
        if isinstance(judged, UsageError):
            check_refused(predicate, files)
            continue
        mask = judged.may_match
        for session in SESSIONS:
            found = matching(predicate, files, session)
            skipped = [n for n, here in enumerate(found) if here and not mask[n].as_py()]
            assert not skipped, (sql(predicate), session, [files[n] for n in skipped])


def with_nan(random: Random, rows: Sequence[Row]) -> list[Row]:
    """Return the rows with NaN in place of some floats."""
    chosen = [name for name in FLOATS if random.random() < 0.4]
    return [{**row, **{name: math.nan for name in chosen if random.random() < 0.3}} for row in rows]


@settings(max_examples=effort(20, 1_000))
@given(st.integers(0, 2**32))
def test_rows_are_replaced_by_their_truth_whoever_wrote_the_statistics(seed: int) -> None:
    random = Random(seed)
    files = [with_nan(random, rows) for rows in random_files(random, 6)]
    snapshot = snapshot_of_rows(files, without_nan=True)
    columns = random.choice([tuple(SPARK_TYPES), FLOATS, FLOATS])
    predicates = [random_predicate(random, columns, nulls=0.1) for _ in range(PREDICATES)]
    changing = Asking(for_rows=True)
    for predicate in predicates:
        text = sql(predicate)
        (judged,) = judged_or_refused(snapshot, [text], bounds_of(snapshot), changing)
        if isinstance(judged, UsageError):
            continue
        whole = every_row_matches(snapshot, text, bounds_of(snapshot), changing)
        for session in SESSIONS:
            try:
                truth = [[is_true(predicate, row, session) for row in rows] for rows in files]
            except Unjudged:
                break
            for number, found in enumerate(truth):
                assert judged.may_match[number].as_py() or not any(found), (text, session)
                assert not whole[number] or all(found), (text, session, files[number])


@pytest.mark.parametrize("zone", ZONES)
def test_a_known_time_zone_skips_no_file_with_a_matching_row(zone: str) -> None:
    for seed in range(effort(3, 400)):
        random = Random(seed)
        files = random_files(random, 6)
        snapshot = snapshot_of_rows(files)
        predicates = [random_predicate(random, ("t", "z", "day")) for _ in range(PREDICATES)]
        texts = [sql(predicate) for predicate in predicates]
        asking = Asking(time_zone=ZoneInfo(zone))
        kept = judged_or_refused(snapshot, texts, bounds_of(snapshot), asking)
        for predicate, judged in zip(predicates, kept, strict=True):
            if isinstance(judged, UsageError):
                check_refused(predicate, files)
                continue
            mask = judged.may_match
            for ansi in (True, False):
                found = matching(predicate, files, Session(ansi=ansi, zone=zone))
                assert not [n for n, here in enumerate(found) if here and not mask[n].as_py()]
