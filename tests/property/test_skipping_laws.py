"""No file that holds a row which a predicate is true for is skipped, in any session.

A session has ANSI mode on or off and some time zone; the truth is found row by row.
"""

import math
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import chain, count, pairwise
from pathlib import Path
from random import Random  # noqa: TID251  a test
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from liquidlog.data.checksum import multiset_checksum
from liquidlog.data.deleted_rows import SoughtRows
from liquidlog.data.encodings import aligned, concat, narrow_columns, widened
from liquidlog.data.reader import DataFile
from liquidlog.data.statistics import read_row_group_bounds
from liquidlog.errors import UsageError
from liquidlog.predicates.matching import every_row_matches, judged_or_refused
from liquidlog.predicates.workload import Session as Asking
from liquidlog.spec.bounds import has_bounds, parse_bounds
from liquidlog.spec.schema import MappingMode, leaves
from liquidlog.table import Table
from support.arrow_executor import write
from support.deleted import as_texts, layout_of, write_output
from support.effort import effort
from support.random_predicates import (
    Compare,
    Predicate,
    Session,
    Unjudged,
    is_true,
    random_predicate,
    sql,
)
from support.random_tables import (
    SPARK_TYPES,
    Row,
    flat_table,
    foreign_files,
    random_files,
    snapshot_of_rows,
)
from support.snapshots import bounds_of
from support.tables import tables

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


# What holds a row is admitted; little else is.


@given(table=tables(max_rows=10), data=st.data())
def test_files_and_row_groups_that_hold_a_row_are_admitted(
    table: pa.Table, data: st.DataObject
) -> None:
    rows = st.lists(st.integers(0, max(len(table) - 1, 0)), max_size=6 if len(table) else 0)
    wanted, held = (table.take(pa.array(data.draw(rows), pa.int64())) for _ in range(2))
    cuts = data.draw(st.lists(st.integers(0, 6), max_size=3))
    layout = layout_of(table.schema)
    bounded = [leaf for leaf in leaves(layout.schema) if has_bounds(leaf.data_type)]
    sought = SoughtRows.of(wanted, bounded)
    texts = set(as_texts(wanted))
    with TemporaryDirectory() as directory:
        output = write_output(Path(directory) / "o.parquet", held, layout, cuts=cuts)
        bounds = parse_bounds(pa.array([output.file.stats]), bounded)
        assert sought.admitted(bounds)[0] or not texts & set(as_texts(held))
        with DataFile.open(output.address, schema=layout.schema) as file:
            groups = read_row_group_bounds(
                file.parquet, schema=layout.schema, mapping=MappingMode.NONE, wanted=bounded
            )
            admitted = sought.admitted(groups)
            for number in range(file.num_row_groups):
                found = file.read(row_groups=[number])
                assert admitted[number] or not texts & set(as_texts(found))


numbers = st.integers(-20, 20)


@given(
    rows=st.lists(st.tuples(numbers | st.none(), numbers), max_size=8),
    boxes=st.lists(
        st.lists(st.tuples(numbers | st.none(), numbers), min_size=1, max_size=3), max_size=5
    ),
)
def test_boxes_are_admitted_that_reach_to_a_row_or_to_the_box_before_it(
    rows: list[tuple[int | None, int]], boxes: list[list[tuple[int | None, int]]]
) -> None:
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    layout = layout_of(schema)
    bounded = list(leaves(layout.schema))
    stats = [_stats(box) for box in boxes]
    bounds = parse_bounds(pa.array(stats, pa.string()), bounded)
    columns = list(zip(*rows, strict=True)) or [(), ()]
    table = pa.table([pa.array(column, pa.int64()) for column in columns], schema=schema)
    found = SoughtRows.of(table, bounded).admitted(bounds)
    edges = [sorted({edge for box in boxes for edge in _edges(box, axis)}) for axis in (0, 1)]
    for box, is_admitted in zip(boxes, found, strict=True):
        inside = [all(_holds(box, row, axis) for axis in (0, 1)) for row in rows]
        near = [all(_holds(box, row, axis, edges[axis]) for axis in (0, 1)) for row in rows]
        assert is_admitted >= any(inside)
        assert is_admitted <= any(near)
    assert found.dtype == np.bool_


def _edges(box: list[tuple[int | None, int]], axis: int) -> list[int]:
    values = [row[axis] for row in box]
    there = [value for value in values if value is not None]
    return [min(there), max(there)] if there else []


def _holds(
    box: list[tuple[int | None, int]],
    row: tuple[int | None, int],
    axis: int,
    edges: list[int] | None = None,
) -> bool:
    """Whether the value of a row is in a box, or, with edges, above the last edge before it."""
    value, values = row[axis], [one[axis] for one in box]
    if value is None:
        return None in values
    ends = _edges(box, axis)
    if not ends:
        return edges is not None  # a box of nulls has no ends, so any value is admitted
    low = ends[0]
    if edges is not None:
        low = max([edge for edge in edges if edge < low], default=-(10**9)) + 1
    return low <= value <= ends[1]


def _stats(box: list[tuple[int | None, int]]) -> str:
    import json

    names = "xy"
    ends = {name: _edges(box, axis) for axis, name in enumerate(names)}
    return json.dumps(
        {
            "numRecords": len(box),
            "minValues": {name: pair[0] for name, pair in ends.items() if pair},
            "maxValues": {name: pair[1] for name, pair in ends.items() if pair},
            "nullCount": {
                name: sum(row[axis] is None for row in box) for axis, name in enumerate(names)
            },
        }
    )


def narrowed(table: pa.Table) -> pa.Table:
    return pa.table(list(narrow_columns(table)), names=table.column_names)


# Laws of narrow columns: they hold what they held, come back as they were, and are never wider.


KINDS = pa.schema(
    [
        ("byte", pa.int8()),
        ("integer", pa.int32()),
        ("long", pa.int64()),
        ("date", pa.date32()),
        ("price", pa.decimal128(18, 2)),
        ("wide", pa.decimal128(38, 10)),
        ("text", pa.string()),
        ("moment", pa.timestamp("us", "UTC")),
        ("share", pa.float64()),
        ("inner", pa.struct([("x", pa.int64())])),
    ]
)


def integers(bits: int) -> st.SearchStrategy[int]:
    """Return integers of at most so many bits, as often small as large."""
    widths = st.integers(1, bits)
    return widths.flatmap(lambda w: st.integers(-(1 << (w - 1)), (1 << (w - 1)) - 1))


def cells(kind: pa.DataType) -> st.SearchStrategy[object]:
    if pa.types.is_decimal(kind):
        digits = integers(59 if kind.precision <= 18 else 120)
        return digits.map(lambda unscaled: Decimal(unscaled).scaleb(-kind.scale))
    if pa.types.is_string(kind):
        return st.sampled_from(["", "a", "b", "c" * 40])
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({"x": integers(64)})
    if pa.types.is_floating(kind):
        return st.floats()
    return integers(kind.bit_width)


def columns(kind: pa.DataType, rows: int) -> st.SearchStrategy[pa.Array]:
    stored = {pa.date32(): pa.int32(), pa.timestamp("us", "UTC"): pa.int64()}.get(kind, kind)
    values = st.lists(st.none() | cells(kind), min_size=rows, max_size=rows)
    return values.map(lambda found: pa.array(found, stored).cast(kind))


@st.composite
def tables_narrow_laws(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 6))
    arrays = [draw(columns(child.type, rows)) for child in KINDS]
    table = pa.table(arrays, schema=KINDS)
    if draw(st.booleans()):
        position = table.schema.get_field_index("text")
        encoded = table.column("text").dictionary_encode()
        table = table.set_column(position, "text", encoded)
    start = draw(st.integers(0, 2))
    return table.slice(start)


@given(tables_narrow_laws())
def test_widening_undoes_narrowing(table: pa.Table) -> None:
    narrow = narrowed(table)
    assert narrow.nbytes <= table.nbytes
    back = widened(narrow, KINDS)
    assert back.schema == table.schema
    assert multiset_checksum(back) == multiset_checksum(table)


@given(st.lists(tables_narrow_laws(), min_size=1, max_size=4))
def test_tables_of_different_widths_can_be_joined(pieces: list[pa.Table]) -> None:
    together = widened(concat(aligned([narrowed(piece) for piece in pieces], KINDS)), KINDS)
    assert multiset_checksum(together) == multiset_checksum(concat(pieces))


def test_every_width_is_left_at_its_edge() -> None:
    for bits in (8, 16, 32):
        edges = [-(1 << (bits - 1)), (1 << (bits - 1)) - 1]
        inside = pa.table({"long": pa.array([*edges, None], pa.int64())})
        assert narrowed(inside).schema.types[0].bit_width == bits
        for low, high in pairwise([edges[0] - 1, edges[1], edges[1] + 1]):
            outside = pa.table({"long": pa.array([low, high], pa.int64())})
            assert narrowed(outside).schema.types[0].bit_width > bits


def test_more_digits_than_the_type_has_are_kept() -> None:
    words = pa.array([1 << 40, 7], pa.int64())
    fat = pa.Array.from_buffers(pa.decimal128(15, 2), 1, [None, words.buffers()[1]])
    table = pa.table({"price": fat})
    assert multiset_checksum(narrowed(table)) == multiset_checksum(table)


def test_tables_that_differ_stay_as_narrow_as_the_widest() -> None:
    kinds = pa.schema([("price", pa.decimal128(18, 2))])
    few = pa.table({"price": pa.array([Decimal(1), None], pa.decimal128(18, 2))})
    many = pa.table({"price": pa.array([Decimal(300), Decimal(2)], pa.decimal128(18, 2))})
    found = aligned([narrowed(few), narrowed(many)], kinds)
    assert [table.schema.types for table in found] == [[pa.int16()]] * 2
    assert widened(concat(found), kinds).equals(concat([few, many]))
