"""The executor's tasks without Spark: pieces are carried from map side to reduce side by hand."""

from pathlib import Path

import pyarrow as pa

from liquidspark.assignment import Assignment, partition_values
from liquidspark.layout import build_layout, first_ordinals
from liquidspark.shuffle import OutputTasks, SplitTasks
from liquidspark.sink import TaskFacts, check_rows, decode_facts, merge_facts
from liquidspark.source import GroupWork, Survey, split_file, survey_file


def numbered(number: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_arrays([pa.array([number])], ["id"])]


def facts_of(batches: list[pa.RecordBatch]) -> TaskFacts:
    return merge_facts([decode_facts(row) for batch in batches for row in batch[0].to_pylist()])


def surveys_of(work: GroupWork, sample_rows: int = 500) -> list[Survey]:
    return [survey_file(work, file, sample_rows=sample_rows) for file in range(len(work.paths))]


def shuffled(
    work: GroupWork,
    *,
    sample_rows: int = 500,
    split_rows: int = 450,
    break_task: int | None = None,
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
    targets = partition_values(work.outputs)
    if break_task is not None:
        Path(work.paths[splits[break_task][0].file]).unlink()
    tasks = SplitTasks(work=work.without_inputs(), layout=layout, targets=targets)
    everything = range(len(work.paths))
    sent = [
        batch
        for number, own in enumerate(splits)
        for batch in tasks(number, Assignment.of(work, everything, own))
    ]
    pieces = pa.Table.from_batches(sent)
    reduce = OutputTasks(work=work.without_inputs(), slices_per_output=layout.slices_per_output)
    facts = []
    for target in targets:
        mine = pieces.filter(pa.compute.equal(pieces["target"], target))
        # Spark sorts only where slices are many; otherwise pieces come in any order.
        order = [("slice", "ascending"), ("ordinal", "ascending")]
        if layout.slices_per_output == 1:
            order = [("ordinal", "descending")]
        facts.append(facts_of(list(reduce(mine.sort_by(order).to_batches(max_chunksize=2)))))
    return check_rows(merge_facts(facts), surveys)
