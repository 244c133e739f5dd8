"""Advice: which layout a table should have for its readers, or that it should be left alone."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import numpy as np

from liquidlog.advice.backtests import Backtest
from liquidlog.advice.candidates import Candidate
from liquidlog.foresee.prediction import Range
from liquidlog.foresee.reads import Readings
from liquidlog.foresee.sample import Floats
from liquidlog.foresee.verdict import Verdict
from liquidlog.plan import FittedWorkload
from liquidlog.predicates.workload import NotUsable
from liquidlog.spec.schema import Path, quote_path
from liquidlog.spec.text import Summary

SAVED_AS: Final = "ADVICE.json"
"""The name of the document in commands, as long as it is not saved."""

_LOSERS: Final = 10
_LOSES: Final = 1.01
"""A predicate loses if it costs more than this many times what it costs now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Current:
    """The table as it is, read by the newest queries.

    `read_share` is the share of the table's bytes that one reading opens; `bytes_per_reading` and
    `files_per_reading` are means of the same.
    """

    columns: tuple[Path, ...]
    read_share: float
    bytes_per_reading: float
    files_per_reading: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A layout, and what one reading of the newest queries would open: see Current.

    `older_read_share` is the share that the older queries, by which it is chosen, would open.
    """

    candidate: Candidate
    files: int
    read_share: float
    older_read_share: float
    bytes_per_reading: float
    files_per_reading: float

    def document(self) -> dict[str, Any]:
        """Return the layout as plain JSON values."""
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
    """What one reading of a predicate opens now and with the best layout."""

    where: str
    share: float
    bytes_now: float
    bytes_after: float
    files_now: float
    files_after: float

    def document(self) -> dict[str, Any]:
        """Return the numbers as plain JSON values."""
        return {
            "where": self.where,
            "share": round(self.share, 6),
            "bytes_now": round(self.bytes_now),
            "bytes_after": round(self.bytes_after),
            "files_now": round(self.files_now),
            "files_after": round(self.files_after, 3),
        }


def losers(
    wheres: Sequence[str], weights: Floats, now: Readings, after: Readings
) -> tuple[PredicateReads, ...]:
    """Return the predicates that would cost more than now, those that lose most first.

    Args:
        wheres: The p predicates.
        weights: Theirs, (p,).
        now: What one reading of each opens now.
        after: The same with the best layout.
    """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolChange:
    """What setting the advised columns changes of the table's protocol."""

    features_added: tuple[str, ...]
    min_writer_version: int
    text: str

    def document(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return {
            "features_added": list(self.features_added),
            "min_writer_version": self.min_writer_version,
            "text": self.text,
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Advice(Summary):
    """Which layout a table should have for its readers, and what it would bring.

    `best` is the layout that the older queries choose, None if there is nothing to choose from;
    `is_recommended` says whether it is what the `verdict` on the table says, and `reason` why, or
    why not. `gain` is the share of their wait that queries save, and `interval` and `gain_interval`
    are where the best layout's read share and its gain lie in nine of ten cases. `columns` maps
    those that come into question to what they bring beside the best layout's others. `sets` and
    `unset` are the properties by which the table remembers the layout. `notes` say what was left
    out or could not be measured.
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
        """The layout to have, None if the table is best left alone."""
        return self.best if self.is_recommended else None

    def saved_as(self, path: str) -> "Advice":
        """Return the advice with commands that name the file it is saved to."""
        named = shlex.quote(path)
        commands = tuple(one.replace(SAVED_AS, named) for one in self.commands)
        return replace(self, commands=commands)

    def document(self) -> dict[str, Any]:
        """Return the advice as plain JSON values."""
        return {
            "table_uri": self.table_uri,
            "table_id": self.table_id,
            "version": self.version,
            "verdict": None if self.verdict is None else self.verdict.document(),
            "backtest": self.backtest.document(),
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
                {
                    "name": quote_path(path),
                    "marginal_gain": None if gain is None else round(gain, 6),
                }
                for path, gain in self.columns.items()
            ],
            "rewrite_bytes": self.rewrite_bytes,
            "payback_readings": _rounded(self.payback_readings, 1),
            "payback_days": _rounded(self.payback_days, 3),
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
            "not_usable": [
                {"where": one.where, "weight": one.weight, "reason": one.reason}
                for one in self.not_usable
            ],
            "asked_at": self.asked_at,
            "commands": list(self.commands),
            "protocol_change": None
            if self.protocol_change is None
            else self.protocol_change.document(),
            "properties": {"set": dict(self.sets), "unset": list(self.unset)},
            "fitted_to": None if self.fitted is None else msgspec.to_builtins(self.fitted),
            "notes": list(self.notes),
        }

    def _best(self, best: Measured) -> dict[str, Any]:
        found = best.document()
        found["interval"] = _ends(self.interval)
        found["gain"] = _rounded(self.gain, 6)
        found["gain_interval"] = _ends(self.gain_interval)
        return found


def _ends(found: Range | None) -> list[float] | None:
    return None if found is None else [round(found.low, 6), round(found.high, 6)]


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _names(paths: tuple[Path, ...]) -> list[str]:
    return [quote_path(path) for path in paths]
