import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from msgspec import structs

from liquidlog.clustering.health import KeySpace, key_space
from liquidlog.curve.curves import Curve, coordinate_ends, curve_index
from liquidlog.curve.layouts import Boxes, CurveRows, fit_boxes
from liquidlog.plan import WriterOptions
from liquidlog.rewriting.groups import GroupRun
from liquidlog.rewriting.inputs import DEFAULT_OPTIONS, WritingWork
from liquidlog.rewriting.shuffle import choose_route
from liquidlog.spec.bounds import Bounds, ColumnBounds
from support.curves import hilbert_point, linear_point, ordinals_of, zorder_point
from support.plans import make_plan, schema_json_of

INVERSES = {
    Curve.HILBERT: hilbert_point,
    Curve.ZORDER: zorder_point,
    Curve.LINEAR: linear_point,
    Curve.KD: hilbert_point,
}
grids = st.integers(1, 9).flatmap(
    lambda d: st.integers(1, min(32, 64 // d)).flatmap(
        lambda bits: st.tuples(
            st.just(bits),
            st.lists(
                st.lists(st.integers(0, (1 << bits) - 1), min_size=d, max_size=d),
                min_size=1,
                max_size=20,
            ),
        )
    )
)


@pytest.mark.parametrize("curve", Curve)
@given(grid=grids)
def test_point_inverts_index(curve: Curve, grid: tuple[int, list[list[int]]]) -> None:
    bits, rows = grid
    coords = np.array(rows, np.uint32)
    keys = curve_index(coords, bits, curve)
    assert keys.dtype == np.uint64
    found = INVERSES[curve](keys, dimensions=coords.shape[1], bits=bits)
    assert (found == coords).all()


# Laws of balanced k-d cuts.


BITS = 10
few_values = st.integers(0, 3).map(lambda value: value * 300)
coordinates = arrays.arrays(
    np.uint32,
    st.tuples(st.integers(0, 120), st.integers(1, 4)),
    elements=few_values | st.integers(0, (1 << BITS) - 1),
)


@given(coords=coordinates, parts=st.integers(1, 20))
def test_inside_a_box_keys_are_in_hilbert_order(coords: np.ndarray, parts: int) -> None:
    boxes, _, _ = fit_boxes(CurveRows.of(coords, ordinals_of(coords), BITS), parts)
    assert isinstance(boxes, Boxes)
    keys = boxes.keys_of(coords)
    shift = np.uint64(BITS * coords.shape[1])
    numbers = keys >> shift
    assert (numbers == boxes.numbers_of(coords).astype(np.uint64)).all()
    ends = coordinate_ends(coords, BITS)
    for number in np.unique(numbers):
        members = numbers == number
        lows, highs = coords[members].min(axis=0), ends[members].max(axis=0)
        inside = (coords[members] - lows) * ((1 << BITS) / (highs - lows.astype(np.float64)))
        along = curve_index(inside.astype(np.uint32), BITS, Curve.HILBERT)
        assert (keys[members] == number << shift | along).all()


@given(coords=coordinates, others=coordinates, parts=st.integers(1, 20))
def test_other_rows_stay_in_their_box(coords: np.ndarray, others: np.ndarray, parts: int) -> None:
    others = np.resize(others, (len(others), coords.shape[1]))
    boxes, _, _ = fit_boxes(CurveRows.of(coords, ordinals_of(coords), BITS), parts)
    assert isinstance(boxes, Boxes)
    numbers = boxes.keys_of(others) >> np.uint64(BITS * coords.shape[1])
    assert numbers.tolist() == boxes.numbers_of(others).tolist()


@given(coords=coordinates, parts=st.integers(1, 20))
def test_boxes_do_not_share_a_point(coords: np.ndarray, parts: int) -> None:
    boxes, _, _ = fit_boxes(CurveRows.of(coords, ordinals_of(coords), BITS), parts)
    numbers = boxes.keys_of(coords) >> np.uint64(BITS * coords.shape[1])
    ranges = [
        (coords[numbers == box].min(axis=0), coords[numbers == box].max(axis=0))
        for box in np.unique(numbers)
    ]
    for index, (low, high) in enumerate(ranges):
        for other_low, other_high in ranges[:index]:
            assert (np.maximum(low, other_low) > np.minimum(high, other_high)).any()


# Laws of key space: widths are shares of the table, whatever the type of the column.


RECORDS = 10
_ends = st.none() | st.tuples(st.integers(-50, 50), st.integers(0, 40))
_files = st.lists(st.tuples(_ends, st.integers(1, 10**6), st.booleans()), min_size=1, max_size=12)
TYPES: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "int": (pa.int64(), lambda n: n),
    "float": (pa.float64(), lambda n: n / 3),
    "date": (pa.date32(), lambda n: dt.date(2000, 1, 1) + dt.timedelta(days=n)),
    "time": (pa.timestamp("us", "UTC"), lambda n: dt.datetime.fromtimestamp(10**6 + n, dt.UTC)),
    "text": (pa.string(), lambda n: f"{n + 100:04d}"),
    "decimal": (pa.decimal128(9, 2), Decimal),
}


def space_of(files: list[Any], kind: str) -> KeySpace:
    wanted, value = TYPES[kind]
    low = [None if ends is None else value(ends[0]) for ends, _, _ in files]
    high = [None if ends is None else value(ends[0] + ends[1]) for ends, _, _ in files]
    nulls = [RECORDS if ends is None and empty else 0 for ends, _, empty in files]
    column = ColumnBounds(
        low=pa.array(low, wanted), high=pa.array(high, wanted), null_count=pa.array(nulls)
    )
    bounds = Bounds(columns=(column,), num_records=pa.array([RECORDS] * len(files)))
    return key_space(bounds, np.array([size for _, size, _ in files]))


@given(files=_files, kind=st.sampled_from(sorted(TYPES)))
def test_ranges_keep_their_order_and_hold_their_bytes(files: list[Any], kind: str) -> None:
    spans = space_of(files, kind).columns[0]
    total = sum(size for ends, size, _ in files if ends is not None)
    for number, (ends, size, empty) in enumerate(files):
        if ends is None:
            assert spans.width[number] == (0.0 if empty else 1.0)
            continue
        assert size / total - 1e-9 <= spans.width[number] <= 1 + 1e-9
        for other, (others, _, _) in enumerate(files):
            if others is None:
                continue
            if others[0] + others[1] < ends[0]:
                assert spans.high[other] <= spans.low[number] + 1e-12
            if others[0] <= ends[0] and ends[0] + ends[1] <= others[0] + others[1]:
                assert spans.width[other] >= spans.width[number] - 1e-12
                assert spans.low[other] <= spans.low[number] + 1e-12


@given(files=_files, kind=st.sampled_from(sorted(TYPES)))
def test_all_files_span_everything_and_depth_counts_who_shares_it(
    files: list[Any], kind: str
) -> None:
    space = space_of(files, kind)
    known = np.array([ends is not None for ends, _, _ in files])
    if known.any():
        assert space.extent(known) == pytest.approx(1.0)
    blind = sum(ends is None and not empty for ends, _, empty in files)
    depth = space.columns[0].mean_depth
    for number in np.flatnonzero(known):
        ends = files[number][0]
        meeting = [
            other
            for other in np.flatnonzero(known)
            if files[other][0][0] <= ends[0] + ends[1]
            and ends[0] <= files[other][0][0] + files[other][0][1]
        ]
        assert 1 + blind - 1e-9 <= depth[number] <= len(meeting) + blind + 1e-9


@pytest.mark.parametrize("kind", sorted(set(TYPES) - {"text"}))
def test_a_few_wide_files_are_all_nearly_as_wide_as_the_table(kind: str) -> None:
    files = [((number, 90 - 2 * number), 100, False) for number in range(4)]
    space = space_of(files, kind)
    assert space.columns[0].width.min() > 0.9
    assert space.columns[0].mean_depth.min() > 3.8


def test_one_far_away_value_does_not_hide_how_the_others_lie() -> None:
    files = [((10 * number, 9), 100, False) for number in range(5)]
    files.append(((0, 10**15), 100, False))
    widths = space_of(files, "int").columns[0].width
    assert widths[:5] == pytest.approx([1 / 6] * 5, abs=0.02)
    assert widths[5] == pytest.approx(1.0)


# Laws of the way that rows take to writing tasks: all outputs are written, no piece is tiny.


MIB = 1 << 20
PIECE_BYTES = 24 << 10
COLUMN_BYTES = 256
RUN = "0123456789ab"


def work_of(*, columns: int, outputs: int, slice_bytes: int) -> WritingWork:
    return WritingWork(
        directory="",
        outputs=outputs,
        schema_string=schema_json_of({f"c{number}": "long" for number in range(columns)}),
        columns=(("c0",),),
        curve=Curve.HILBERT,
        writer_options=WriterOptions(indexed=()),
        token=RUN,
        slice_bytes=slice_bytes,
    )


@given(
    columns=st.sampled_from([1, 96, 97, 2000]),
    outputs=st.integers(1, 100_000),
    slices=st.integers(1, 1000),
    slice_bytes=st.sampled_from([1, MIB, 32 * MIB]),
)
def test_every_output_is_written_and_pieces_are_worth_it(
    columns: int, outputs: int, slices: int, slice_bytes: int
) -> None:
    work = work_of(columns=columns, outputs=outputs, slice_bytes=slice_bytes)
    route = choose_route(work, slices_per_output=slices)
    piece_bytes = max(PIECE_BYTES, columns * COLUMN_BYTES)
    total = outputs * slices
    assert route.slices_per_output == slices
    assert (route.tasks - 1) * route.outputs_per_task < outputs
    assert outputs <= route.tasks * route.outputs_per_task
    sent_to = route.tasks if route.in_two_steps else total
    enough = min(piece_bytes, slice_bytes / sqrt(total))
    assert slice_bytes / sent_to >= enough or sent_to == 1
    if route.in_two_steps:
        assert total * piece_bytes > slice_bytes
        assert route.slices_per_task > 1


def test_slices_do_not_grow_with_the_group(tmp_path: Path) -> None:
    for gib in (1, 150, 1024):
        plan = make_plan(tmp_path, schema_json_of({"a": "long"}), [((), gib)], columns=[("a",)])
        group = structs.replace(plan.groups[0], expected_outputs=gib)
        work = GroupRun(plan=plan, group=group).work()
        assert work.slice_bytes == DEFAULT_OPTIONS.slice_bytes
        assert choose_route(replace(work, outputs=gib), slices_per_output=32).tasks == gib
