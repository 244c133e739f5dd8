"""Rewriting without a shuffle: a whole small group in one task, or a compaction output by output.

Compaction keeps row order and gives each output a contiguous, equal share of the group's rows. It
copies row groups without decoding them where it can (`copying`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

import pyarrow as pa

from liquidlog.data.encodings import concat
from liquidlog.errors import LiquidlogError
from liquidlog.plan import GroupCosts, WrittenFile
from liquidspark.copying import (
    Composition,
    ConcatenatedOutput,
    compose,
    copy_run,
    pieces_between,
)
from liquidspark.layout import build_layout, first_ordinals, table_keys
from liquidspark.shuffle import slice_table, sorted_slice
from liquidspark.sink import (
    OutputFile,
    Proof,
    TaskFacts,
    Timer,
    check_rows,
    encode_facts,
    failed,
    merge_facts,
    require_running,
)
from liquidspark.source import (
    GroupWork,
    Split,
    Survey,
    read_split,
    rows_to_sample,
    split_file,
    survey_file,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTask:
    """One task that does everything; for groups small enough to hold in its memory."""

    work: GroupWork
    sample_rows: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row of facts."""
        for _ in batches:
            yield facts_batch(self._run())

    def _run(self) -> TaskFacts:
        try:
            sampling = Timer()
            with sampling.running():
                counts = rows_to_sample(self.work.sizes_bytes, self.sample_rows)
                surveys = [
                    survey_file(self.work, file, sample_rows=count)
                    for file, count in enumerate(counts)
                ]
            if self.work.curve is None:
                facts = _compact(self.work, surveys, range(self.work.outputs))
            else:
                facts = _sort_group(self.work, surveys)
        except LiquidlogError as error:
            return failed(error, self.work)
        sampled = TaskFacts(costs=GroupCosts(sample_seconds=sampling.seconds))
        return check_rows(merge_facts([facts, sampled]), surveys)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTasks:
    """One task per output of a compaction."""

    work: GroupWork
    surveys: tuple[Survey, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row of facts for each output whose number is in the batches."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield facts_batch(self._run(number))

    def _run(self, number: int) -> TaskFacts:
        try:
            require_running(self.work)
            return _compact(self.work, self.surveys, range(number, number + 1))
        except LiquidlogError as error:
            return failed(error, self.work)


def facts_batch(facts: TaskFacts) -> pa.RecordBatch:
    """Return facts as the one row of FACTS_SCHEMA that a task yields."""
    return pa.RecordBatch.from_arrays([pa.array([encode_facts(facts)], pa.binary())], ["facts"])


def _compact(work: GroupWork, surveys: Sequence[Survey], outputs: range) -> TaskFacts:
    total = sum(survey.num_rows for survey in surveys)
    facts = []
    for number in outputs:
        start, stop = number * total // work.outputs, (number + 1) * total // work.outputs
        read, written, whole, reading = Proof(), Proof(), Timer(), Timer()
        with whole.running():
            composition = compose(work, pieces_between(surveys, start, stop))
            if composition is None:
                with OutputFile(work, number, proof=written) as output:
                    for table in reading.each(_rows_between(work, surveys, start, stop)):
                        read.add(table)
                        output.write(table)
                    file = output.finish()
            else:
                file = _concatenate(work, surveys, number, composition, (read, written, reading))
        files = () if file is None else (file,)
        costs = _costs(whole, reading, read, written)
        facts.append(
            TaskFacts(read=read.total(), written=written.total(), outputs=files, costs=costs)
        )
    return merge_facts(facts)


def _concatenate(
    work: GroupWork,
    surveys: Sequence[Survey],
    number: int,
    composition: Composition,
    measures: tuple[Proof, Proof, Timer],
) -> WrittenFile | None:
    """Write an output of copied row groups and of rows between them."""
    read, written, reading = measures
    schema = composition.schema
    with ConcatenatedOutput(work, number, proof=written, footer_schema=schema) as output:
        for run in composition.runs:
            if run.copied:
                copy_run(work, composition, run, output, read=read)
                continue
            for table in reading.each(_rows_between(work, surveys, run.start, run.stop)):
                read.add(table)
                output.write(table)
        return output.finish()


def _costs(whole: Timer, reading: Timer, read: Proof, written: Proof) -> GroupCosts:
    verify_seconds = read.timer.seconds + written.timer.seconds
    return GroupCosts(
        map_seconds=reading.seconds,
        write_seconds=whole.seconds - reading.seconds - verify_seconds,
        verify_seconds=verify_seconds,
    )


def _rows_between(
    work: GroupWork, surveys: Sequence[Survey], start: int, stop: int
) -> Iterator[pa.Table]:
    for survey, first in zip(surveys, first_ordinals(surveys), strict=True):
        edges = list(accumulate(survey.row_group_rows, initial=first))
        inside = [
            number
            for number, (low, high) in enumerate(pairwise(edges))
            if max(low, start) < min(high, stop)
        ]
        if inside:
            low, high = edges[inside[0]], edges[inside[-1] + 1]
            split = Split(survey.file, tuple(inside), low, high - low)
            for table, ordinal in read_split(work, split):
                # Parts of a large row group may lie outside as a whole.
                skipped = min(max(start - ordinal, 0), len(table))
                yield table.slice(skipped, max(stop - ordinal - skipped, 0))


def _sort_group(work: GroupWork, surveys: Sequence[Survey]) -> TaskFacts:
    read, written, whole, reading = Proof(), Proof(), Timer(), Timer()
    with whole.running():
        tables = list(reading.each(_all_rows(work, surveys)))
        outputs = _sorted_outputs(work, surveys, tables, read, written) if tables else ()
    costs = _costs(whole, reading, read, written)
    return TaskFacts(read=read.total(), written=written.total(), outputs=outputs, costs=costs)


def _all_rows(work: GroupWork, surveys: Sequence[Survey]) -> Iterator[pa.Table]:
    for survey, first in zip(surveys, first_ordinals(surveys), strict=True):
        splits = split_file(
            survey.file, survey.row_group_rows, first_ordinal=first, max_rows=survey.num_rows
        )
        for split in splits:
            yield from (table for table, _ in read_split(work, split))


def _sorted_outputs(
    work: GroupWork,
    surveys: Sequence[Survey],
    tables: Sequence[pa.Table],
    read: Proof,
    written: Proof,
) -> tuple[WrittenFile, ...]:
    table = concat(tables)
    read.add(table)
    layout = build_layout(work, surveys)
    keys = table_keys(work, layout, table)
    files = []
    slices = slice_table(layout, table, keys)
    for number, members in groupby(slices, key=lambda one: one.slice // layout.slices_per_output):
        with OutputFile(work, number, proof=written) as output:
            for member in members:
                for rows in sorted_slice(work, [member.rows]):
                    output.write(rows)
            files.append(output.finish())
    return tuple(file for file in files if file is not None)
