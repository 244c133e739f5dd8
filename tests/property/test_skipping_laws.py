"""No file that holds a row which a predicate is true for is skipped, in any session.

A session has ANSI mode on or off and some time zone; the truth is found row by row.
"""

import math
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain, count
from pathlib import Path
from random import Random  # noqa: TID251  a test
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from liquidlog.errors import UsageError
from liquidlog.predicates.literals import Session as Asking
from liquidlog.predicates.matching import every_row_matches, judged_or_refused
from liquidlog.table import Table
from support.arrow_executor import write
from support.effort import effort
from support.random_predicates import Compare, Predicate, random_predicate, sql
from support.random_tables import SPARK_TYPES, Row, random_files
from support.skipping import flat_table, foreign_files, snapshot_of_rows
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


def written_by_append(uri: Path, rows: pa.Table) -> None:
    table = Table.open(uri) if uri.exists() else Table.create(uri, schema=rows.schema)
    table.append(rows)


def written_by_delta_rs(uri: Path, rows: pa.Table) -> None:
    write_deltalake(uri, rows, mode="append")


def column(uri: Path, paths: Sequence[str], name: str) -> list[list[int]]:
    """Return the values of a column in some files of a table."""
    return [pq.ParquetFile(uri / path).read([name])[name].to_pylist() for path in paths]


@pytest.mark.parametrize("write_rows", [written_by_append, written_by_delta_rs])
def test_an_overwrite_leaves_the_rows_of_which_its_condition_is_not_true(
    tmp_path: Path, write_rows: Callable[[Path, pa.Table], None]
) -> None:
    judged = 0
    for seed in count():
        random = Random(f"{write_rows.__name__} {seed}")
        files = foreign_files(seed, 6)
        origin = tmp_path / f"origin{seed}"
        for number, rows in enumerate(files):
            write_rows(origin, flat_table(number, rows))
        columns = [name for name in SPARK_TYPES if "." not in name and name != "c"]
        for _ in range(effort(12, 100)):
            predicate = random_predicate(random, columns, raw=False, nulls=0.1)
            judged += overwritten_rightly(origin, tmp_path / "copy", predicate, files)
        if judged >= effort(20, 1_500):
            return


def overwritten_rightly(
    origin: Path, uri: Path, predicate: Predicate, files: Sequence[Sequence[Row]]
) -> bool:
    """Overwrite with no rows on a copy of a table; return whether the condition can be judged."""
    session = Session(ansi=True)
    try:
        stay = [[not is_true(predicate, row, session) for row in rows] for rows in files]
    except Unjudged:
        return False
    shutil.copytree(origin, uri)
    table = Table.open(uri)
    try:
        plan = table.plan_write(table.snapshot().schema, cluster=False, where=sql(predicate))
    except UsageError:
        check_refused(predicate, files)
        shutil.rmtree(uri)
        return False
    numbers = [file[0] for file in column(uri, [one.path for one in plan.rewritten], "file")]
    kept = [flat_table(number, files[number]).filter(pa.array(stay[number])) for number in numbers]
    empty = flat_table(0, files[0]).slice(0, 0)
    table.commit_write(plan, write(plan, pa.concat_tables([empty, *kept])))
    left = Counter(chain(*column(uri, table.files()["path"].to_pylist(), "file")))
    expected = Counter({number: sum(rows) for number, rows in enumerate(stay)})
    assert +left == +expected, (sql(predicate), numbers)
    shutil.rmtree(uri)
    return True


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
