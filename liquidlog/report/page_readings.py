"""What readers open now and after a rewrite, predicate by predicate, in one scale."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from liquidlog.judgement.costs import reading_cost
from liquidlog.judgement.verdicts import Judgement, Option
from liquidlog.operations.scan import PredicateScan, Scan
from liquidlog.report.layout import Bars, Grid, Line, Part
from liquidlog.report.page_answer import Whole, amount_row, between, change, sentence
from liquidlog.report.page_parts import counted, hint, mean, scrolled, section, share, size
from liquidlog.report.readers import remarks
from liquidlog.simulation.prediction import PredictedReads
from liquidlog.spec.text import escaped, html_table

LISTED: Final = 20
"""The most predicates that are shown."""

_LONGEST: Final = 400
"""Longer predicates are cut, in characters."""


def readings(judgement: Judgement) -> Iterator[str]:
    """Yield the section, unless there is no rewrite to show, or nobody who reads."""
    option = judgement.shown
    if option is None or not option.prediction.predicates:
        return
    found = option.prediction
    rows = sorted((_whole(option, row) for row in found.predicates), key=lambda row: -_spared(row))
    shown, rest = rows[:LISTED], rows[LISTED:]
    most = max(max(row.bytes_before, row.bytes_after_range.high) for row in shown) or 1.0
    parts = [
        hint(_about(judgement)),
        *(_reading(row, most) for row in shown),
        *([hint(_counted(rest))] if rest else []),
        *map(_remark, remarks(found.cannot_prune, found.not_usable, found.asked_at)),
    ]
    yield section("Readings, now and after", *parts)


def readings_now(found: Scan) -> str:
    """Return the section of a table that there is no rewrite of."""
    rows = sorted(found.predicates, key=lambda row: -row.share * row.bytes)
    shown, rest = rows[:LISTED], rows[LISTED:]
    most = max((row.bytes for row in shown), default=0) or 1
    more = f"and {counted(len(rest), 'more predicate')} with {_asked(rest)} of the readings"
    return section(
        "Readings now",
        hint(
            "The predicates of your workload, those first that read most. All bars have one scale."
        ),
        *(_read_now(row, most) for row in shown),
        hint(more) if rest else "",
        *map(_remark, remarks(found.cannot_prune, found.not_usable, found.asked_at)),
    )


def _read_now(row: PredicateScan, most: int) -> str:
    return _reader(
        row.where,
        f"{share(row.share)} of the readings",
        amount_row("now", size(row.bytes), row.bytes / most, files=counted(row.files, "file")),
    )


def _reader(where: str, said: str, rows: str, below: str = "") -> str:
    cut = where if len(where) <= _LONGEST else where[: _LONGEST - 1] + "…"
    return (
        f'<article class="reader"><p><code>{escaped(cut)}</code></p><p class="hint">{said}</p>'
        f'<div class="reading">{rows}</div>{below}</article>'
    )


def _asked(rows: Sequence[PredictedReads | PredicateScan]) -> str:
    return share(min(1.0, sum(row.share for row in rows)))


def _whole(option: Option, row: PredictedReads) -> PredictedReads:
    """Return a row after all of a rewrite of which only a part was predicted."""
    if option.judged_share >= 1:
        return row
    whole = Whole(option)
    return replace(
        row,
        files_after=whole.of(row.files_before, row.files_after),
        files_after_range=whole.ends(row.files_before, row.files_after_range),
        bytes_after=whole.of(row.bytes_before, row.bytes_after),
        bytes_after_range=whole.ends(row.bytes_before, row.bytes_after_range),
    )


def _remark(part: Part) -> str:
    match part:
        case Line():
            return hint(sentence(part.text))
        case Grid():
            return scrolled(html_table(part.names, part.rows))
        case Bars():
            return ""


def _about(judgement: Judgement) -> str:
    whose = (
        "The predicates of your workload"
        if judgement.readers == "workload"
        else "No workload was given, so these are readers of one value of each clustering column"
    )
    return (
        f"{whose}, those first that would be spared most, with the opening of files. Bars are"
        " bytes, all in one scale; the line is where they lie in nine of ten cases."
    )


def _reading(row: PredictedReads, most: float) -> str:
    ends = row.bytes_after_range
    spread = (ends.low / most, ends.high / most)
    files = f"{between(row.files_after_range, mean)} files"
    return _reader(
        row.where,
        f"{share(row.share)} of the readings; {_changed(row)}",
        amount_row(
            "now",
            size(row.bytes_before),
            row.bytes_before / most,
            files=counted(row.files_before, "file"),
        )
        + amount_row(
            "after",
            size(row.bytes_after),
            row.bytes_after / most,
            spread,
            counted(row.files_after, "file"),
        ),
        f'<p class="hint range">{escaped(f"{between(ends, size)}, {files}")}</p>',
    )


def _changed(row: PredictedReads) -> str:
    """Return what changes, as markup; it is worse if the reading costs more, with its files."""
    text = change(row.bytes_before, row.bytes_after, "to read")
    files = round(row.files_after - row.files_before, 1)
    if files:
        text += f", {counted(abs(files), 'file')} {'fewer' if files < 0 else 'more'}"
    return f'<span class="worse">{text}</span>' if _spared(row) < 0 else text


def _counted(rest: list[PredictedReads]) -> str:
    spared = sum(map(_spared, rest))
    words = f"spares {size(spared)}" if spared >= 0 else f"costs {size(-spared)} more"
    words += " with the opening of files,"
    return (
        f"and {counted(len(rest), 'more predicate')} with {_asked(rest)} of the readings, where the"
        f" rewrite {words} in a mean reading"
    )


def _spared(row: PredictedReads) -> float:
    """Return what this predicate spares a mean reading, in bytes with the opening of files."""
    before = reading_cost(row.bytes_before, row.files_before)
    return row.share * (before - reading_cost(row.bytes_after, row.files_after))
