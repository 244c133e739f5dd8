"""Rewriting without a shuffle: a whole small group in one task, or a compaction output by output.

Compaction keeps row order and gives each output a contiguous, equal share of the group's rows.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise

import pyarrow as pa

from liquidlog.data.encodings import concat
from liquidlog.errors import LiquidlogError
from liquidlog.plan import GroupCosts, WrittenFile
from liquidlog.rewriting.layout import build_layout, first_ordinals, table_keys
from liquidlog.rewriting.shuffle import slice_table, sorted_slice
from liquidlog.rewriting.sink import (
    OutputFile,
    TaskFacts,
    TaskProofs,
    Timer,
    check_rows,
    encode_facts,
    failed,
    merge_facts,
    require_running,
)
from liquidlog.rewriting.source import (
    Assignment,
    GroupWork,
    Split,
    Survey,
    WritingWork,
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
            yield facts_batch(self.run())

    def run(self) -> TaskFacts:
        """Rewrite the group, and return what that did."""
        try:
            require_running(self.work)
            sampling = Timer()
            with sampling.running():
                counts = rows_to_sample(self.work.sizes_bytes, self.sample_rows)
                surveys = [
                    survey_file(self.work, file, sample_rows=count)
                    for file, count in enumerate(counts)
                ]
            if self.work.curve is None:
                facts = merge_facts(
                    [_compact(one.work(self.work), one.own) for one in shares(self.work, surveys)]
                )
            else:
                facts = _sort_group(self.work, surveys)
        except LiquidlogError as error:
            return failed(error, self.work)
        sampled = TaskFacts(costs=GroupCosts(sample_seconds=sampling.seconds))
        return check_rows(merge_facts([facts, sampled]), surveys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one output of a compaction gets: rows of inputs that are numbered from 0.

    `number` is that of the output; `surveys` are those of the inputs, and `start` <= ordinal <
    `stop` says which of all their rows.
    """

    number: int
    surveys: tuple[Survey, ...]
    start: int
    stop: int


def shares(work: GroupWork, surveys: Sequence[Survey]) -> list[Assignment[Share]]:
    """Return for each output of a compaction its inputs and its share of their rows.

    Every output has a contiguous share of all rows, each as many.
    """
    edges = list(accumulate((survey.num_rows for survey in surveys), initial=0))
    found = []
    for number in range(work.outputs):
        start, stop = (end * edges[-1] // work.outputs for end in (number, number + 1))
        files = (
            range(bisect_right(edges, start) - 1, bisect_left(edges, stop))
            if stop > start
            else range(0)
        )
        own = tuple(replace(surveys[file], file=place) for place, file in enumerate(files))
        first = edges[files.start]
        share = Share(number=number, surveys=own, start=start - first, stop=stop - first)
        found.append(Assignment.of(work, [surveys[file].file for file in files], share))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTasks:
    """One task per output of a compaction; `work` has no inputs."""

    work: GroupWork

    def __call__(self, _: int, assignment: Assignment[Share]) -> Iterator[pa.RecordBatch]:
        """Yield one row of facts for the output."""
        yield facts_batch(self.run(assignment))

    def run(self, assignment: Assignment[Share]) -> TaskFacts:
        """Write an output, and return what that did."""
        try:
            require_running(self.work)
            return _compact(assignment.work(self.work), assignment.own)
        except LiquidlogError as error:
            return failed(error, self.work)


def facts_batch(facts: TaskFacts) -> pa.RecordBatch:
    """Return facts as the one row of FACTS_SCHEMA that a task yields."""
    return pa.RecordBatch.from_arrays([pa.array([encode_facts(facts)], pa.binary())], ["facts"])


def _compact(work: GroupWork, share: Share) -> TaskFacts:
    proofs = TaskProofs()
    with proofs.whole.running(), OutputFile(work, share.number, proof=proofs.written) as output:
        for table in proofs.reading.each(_share_rows(work, share)):
            proofs.read.add(table)
            output.write(table)
        file = output.finish()
    return proofs.facts([file])


def _share_rows(work: GroupWork, share: Share) -> Iterator[pa.Table]:
    start, stop = share.start, share.stop
    for survey, first in zip(share.surveys, first_ordinals(share.surveys), strict=True):
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
    proofs = TaskProofs()
    with proofs.whole.running():
        tables = list(proofs.reading.each(_all_rows(work, surveys)))
        outputs = sorted_outputs(work, surveys, tables, proofs) if tables else ()
    return proofs.facts(outputs)


def _all_rows(work: GroupWork, surveys: Sequence[Survey]) -> Iterator[pa.Table]:
    for survey, first in zip(surveys, first_ordinals(surveys), strict=True):
        splits = split_file(
            survey.file, survey.row_group_rows, first_ordinal=first, max_rows=survey.num_rows
        )
        for split in splits:
            yield from (table for table, _ in read_split(work, split))


def sorted_outputs(
    work: WritingWork,
    surveys: Sequence[Survey],
    tables: Sequence[pa.Table],
    proofs: TaskProofs,
) -> tuple[WrittenFile, ...]:
    """Write rows, at least one table in order, as a layout of their surveys has them.

    `proofs` get these rows, and those in files.
    """
    table = concat(tables)
    proofs.read.add(table)
    layout = build_layout(work, surveys)
    keys = table_keys(work, layout, table)
    files = []
    slices = slice_table(layout, table, keys)
    for number, members in groupby(slices, key=lambda one: one.slice // layout.slices_per_output):
        with OutputFile(work, number, proof=proofs.written) as output:
            for member in members:
                for rows in sorted_slice(work, [member.rows]):
                    output.write(rows)
            files.append(output.finish())
    return tuple(file for file in files if file is not None)
