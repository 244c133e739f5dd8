"""The executor's tasks without Spark: pieces are carried from map side to reduce side by hand."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from liquidlog.curve.curves import Curve
from liquidlog.data.reader import Located
from liquidlog.data.runs import Run
from liquidlog.plan import InputFile, WriterOptions
from liquidlog.rewriting.groups import compact_share, shares
from liquidlog.rewriting.inputs import Assignment, GroupWork, Survey, split_file, survey_file
from liquidlog.rewriting.outputs import TaskFacts, check_rows, decode_facts, merge_facts
from liquidlog.rewriting.shuffle import (
    OutputTasks,
    RegroupTasks,
    Route,
    SplitTasks,
    build_layout,
    first_ordinals,
    in_batches,
)
from liquidspark.executor import partition_values
from support.plans import rows_of, schema_json_of, write_inputs

ROWS = 3000
RUN = "0123456789ab"
SORTED = [("slice", "ascending"), ("ordinal", "ascending")]


def numbered(number: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_arrays([pa.array([number])], ["id"])]


def facts_of(batches: list[pa.RecordBatch]) -> TaskFacts:
    return merge_facts([decode_facts(row) for batch in batches for row in batch[0].to_pylist()])


def surveys_of(work: GroupWork, sample_rows: int = 500) -> list[Survey]:
    return [survey_file(work, file, sample_rows=sample_rows) for file in range(len(work.paths))]


def compacted(work: GroupWork, surveys: Sequence[Survey] | None = None) -> TaskFacts:
    """Compact a group as its tasks do, each sent its own inputs."""
    sent = shares(work, surveys_of(work) if surveys is None else surveys)
    return merge_facts([compact_share(work.without_inputs(), one) for one in sent])


def shuffled(
    work: GroupWork,
    *,
    sample_rows: int = 500,
    split_rows: int = 450,
    break_task: int | None = None,
    outputs_per_task: int = 1,
    in_two_steps: bool = False,
    reverse: bool = False,
) -> TaskFacts:
    surveys = surveys_of(work, sample_rows)
    layout = build_layout(work, surveys)
    splits = tuple(
        (split,)
        for survey, first in zip(surveys, first_ordinals(surveys), strict=True)
        for split in split_file(
            survey.file, survey.row_group_rows, first_ordinal=first, max_rows=split_rows
        )
    )
    route = Route(
        tasks=-(-work.outputs // outputs_per_task),
        outputs_per_task=outputs_per_task,
        slices_per_output=layout.slices_per_output,
        in_two_steps=in_two_steps,
    )
    targets = partition_values(route.tasks)
    if break_task is not None:
        Path(work.paths[splits[break_task][0].file]).unlink()
    sent = work.without_inputs()
    tasks = SplitTasks(work=sent, layout=layout, route=route, targets=targets)
    everything = range(len(work.paths))
    arrived = [
        batch
        for number, own in enumerate(splits)
        for batch in in_batches(tasks(number, Assignment.of(work, everything, own)))
    ]
    pieces = pa.Table.from_batches(arrived[:: -1 if reverse else 1])
    facts = []
    for target in targets:
        mine = pieces.filter(pa.compute.equal(pieces["target"], target))
        if in_two_steps:
            ordered = mine.sort_by(SORTED).to_batches(max_chunksize=2)
            mine = pa.Table.from_batches(RegroupTasks(work=sent)(ordered))
        # Spark sorts only where slices are many; otherwise pieces come in any order.
        order = [("ordinal", "descending")] if route.slices_per_task == 1 else SORTED
        arriving = mine.sort_by(order).to_batches(max_chunksize=2)
        facts.append(facts_of(list(OutputTasks(work=sent, route=route)(arriving))))
    return check_rows(merge_facts(facts), surveys)


def located(directory: Path, inputs: Iterable[InputFile]) -> tuple[Located, ...]:
    """Return inputs in a directory, whose vectors are in the log."""
    return tuple(Located(file, str(directory / file.path)) for file in inputs)


def make_work(
    directory: Path, *, outputs: int = 3, curve: Curve | None = Curve.HILBERT, slice_bytes: int
) -> GroupWork:
    """Return a group of ROWS made-up rows in four files, whose run has begun."""
    random = np.random.default_rng(5)
    table = pa.table(
        {
            "a": pa.array(random.integers(0, 5, ROWS), pa.int64()),
            "b": pa.array([f"name {i}" for i in random.integers(0, 400, ROWS)]),
            "row": pa.array(range(ROWS), pa.int64()),
        }
    )
    inputs = write_inputs(directory, table, 4, row_group_rows=200)
    Run(str(directory), RUN).begin()
    return GroupWork(
        directory=str(directory),
        inputs=located(directory, inputs),
        outputs=outputs,
        schema_string=schema_json_of({"a": "long", "b": "string", "row": "long"}),
        columns=(("b",), ("a",)) if curve is not None else (),
        curve=curve,
        writer_options=WriterOptions(indexed=(("a",), ("b",))),
        token=RUN,
        slice_bytes=slice_bytes,
    )


def check(work: GroupWork, facts: TaskFacts) -> list[pa.Table]:
    """Return the outputs, which must hold the rows of `make_work`."""
    assert facts.failure is None
    assert facts.read == facts.written
    assert facts.read is not None
    assert facts.read.rows == ROWS
    directory = Path(work.directory)
    tables = [pq.read_table(directory / output.path) for output in facts.outputs]
    assert [len(table) for table in tables] == [output.num_records for output in facts.outputs]
    assert rows_of(tables) == rows_of([pq.read_table(path) for path in work.paths])
    spent = structs.asdict(facts.costs)
    assert min(spent[f"{name}_seconds"] for name in ("map", "write", "verify")) > 0
    return tables


def in_order(tables: list[pa.Table]) -> list[pa.Table]:
    return sorted(tables, key=lambda table: table["row"][0].as_py())
