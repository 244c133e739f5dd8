"""One worker's share of a group of any size, without Spark: how much memory does each step take?

A group lists the same few files as often as its size asks for. Its layout is made as ever. Then
three processes, one after another, do what Python workers do: one reads the files once and divides
their rows, as a reading task does; one gets what the largest writing task gets of that, as often as
the files are listed, and puts it together by slice; one writes its outputs. Between them pieces lie
in a file, which stands for Spark's shuffle and its sort.
"""

import os
import pickle
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from bench_memory import high_water_bytes

from liquidlog.data.encodings import decode_table
from liquidlog.plan import ClusteringPlan
from liquidlog.rewriting.groups import GroupRun
from liquidlog.rewriting.inputs import (
    Assignment,
    ExecutorOptions,
    GroupWork,
    Survey,
    split_file,
    survey_file,
)
from liquidlog.rewriting.outputs import decode_facts, merge_facts
from liquidlog.rewriting.shuffle import (
    NOTES,
    SLICE_COLUMN,
    Layout,
    OutputTasks,
    Piece,
    RegroupTasks,
    Route,
    SplitTasks,
    build_layout,
    choose_route,
    first_ordinals,
    in_batches,
    pieces_of,
    received,
)
from liquidspark.executor import partition_values, prepare_worker

MIB = 1 << 20
LIMIT_BYTES = 192 * MIB
WHOLE_SLICES = 4
BATCH_PIECES, BATCH_BYTES = 64, 64 * MIB  # as Spark makes them, see `piece_settings`


class Stored(NamedTuple):
    """A piece whose payload lies in a file."""

    target: int
    slice: int
    ordinal: int
    start: int
    size_bytes: int


@dataclass(frozen=True)
class Share:
    """What the processes tell each other: the group, and the pieces of one writing task."""

    work: GroupWork
    layout: Layout
    route: Route
    rows: int
    copies: int
    pieces: tuple[Stored, ...] = ()


def simulate(
    plan: ClusteringPlan, home: Path, *, size_bytes: int, slice_bytes: int
) -> dict[str, Any]:
    """Return what a group of this size, of the files of the plan's first group, asks of workers."""
    options = ExecutorOptions(slice_bytes=slice_bytes)
    run = GroupRun(plan=plan, group=plan.groups[0], options=options)
    run.run.begin()
    try:
        return measured(prepared(run.work(), plan, size_bytes=size_bytes), home)
    finally:
        run.discard()


def measured(share: Share, home: Path) -> dict[str, Any]:
    route, facts = share.route, {}
    found = {
        "GiB": round(share.work.size_bytes * share.copies / 2**30),
        "columns": len(share.work.schema.fields),
        "slice MiB": share.work.slice_bytes >> 20,
        "slices": share.work.outputs * route.slices_per_output,
        "writing tasks": route.tasks,
        "two steps": route.in_two_steps,
    }
    for step in STEPS:
        (home / "share").write_bytes(pickle.dumps(share))
        subprocess.run([sys.executable, __file__, step, home], check=True)
        share, facts = pickle.loads((home / "done").read_bytes())  # noqa: S301  our own
        if step != "gather" and (step != "regroup" or share.route.in_two_steps):
            found |= {f"{step} {name}": value for name, value in facts.items()}
    return found


def prepared(work: GroupWork, plan: ClusteringPlan, *, size_bytes: int) -> Share:
    copies = max(1, round(size_bytes / work.size_bytes))
    outputs = max(1, work.size_bytes * copies // plan.policy.max_file_bytes)
    sample_rows = ExecutorOptions().sample_rows_of(outputs)
    count = len(work.paths)
    surveys = [survey_file(work, file, sample_rows=sample_rows // count) for file in range(count)]
    rows = sum(survey.num_rows for survey in surveys)
    work = replace(work, inputs=work.inputs * copies, outputs=outputs)
    listed = [part_of(survey, copy, copies) for copy in range(copies) for survey in surveys]
    layout = build_layout(work, listed)
    route = choose_route(work, slices_per_output=layout.slices_per_output)
    few = replace(work, inputs=work.inputs[:count])
    return Share(few, layout, route, rows, copies)


def part_of(survey: Survey, copy: int, copies: int) -> Survey:
    mine = slice(copy, None, copies)
    columns = tuple(column[mine] for column in survey.columns)
    return replace(
        survey, rows=survey.rows[mine], columns=columns, row_bytes=survey.row_bytes[mine]
    )


def read(share: Share, home: Path) -> Share:
    work, targets = share.work, partition_values(share.route.tasks)
    surveys = [survey_file(work, file, sample_rows=0) for file in range(len(work.paths))]
    splits = tuple(
        split
        for survey, first in zip(surveys, first_ordinals(surveys), strict=True)
        for split in split_file(
            survey.file, survey.row_group_rows, first_ordinal=first, max_rows=survey.num_rows
        )
    )
    tasks = SplitTasks(
        work=work.without_inputs(), layout=share.layout, route=share.route, targets=targets
    )
    assignment = Assignment.of(work, range(len(work.paths)), splits)
    with (home / "pieces").open("wb") as file:
        pieces = stored(tasks(0, assignment), file)
    sent: Counter[int] = Counter()
    for piece in pieces:
        sent[piece.target] += piece.size_bytes
    ((target, _),) = sent.most_common(1)
    mine = [piece for piece in pieces if piece.target == target and piece.slice != NOTES]
    return replace(share, pieces=tuple(sorted(mine, key=attrgetter("slice", "ordinal"))))


def regroup(share: Share, home: Path) -> Share:
    """Put pieces together, which are not needed any more: only what it takes counts."""
    if share.route.in_two_steps:
        tasks = RegroupTasks(work=share.work.without_inputs())
        copies = -(-LIMIT_BYTES // sum(piece.size_bytes for piece in share.pieces))
        with (home / "pieces").open("rb") as file:
            for _ in tasks(arriving(repeated(share, min(copies, share.copies)), file)):
                pass
    return share


def gather(share: Share, home: Path) -> Share:
    """Return the share with all pieces of the first slices only."""
    first = min(piece.slice for piece in share.pieces)
    if not share.route.in_two_steps:
        mine = tuple(piece for piece in share.pieces if piece.slice < first + WHOLE_SLICES)
        return replace(share, pieces=repeated(share, share.copies, mine))
    few, few_share = [], min(1.0, WHOLE_SLICES / share.route.slices_per_task)
    with (home / "pieces").open("rb") as file, (home / "few").open("wb") as to:
        for batch in arriving(share.pieces, file):
            for piece in received([batch]):
                rows = decode_table(piece.payload)
                rows = rows.filter(pc.less(rows[SLICE_COLUMN], first + WHOLE_SLICES))
                few += stored(
                    pieces_of(rows, target=0, first_slice=first, ordinal=piece.ordinal), to
                )
    # As many pieces per slice as if there were all slices.
    work = replace(share.work, slice_bytes=int(share.work.slice_bytes * few_share))
    with (home / "few").open("rb") as file, (home / "pieces").open("wb") as to:
        tasks = RegroupTasks(work=work.without_inputs())
        pieces = stored(
            received(tasks(arriving(repeated(share, share.copies, tuple(few)), file))), to
        )
    kept = [piece for piece in pieces if piece.slice != NOTES]
    return replace(share, pieces=tuple(sorted(kept, key=attrgetter("slice", "ordinal"))))


def repeated(
    share: Share, copies: int, pieces: tuple[Stored, ...] | None = None
) -> tuple[Stored, ...]:
    listed = [
        piece._replace(ordinal=piece.ordinal + copy * share.rows)
        for copy in range(copies)
        for piece in (share.pieces if pieces is None else pieces)
    ]
    return tuple(sorted(listed, key=attrgetter("slice", "ordinal")))


def write(share: Share, home: Path) -> Share:
    with (home / "pieces").open("rb") as file:
        tasks = OutputTasks(work=share.work.without_inputs(), route=share.route)
        (batch,) = tasks(arriving(share.pieces, file))
    facts = merge_facts([decode_facts(row) for row in batch[0].to_pylist()])
    if facts.failure is not None:
        sys.exit(facts.failure)
    return share


def stored(pieces: Iterator[Piece], file: IO[bytes]) -> list[Stored]:
    found = []
    for piece in pieces:
        found.append(Stored(*piece[:3], file.tell(), len(piece.payload)))
        file.write(piece.payload)
    return found


def arriving(pieces: tuple[Stored, ...], file: IO[bytes]) -> Iterator[pa.RecordBatch]:
    """Yield pieces from a file in batches like Spark's."""
    waiting: list[Piece] = []
    waiting_bytes = 0
    for piece in pieces:
        waiting.append(Piece(*piece[:3], os.pread(file.fileno(), piece.size_bytes, piece.start)))
        waiting_bytes += piece.size_bytes
        if len(waiting) == BATCH_PIECES or waiting_bytes >= BATCH_BYTES:
            batch, waiting, waiting_bytes = list(in_batches(iter(waiting))), [], 0
            yield from emptied(batch)
    yield from in_batches(iter(waiting))


def emptied(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    while batches:
        yield batches.pop(0)


STEPS = {"read": read, "regroup": regroup, "gather": gather, "write": write}


def main() -> None:
    step, home = sys.argv[1], Path(sys.argv[2])
    share = pickle.loads((home / "share").read_bytes())  # noqa: S301  our own
    before = high_water_bytes(os.getpid())
    prepare_worker()
    started = time.process_time()
    done = STEPS[step](share, home)
    facts = {
        "MiB": high_water_bytes(os.getpid()) // MIB,
        "MiB before": before // MIB,
        "CPU s": round(time.process_time() - started, 1),
        "pieces": len(done.pieces),
        "MB": round(sum(piece.size_bytes for piece in done.pieces) / 1e6, 1),
    }
    (home / "done").write_bytes(pickle.dumps((done, facts)))


if __name__ == "__main__":
    # What is pickled must have the same name in every process.
    import large_group

    large_group.main()
