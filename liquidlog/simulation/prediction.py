"""Predictions of what readers open after a plan, with the ranges in which it will lie."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa

from liquidlog.errors import UsageError
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.literals import Session
from liquidlog.predicates.workload import NotUsable, Workload, shares
from liquidlog.simulation.after import After, Draw, Evidence, Known, table_after
from liquidlog.simulation.imagined import Points
from liquidlog.simulation.ranges import Range
from liquidlog.simulation.reads import Reads, everything, narrow, narrow_after, opened, opened_after
from liquidlog.simulation.uncertainty import EXACT, ModelError, model_error
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds, BoundsOf, Mask, has_bounds
from liquidlog.spec.schema import Leaf, Path, leaves, quote_path

if TYPE_CHECKING:
    from liquidlog.predicates.matching import Judged

Readers = Literal["workload", "narrow"]

_EVERYTHING: Final = "every row"
_MOST_DRAWN: Final = 12
_FEWEST_DRAWN: Final = 2
_DRAWN_FILES: Final = 20_000
"""Files that are drawn, in all worlds together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedReads:
    """The reads of one predicate before and after a plan; `share` is its share of the workload.

    `where` is the predicate, or says in words what a narrow reader asks for. Files and bytes of a
    narrow reader are means over the values of its column. Ranges hold what comes true in nine of
    ten cases. `cannot_prune` lists the conditions that rule out no file, whatever the statistics.
    """

    where: str
    share: float
    files_before: float
    files_after: float
    files_after_range: Range
    bytes_before: float
    bytes_after: float
    bytes_after_range: Range
    cannot_prune: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The predicted effect of a plan on its readers.

    `readers` says who they are: those of a `workload`, or `narrow` ones, who ask for one value of
    one clustering column each: every column equally often, every value as often as it has rows.

    `files_before`, `files_after`, `bytes_before` and `bytes_after` are means per read.
    `gain_per_byte` is the number of bytes that a read saves per rewritten byte. After
    `break_even_reads` reads, as many bytes are saved as were rewritten; None if a read saves
    nothing. Ranges hold what comes true in nine of ten cases; that of `break_even_reads` ends at
    infinity if a read may save nothing, and is None if no read can.

    `is_sampled` says whether rows were sampled; if not, only statistics speak. `cannot_prune` lists
    the conditions of all predicates that rule out no file. `not_usable` has the predicates that are
    no condition on this table, which count nowhere else. `asked_at` is the current time (ISO 8601,
    UTC) if a predicate depends on it, else None.
    """

    readers: Readers
    is_sampled: bool
    bytes_to_rewrite: int
    files_to_rewrite: int
    files_to_write: int
    files_before: float
    files_after: float
    files_after_range: Range
    bytes_before: float
    bytes_after: float
    bytes_after_range: Range
    gain_per_byte: float
    gain_per_byte_range: Range
    break_even_reads: float | None
    break_even_reads_range: Range | None
    predicates: tuple[PredictedReads, ...]
    cannot_prune: tuple[str, ...]
    not_usable: tuple[NotUsable, ...]
    asked_at: str | None

    def document(self) -> dict[str, Any]:
        """Return the fields by name, `predicates` as PredictedReads, ready to print as JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def predict(
    snapshot: Snapshot,
    plan: ClusteringPlan,
    workload: Workload,
    bounds_of: BoundsOf,
    samples: Sequence[pa.Table] | None = None,
    *,
    now_ms: int | None = None,
    most_drawn: int | None = None,
    known: Known | None = None,
) -> Prediction:
    """Return the predicted effect of a plan for this snapshot on a workload.

    With no workload, readers are narrow; if the plan has no columns either, they read everything.
    `samples` holds one table per group of the plan with columns of sampled rows, in any number:
    the clustering columns in plan order, then others that predicates name, named by `quote_path`.
    Without samples, rows are made up. `now_ms` is the current time in predicates. With
    `most_drawn`, at most as many worlds are drawn: the fewer, the sooner, and the less the ranges
    tell of how the same plan may come out differently. What is `known` of an earlier prediction of
    the same plan, workload and samples is not made up again.
    """
    case = _Case(snapshot, plan, bounds_of, samples, _draws(plan, most_drawn), known)
    foreseen = (_asked if workload else _narrow)(case, workload, now_ms)
    return _prediction(plan, foreseen, is_sampled=samples is not None)


def other_leaves(snapshot: Snapshot, plan: ClusteringPlan, workload: Workload) -> tuple[Leaf, ...]:
    """Return the columns with bounds that a workload asks for and the plan does not cluster by.

    Sampled, they tell whether files of the plan will be narrow in them.
    """
    # See `_asked`.
    from liquidlog.predicates.conditions import referenced_leaves_each

    clustered = {column.logical for column in plan.columns}
    named = referenced_leaves_each(snapshot, [predicate.where for predicate in workload])
    found = dict.fromkeys(
        leaf for leaves in named if not isinstance(leaves, UsageError) for leaf in leaves
    )
    return tuple(
        leaf for leaf in found if has_bounds(leaf.data_type) and leaf.logical not in clustered
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """What is predicted, from what."""

    snapshot: Snapshot
    plan: ClusteringPlan
    bounds_of: BoundsOf
    samples: Sequence[pa.Table] | None
    draws: Sequence[Draw]
    known: Known | None

    @property
    def size_bytes(self) -> Points:
        return np.asarray(self.snapshot.files["size"].to_numpy(), np.float64)

    @property
    def leaves(self) -> dict[Path, Leaf]:
        return {leaf.logical: leaf for leaf in leaves(self.snapshot.schema)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Foreseen:
    """Readers, what they open before (files and bytes), and in each world after the plan."""

    readers: Readers
    asked: Sequence[str]
    shares: Points
    before: tuple[Points, Points]
    after: After
    reads: Reads
    error: ModelError
    cannot_prune: Sequence[tuple[str, ...]] = ()
    not_usable: tuple[NotUsable, ...] = ()
    asked_at: str | None = None


def _draws(plan: ClusteringPlan, most_drawn: int | None) -> list[Draw]:
    """Return as many worlds as a plan of this size allows for."""
    outputs = sum(group.expected_outputs for group in plan.groups)
    drawn = max(_FEWEST_DRAWN, min(_MOST_DRAWN, int(_DRAWN_FILES // max(outputs, 1))))
    wanted = drawn if most_drawn is None else min(drawn, most_drawn)
    return [Draw.LIKELY, Draw.CORRELATED, *([Draw.DRAWN] * wanted)]


def _narrow(case: _Case, workload: Workload, now_ms: int | None) -> _Foreseen:
    del workload, now_ms
    columns = [case.leaves[column.logical] for column in case.plan.columns]
    bounds = case.bounds_of(columns)
    samples = _of_columns(case, ())
    evidence = Evidence(bounds=bounds, clustered=range(len(columns)), samples=samples)
    after = table_after(case.snapshot, case.plan, evidence, case.draws, case.known)
    size_bytes = case.size_bytes
    if columns:
        before, reads = narrow(size_bytes, bounds), narrow_after(after, range(len(columns)))
        asked = [f"one value of {quote_path(leaf.logical)}" for leaf in columns]
    else:
        before = np.array([float(len(size_bytes))]), np.array([size_bytes.sum()])
        reads, asked = everything(after), [_EVERYTHING]
    return _Foreseen(
        readers="narrow",
        asked=asked,
        shares=np.full(len(asked), 1 / len(asked)),
        before=before,
        after=after,
        reads=reads,
        error=_error(case, bounds, range(len(columns))).of_means if columns else EXACT,
    )


def _asked(case: _Case, workload: Workload, now_ms: int | None) -> _Foreseen:
    # The SQL parser takes a third of a command's start; most commands have no predicate.
    from liquidlog.predicates.conditions import referenced_leaves
    from liquidlog.predicates.matching import judged_each
    from liquidlog.predicates.workload_text import answers

    session = Session.at_ms(now_ms)
    readers = answers(case.snapshot, workload, case.bounds_of, session)
    asked = [predicate.where for predicate in readers.workload]
    clustered = [column.logical for column in case.plan.columns]
    measured = {leaf.logical: leaf for leaf in referenced_leaves(case.snapshot, asked)}
    measured |= {path: case.leaves[path] for path in clustered}
    bounds = case.bounds_of(list(measured.values()))
    places = [list(measured).index(path) for path in clustered]
    names = [quote_path(path) for path in measured]
    sampled = [name for name in _others(case) if name in names]
    evidence = Evidence(
        bounds=bounds,
        clustered=places,
        samples=_of_columns(case, sampled),
        sampled=[names.index(name) for name in sampled],
    )
    after = table_after(case.snapshot, case.plan, evidence, case.draws, case.known)
    numbers = {leaf: number for number, leaf in enumerate(measured.values())}

    def bounds_after(wanted: Sequence[Leaf]) -> Bounds:
        return after.bounds.select([numbers[leaf] for leaf in wanted])

    found = judged_each(after.snapshot, asked, bounds_after, session)
    before = [_mask(one) for one in readers.judged]
    return _Foreseen(
        readers="workload",
        asked=asked,
        shares=np.array(shares(readers.workload)),
        before=opened(case.size_bytes, before),
        after=after,
        reads=opened_after(after, before, [_mask(one) for one in found]),
        error=_error(case, bounds, places),
        cannot_prune=[judged.cannot_prune for judged in readers.judged],
        not_usable=readers.not_usable,
        asked_at=readers.asked_at(now_ms),
    )


def _others(case: _Case) -> list[str]:
    """Return the names of the sampled columns that the plan does not cluster by."""
    return case.samples[0].column_names[len(case.plan.columns) :] if case.samples else []


def _of_columns(case: _Case, others: Sequence[str]) -> list[pa.Table] | None:
    """Return the samples with the clustering columns, then `others`."""
    if case.samples is None:
        return None
    keys = range(len(case.plan.columns))
    chosen = [*keys, *(len(keys) + _others(case).index(name) for name in others)]
    return [sample.select(chosen) for sample in case.samples]


def _mask(judged: "Judged") -> Mask:
    return np.asarray(judged.may_match, np.bool_)


def _error(case: _Case, bounds: Bounds, clustered: Sequence[int]) -> ModelError:
    rows = [group.live_rows for group in case.plan.groups]
    known = sum(count for count in rows if count) if None not in rows else 0
    return model_error(
        is_sampled=case.samples is not None,
        is_text=any(pa.types.is_string(bounds.low(number).type) for number in clustered),
        columns=len(clustered),
        bytes_per_row=case.plan.size_bytes / known if known else None,
    )


def _prediction(plan: ClusteringPlan, foreseen: _Foreseen, *, is_sampled: bool) -> Prediction:
    error = foreseen.error
    reads, weights = foreseen.reads, foreseen.shares
    files, read = reads.files_spread(error), reads.bytes_spread(error)
    mean_files, mean_bytes = files.mean(weights), read.mean(weights)
    file_ranges, byte_ranges = files.ranges(), read.ranges()
    number = round if foreseen.readers == "workload" else float
    blind = foreseen.cannot_prune or [()] * len(foreseen.asked)
    rows = tuple(
        PredictedReads(
            where=where,
            share=float(weights[place]),
            files_before=number(foreseen.before[0][place]),
            files_after=number(files.likely[place]),
            files_after_range=file_ranges[place],
            bytes_before=number(foreseen.before[1][place]),
            bytes_after=number(read.likely[place]),
            bytes_after_range=byte_ranges[place],
            cannot_prune=blind[place],
        )
        for place, where in enumerate(foreseen.asked)
    )
    bytes_before = float(weights @ foreseen.before[1])
    size_bytes = plan.size_bytes
    ends = mean_bytes.range
    spared = [bytes_before - one for one in (mean_bytes.likely, ends.high, ends.low)]
    gains = [one / size_bytes if plan.groups else 0.0 for one in spared]
    return Prediction(
        readers=foreseen.readers,
        is_sampled=is_sampled,
        bytes_to_rewrite=size_bytes,
        files_to_rewrite=sum(len(group.inputs) for group in plan.groups),
        files_to_write=sum(group.expected_outputs for group in plan.groups),
        files_before=float(weights @ foreseen.before[0]),
        files_after=mean_files.likely,
        files_after_range=mean_files.range,
        bytes_before=bytes_before,
        bytes_after=mean_bytes.likely,
        bytes_after_range=ends,
        gain_per_byte=gains[0],
        gain_per_byte_range=Range(gains[1], gains[2]),
        break_even_reads=size_bytes / spared[0] if spared[0] > 0 else None,
        break_even_reads_range=pays_off(size_bytes, spared[1], spared[2]),
        predicates=rows,
        cannot_prune=tuple(dict.fromkeys(text for texts in blind for text in texts)),
        not_usable=foreseen.not_usable,
        asked_at=foreseen.asked_at,
    )


def pays_off(cost: float, least_spared: float, most_spared: float) -> Range | None:
    """Return after how many reads a cost is spared, None if no read can spare anything.

    The range ends at infinity if a read may spare nothing.
    """
    if most_spared <= 0:
        return None
    return Range(cost / most_spared, cost / least_spared if least_spared > 0 else math.inf)
