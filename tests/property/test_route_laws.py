"""Laws of the way that rows take to writing tasks: all outputs are written, no piece is tiny."""

from dataclasses import replace
from math import sqrt
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from liquidlog.curve.curves import Curve
from liquidlog.plan import WriterOptions
from liquidlog.rewriting.groups import GroupRun
from liquidlog.rewriting.layout import choose_route
from liquidlog.rewriting.options import DEFAULT_OPTIONS
from liquidlog.rewriting.source import ArrivingWork
from support.plans import make_plan, schema_json_of

MIB = 1 << 20
PIECE_BYTES = 24 << 10
COLUMN_BYTES = 256
RUN = "0123456789ab"


def work_of(*, columns: int, outputs: int, slice_bytes: int) -> ArrivingWork:
    return ArrivingWork(
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
