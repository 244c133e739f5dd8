"""Advice: the best layout of a table for its queries, the commands that make it, its document."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import msgspec
import numpy as np

from liquidlog.advice.search import Backtest, Candidate, layout_arguments
from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.settings import (
    CURVE_PROPERTY,
    DEFAULT_STRATEGY,
    MAX_FILE_SIZE_PROPERTY,
    PREFIX_PROPERTY,
    WEIGHTS_PROPERTY,
    ZORDER_PROPERTY,
    remembered_if_right,
)
from liquidlog.definition.create import ProtocolChange, clustering_protocol_change
from liquidlog.errors import DocumentError, UsageError
from liquidlog.foresee.reads import Opened, Range
from liquidlog.foresee.sample import Floats
from liquidlog.foresee.verdict import Verdict, rounded
from liquidlog.plan import FittedWorkload
from liquidlog.predicates.workload import NotUsable
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import UNREADABLE
from liquidlog.spec.schema import Path, quote_path, split_path
from liquidlog.spec.text import Summary, alter, set_properties, unset_properties

SAVED_AS: Final = "ADVICE.json"
"""The document's name in commands until it is saved."""

_LOSERS: Final = 10
_LOSES: Final = 1.01
"""A predicate loses if queries then wait more than this many times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """What one of the newest queries opens now, on average.

    `read_share` is a share of the table's bytes.
    """

    columns: tuple[Path, ...]
    read_share: float
    bytes_per_reading: float
    files_per_reading: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A layout, and what one of the newest queries would open on average: see Current.

    `older_read_share` is for the older queries, which choose the layout.
    """

    candidate: Candidate
    files: int
    read_share: float
    older_read_share: float
    bytes_per_reading: float
    files_per_reading: float

    def document(self) -> dict[str, Any]:
        of = self.candidate
        return {
            "columns": _names(of.columns),
            "prefix": _names(of.prefix),
            "curve": of.curve.value,
            "fitted": of.is_fitted,
            "max_file_bytes": of.max_file_bytes,
            "files": self.files,
            "read_share": round(self.read_share, 6),
            "older_read_share": round(self.older_read_share, 6),
            "bytes_per_reading": round(self.bytes_per_reading),
            "files_per_reading": round(self.files_per_reading, 3),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PredicateReads:
    """What a predicate opens now and with the best layout."""

    where: str
    share: float
    bytes_now: float
    bytes_after: float
    files_now: float
    files_after: float

    def document(self) -> dict[str, Any]:
        sizes = {name: round(value) for name, value in asdict(self).items() if name != "where"}
        exact = {"share": round(self.share, 6), "files_after": round(self.files_after, 3)}
        return {"where": self.where, **sizes, **exact}


def losers(
    wheres: Sequence[str], weights: Floats, now: Opened[Floats], after: Opened[Floats]
) -> tuple[PredicateReads, ...]:
    """Return the predicates that would wait longer than now, the greatest losers first."""
    lost = after.seconds - now.seconds
    loses = after.seconds > now.seconds * _LOSES
    order = np.argsort(-(lost * weights), kind="stable")
    return tuple(
        PredicateReads(
            where=wheres[number],
            share=float(weights[number] / weights.sum()),
            bytes_now=float(now.bytes[number]),
            bytes_after=float(after.bytes[number]),
            files_now=float(now.files[number]),
            files_after=float(after.files[number]),
        )
        for number in order[loses[order]][:_LOSERS]
    )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Advice(Summary):
    """The best layout of a table for its queries, and its gain.

    The older queries choose `best`, None without a choice; `is_recommended` and `reason` say
    whether to make it, and why. Queries save `gain`, a share of their wait. In nine of ten cases,
    the read share of the best layout lies in `interval`, its gain in `gain_interval`. `columns`
    maps each candidate column to what it adds to the other columns of the best layout. The table
    remembers the layout by the properties `sets` and `unset`. `notes` say what was not measured.
    """

    table_uri: str
    table_id: str
    version: int
    backtest: Backtest
    current: Current
    best: Measured | None = None
    is_recommended: bool = False
    reason: str
    gain: float | None = None
    gain_interval: Range | None = None
    interval: Range | None = None
    candidates: tuple[Measured, ...] = ()
    columns: Mapping[Path, float | None] = field(default_factory=dict)
    rewrite_bytes: int | None = None
    payback_readings: float | None = None
    payback_days: float | None = None
    queries_older: int
    queries_newest: int
    parted_by: str
    sample: str | None = None
    sampled_rows: int = 0
    sampled_files: int = 0
    losers: tuple[PredicateReads, ...] = ()
    cannot_prune: tuple[str, ...]
    not_usable: tuple[NotUsable, ...]
    asked_at: str | None
    commands: tuple[str, ...] = ()
    protocol_change: ProtocolChange | None = None
    sets: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    fitted: FittedWorkload | None = None
    notes: tuple[str, ...]
    verdict: Verdict | None = None

    def _facts(self) -> Mapping[str, object]:
        verdict = self.reason if self.verdict is None else self.verdict.sentence
        return {"table_uri": self.table_uri, "verdict": verdict, "commands": self.commands}

    def _rows(self) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        return ("columns", "curve", "max_file_bytes", "files", "read_share"), [
            (
                ", ".join(_names(one.candidate.columns)),
                one.candidate.curve.value,
                one.candidate.max_file_bytes,
                one.files,
                round(one.read_share, 4),
            )
            for one in self.candidates
        ]

    @property
    def recommended(self) -> Measured | None:
        """The layout to make, None to leave the table alone."""
        return self.best if self.is_recommended else None

    def saved_as(self, path: str) -> "Advice":
        """Return the advice with commands that name the file of its document."""
        named = shlex.quote(path)
        commands = tuple(one.replace(SAVED_AS, named) for one in self.commands)
        return replace(self, commands=commands)

    def document(self) -> dict[str, Any]:
        change = self.protocol_change
        return {
            "table_uri": self.table_uri,
            "table_id": self.table_id,
            "version": self.version,
            "verdict": None if self.verdict is None else self.verdict.document(),
            "backtest": msgspec.to_builtins(self.backtest),
            "current": {
                "columns": _names(self.current.columns),
                "read_share": round(self.current.read_share, 6),
                "bytes_per_reading": round(self.current.bytes_per_reading),
                "files_per_reading": round(self.current.files_per_reading, 3),
            },
            "recommended": None if self.recommended is None else self._best(self.recommended),
            "best": None if self.best is None else self._best(self.best),
            "candidates": [one.document() for one in self.candidates],
            "columns": [
                {"name": quote_path(path), "marginal_gain": rounded(gain, 6)}
                for path, gain in self.columns.items()
            ],
            "rewrite_bytes": self.rewrite_bytes,
            "payback_readings": rounded(self.payback_readings, 1),
            "payback_days": rounded(self.payback_days, 3),
            "reason": self.reason,
            "queries": {
                "older": self.queries_older,
                "newest": self.queries_newest,
                "parted_by": self.parted_by,
            },
            "sample": {
                "source": self.sample,
                "rows": self.sampled_rows,
                "files": self.sampled_files,
            },
            "losers": [one.document() for one in self.losers],
            "cannot_prune": list(self.cannot_prune),
            "not_usable": msgspec.to_builtins(self.not_usable),
            "asked_at": self.asked_at,
            "commands": list(self.commands),
            "protocol_change": None
            if change is None
            else {
                "features_added": list(change.added),
                "min_writer_version": change.after.min_writer_version,
                "text": str(change),
            },
            "properties": {"set": dict(self.sets), "unset": list(self.unset)},
            "fitted_to": msgspec.to_builtins(self.fitted),
            "notes": list(self.notes),
        }

    def _best(self, best: Measured) -> dict[str, Any]:
        certain = {"interval": _ends(self.interval), "gain": rounded(self.gain, 6)}
        return {**best.document(), **certain, "gain_interval": _ends(self.gain_interval)}


def _ends(found: Range | None) -> list[float] | None:
    return None if found is None else [round(found.low, 6), round(found.high, 6)]


def _names(paths: tuple[Path, ...]) -> list[str]:
    return [quote_path(path) for path in paths]


# Advice as a document: saved, reviewed, and given to a plan

KIND: Final = "liquidlog advice"
FORMAT_VERSION: Final = 1


class AdvisedLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The layout in a document; columns as people write them."""

    columns: tuple[str, ...]
    prefix: tuple[str, ...]
    curve: str
    max_file_bytes: int
    fitted: bool


class AdviceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The part of saved advice that a plan needs; other fields are for people."""

    kind: str
    format_version: int
    table_uri: str
    table_id: str
    recommended: AdvisedLayout | None
    reason: str
    fitted_to: FittedWorkload | None = None


def encode_advice(advice: Advice) -> bytes:
    """Return advice as a document of indented JSON."""
    document = {"kind": KIND, "format_version": FORMAT_VERSION, **advice.document()}
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def decode_advice(data: bytes, *, where: str) -> AdviceDocument:
    try:
        head = msgspec.json.decode(data, type=dict[str, Any])
    except UNREADABLE as error:
        raise DocumentError(where, "is not JSON; advise -o writes such a document") from error
    if head.get("kind") != KIND:
        raise DocumentError(where, "is not advice; advise -o writes such a document")
    if head.get("format_version") != FORMAT_VERSION:
        raise DocumentError(
            where,
            f"is advice of format {head.get('format_version')!r}, and this release reads format"
            f" {FORMAT_VERSION}; make it again with advise -o",
        )
    try:
        found = msgspec.json.decode(data, type=AdviceDocument)
    except msgspec.MsgspecError as error:
        raise DocumentError(where, f"is not advice as advise -o writes it: {error}") from error
    layout = found.recommended
    if layout is not None and layout.fitted != (found.fitted_to is not None):
        raise DocumentError(
            where, "contradicts itself: `fitted` needs `fitted_to`, and the reverse; run advise -o"
        )
    return found


def plan_arguments(
    advised: AdviceDocument, *, table_id: str, columns: tuple[Path, ...], uri: str
) -> Mapping[str, Any]:
    """Return the arguments of the plan that makes the advised layout."""
    layout = advised.recommended
    if advised.table_id != table_id:
        raise UsageError(
            f"the advice is for the table {advised.table_uri}, not for {uri}; run advise on this"
            " table",
            table_uri=advised.table_uri,
        )
    if layout is None:
        raise UsageError(f"the advice recommends no other layout: {advised.reason}")
    wanted = tuple(split_path(name) for name in layout.columns)
    if wanted != columns:
        now = ", ".join(map(quote_path, columns))
        names = ",".join(layout.columns)
        raise UsageError(
            f"the advice is to cluster by {names}, and the table is"
            f" {f'clustered by {now}' if columns else 'not clustered'}; apply it first with"
            f" cluster-by {uri} {names}",
            columns=list(layout.columns),
        )
    prefix = tuple(split_path(name) for name in layout.prefix)
    return layout_arguments(wanted, prefix, layout.curve, layout.max_file_bytes)


# The columns and properties to set, and the commands that set them


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The settings and commands that make a layout: see `Advice`."""

    commands: tuple[str, ...] = ()
    protocol_change: ProtocolChange | None = None
    sets: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()


def steps(snapshot: Snapshot, best: Candidate) -> Steps:
    """Return the steps that make a candidate the table's layout; a partitioned table has none."""
    if snapshot.metadata.partition_columns:
        return Steps()
    sets, unset = _properties(snapshot, best)
    uri = shlex.quote(snapshot.uri)
    names = ",".join(quote_path(path) for path in best.columns)
    own = tuple(column.logical for column in clustering_state(snapshot).columns)
    commands = []
    if own != best.columns:
        commands.append(f"liquidlog cluster-by {uri} {shlex.quote(names)}")
    if sets:
        commands.append(alter(snapshot.uri, set_properties(sets)))
    if unset:
        commands.append(alter(snapshot.uri, unset_properties(unset)))
    if best.is_fitted:
        commands.append(f"liquidlog optimize {uri} --advice {SAVED_AS}")
    else:
        is_other = remembered_if_right(snapshot, "strategy") != DEFAULT_STRATEGY
        strategy = f" --strategy {DEFAULT_STRATEGY}" if is_other else ""
        commands.append(f"liquidlog optimize {uri} --full{strategy}")
    return Steps(
        commands=tuple(commands),
        protocol_change=clustering_protocol_change(snapshot) if own != best.columns else None,
        sets=sets,
        unset=unset,
    )


def _properties(snapshot: Snapshot, best: Candidate) -> tuple[dict[str, str], tuple[str, ...]]:
    configuration = snapshot.metadata.configuration
    sets: dict[str, str] = {}
    unset = []
    if remembered_if_right(snapshot, "max_file_bytes") != best.max_file_bytes:
        sets[MAX_FILE_SIZE_PROPERTY] = str(best.max_file_bytes)
    if len(best.columns) > 1 and remembered_if_right(snapshot, "curve") != best.curve.value:
        sets[CURVE_PROPERTY] = best.curve.value
    prefix = ",".join(quote_path(path) for path in best.prefix)
    if prefix and configuration.get(PREFIX_PROPERTY) != prefix:
        sets[PREFIX_PROPERTY] = prefix
    elif not prefix and PREFIX_PROPERTY in configuration:
        unset.append(PREFIX_PROPERTY)
    # The measured layout used neither; the second has no effect on a clustered table.
    unset += [name for name in (WEIGHTS_PROPERTY, ZORDER_PROPERTY) if name in configuration]
    return sets, tuple(unset)
