"""Reports of advice: what a layout would save, what it costs, and which queries lose."""

from collections.abc import Iterator
from typing import Final

from liquidlog.advice.advice import SAVED_AS, Advice, Measured
from liquidlog.advice.evidence import Backtest
from liquidlog.foresee.reads import Range
from liquidlog.report.printing import (
    Line,
    Part,
    Report,
    amount,
    listing,
    remarks,
    shortened,
    size,
    verdict,
)
from liquidlog.spec.schema import Path, quote_path
from liquidlog.spec.text import render_size

_SHOWN: Final = 8
_SAVE: Final = (
    f"where {SAVED_AS} is this advice, saved with -o: it has what the layout is fitted to"
)
_LONGEST: Final = 80
_CHANGES_NOTHING: Final = 0.0005
"""One decimal of a percentage does not show smaller shares."""


def advice(found: Advice) -> Report:
    """Show the advice, its reasons and its commands."""
    return (
        *verdict(found.verdict, found.commands),
        *([Line(_SAVE)] if any(SAVED_AS in command for command in found.commands) else []),
        *(Line(line) for line in _backtest(found.backtest)),
        Line(f"now: {_columns(found.current.columns)}"),
        *_best(found),
        *listing(
            ("layout", "files of", "files", "judges read", "choosers read"),
            _candidates(found.candidates),
        ),
        *listing(("column", "beside the others"), _marginal(found)),
        *listing(
            ("waits longer afterwards", "share", "files", "after", "bytes", "after"),
            (
                (
                    shortened(one.where, _LONGEST),
                    f"{one.share:.1%}",
                    amount(one.files_now),
                    amount(one.files_after),
                    size(one.bytes_now),
                    size(one.bytes_after),
                )
                for one in found.losers
            ),
        ),
        *remarks(found.cannot_prune, found.not_usable, found.asked_at),
        *(Line(f"note: {note}") for note in found.notes),
        *([Line(str(found.protocol_change))] if found.protocol_change else []),
    )


def layout_text(one: Measured) -> str:
    """Return a layout in words."""
    of = one.candidate
    words = [_columns(of.columns)]
    if len(of.columns) > 1:
        words.append(f"along {of.curve.value}")
    if of.prefix:
        words.append(f"with the prefix {', '.join(map(quote_path, of.prefix))}")
    if of.is_fitted:
        words.append("fitted to the queries")
    return " ".join(words)


def _columns(paths: tuple[Path, ...]) -> str:
    names = ", ".join(map(quote_path, paths))
    return f"clustered by {names}" if names else "not clustered"


def _backtest(found: Backtest) -> Iterator[str]:
    if found.median_error is None:
        yield "no query records what it read, so no prediction was checked"
        return
    yield (
        f"back-test: {found.scans} recorded scans read {render_size(found.observed_bytes or 0)},"
        f" and the model predicts {render_size(found.predicted_bytes or 0)}; the median error of a"
        f" scan is {found.median_error:.1%}"
    )
    yield from (f"note: {note}" for note in found.notes)


def _best(found: Advice) -> Iterator[Part]:
    if found.best is None:
        return
    what = "then" if found.is_recommended else "the best layout"
    yield Line(f"{what}: {layout_text(found.best)}")
    chosen = {
        "time": f"chosen by the older queries ({found.queries_older} predicates), judged by the"
        f" newest ({found.queries_newest})",
        "shape": f"chosen by {found.queries_older} predicates, judged by {found.queries_newest}",
        "none": "chosen and judged by all, as they are few",
    }[found.parted_by]
    yield Line(
        f"{chosen}: these read {found.current.read_share:.1%} of the table now and"
        f" {found.best.read_share:.1%} then{_between(found.interval)}"
    )
    yield Line(
        f"measured on {found.sampled_rows} rows of {found.sampled_files} files"
        if found.sample == "rows"
        else f"measured on {found.sampled_rows} rows made up from statistics of"
        f" {found.sampled_files} files"
    )


def _between(found: Range | None) -> str:
    if found is None:
        return ""
    return f" (between {found.low:.1%} and {found.high:.1%} in nine of ten cases)"


def _candidates(candidates: tuple[Measured, ...]) -> Iterator[tuple[str, ...]]:
    for one in candidates[:_SHOWN]:
        yield (
            layout_text(one),
            render_size(one.candidate.max_file_bytes),
            str(one.files),
            f"{one.read_share:.1%}",
            f"{one.older_read_share:.1%}",
        )
    if len(candidates) > _SHOWN:
        yield f"and {len(candidates) - _SHOWN} more that cost more", "", "", "", ""


def _marginal(found: Advice) -> Iterator[tuple[str, str]]:
    own = () if found.best is None else found.best.candidate.columns
    for path, gain in found.columns.items():
        place = "" if path in own else " (not in the layout)"
        yield quote_path(path) + place, _saves(gain)


def _saves(gain: float | None) -> str:
    """Return in words how a column changes the wait of queries, a share."""
    if gain is None:
        return "not measured"
    if abs(gain) < _CHANGES_NOTHING:
        return "changes nothing"
    return f"saves {gain:.1%} of the wait" if gain > 0 else f"adds {-gain:.1%} to the wait"
