"""The first section of the report's page: whether to rewrite, what it brings, and what it costs."""

from collections.abc import Callable, Iterable
from typing import Final

from liquidlog.clustering.planning.read_model import OPEN_COST_BYTES
from liquidlog.judgement.verdicts import Bar, Judgement, Option
from liquidlog.report import shapes
from liquidlog.report.page_parts import (
    command,
    counted,
    days,
    hint,
    mean,
    more,
    number,
    share,
    size,
)
from liquidlog.simulation.ranges import Range
from liquidlog.spec.text import escaped, html_table

_OTHERS_LISTED: Final = 12


def answer(judgement: Judgement | None, problem: str | None) -> str:
    """Return the section; `problem` says why nothing was judged, if `judgement` is None."""
    if judgement is None:
        return _card("unmeasured", "Not measured", _reason(problem or "nothing was judged"))
    if judgement.unmeasured is not None:
        return _card("unmeasured", "Not measured", _reason(judgement.unmeasured))
    shown = judgement.shown
    headline = "Leave it" if judgement.best is None else "Rewrite"
    parts = [_reason(judgement.reason)]
    if shown is not None:
        parts.append(_effects(judgement, shown))
    if judgement.best is not None:
        parts.append("<h3>Do it with</h3>" + command(judgement.best.command))
    elif shown is not None:
        parts.append(_rejected(shown))
    others = [option for option in judgement.options if option is not shown]
    if others:
        parts.append(_others(others))
    return _card("leave" if judgement.best is None else "rewrite", headline, *parts)


class Whole:
    """What readers read after all of a rewrite of which only a part was predicted."""

    def __init__(self, option: Option) -> None:
        found, self._part = option.prediction, option.judged_share
        self.bytes_after = self.of(found.bytes_before, found.bytes_after)
        self.files_after = self.of(found.files_before, found.files_after)
        self.bytes_after_range = self.ends(found.bytes_before, found.bytes_after_range)
        self.files_after_range = self.ends(found.files_before, found.files_after_range)

    def of(self, before: float, after: float) -> float:
        """Return what is read after all of it, from what is read after the part."""
        return max(0.0, before - (before - after) / self._part)

    def ends(self, before: float, after: Range) -> Range:
        """Return a range after all of it, from that after the part."""
        return Range(self.of(before, after.low), self.of(before, after.high))


def _card(style: str, headline: str, *parts: str) -> str:
    return (
        f'<section class="answer {style}"><p class="question">Should I rewrite?</p>'
        f"<h2>{headline}</h2>{''.join(parts)}</section>"
    )


def _reason(text: str) -> str:
    return f'<p class="reason">{escaped(sentence(text))}</p>'


def sentence(text: str) -> str:
    """Return a text with a capital letter in front and a full stop behind."""
    whole = text[:1].upper() + text[1:]
    return whole if not whole or whole[-1] in ".!?" else f"{whole}."


def _effects(judgement: Judgement, option: Option) -> str:
    would = "" if option is judgement.best else " would"
    return (
        f'<div class="pair"><div><h3>What it{would} bring{"" if would else "s"}</h3>'
        f"{_brings(judgement, option)}</div>"
        f"<div><h3>What it{would} cost{'' if would else 's'}</h3>"
        f"{_costs(judgement.bar, option)}</div></div>"
    )


def _brings(judgement: Judgement, option: Option) -> str:
    found, whole = option.prediction, Whole(option)
    before, after, ends = option.reading_before, option.reading_after, option.reading_after_range
    most = max(before, after, ends.high) or 1.0
    readers = (
        "Mean reading of your workload"
        if judgement.readers == "workload"
        else "Mean reading of one value of a clustering column"
    )
    bytes_, files = whole.bytes_after_range, whole.files_after_range
    read = f"{size(found.bytes_before)} → {size(whole.bytes_after)} ({between(bytes_, size)})"
    opened = f"{mean(found.files_before)} → {mean(whole.files_after)} ({between(files, mean)})"
    return (
        f'<p class="figure{" worse" if after > before else ""}">'
        f"{change(before, after, 'per reading')}</p>"
        + hint(
            f"{readers}, with {size(OPEN_COST_BYTES)} for each file that is opened. The line, and"
            " what is in brackets, is where it lies in nine of ten cases."
        )
        + '<div class="reading">'
        + amount_row("now", size(before), before / most)
        + amount_row("after", size(after), after / most, (ends.low / most, ends.high / most))
        + "</div>"
        + _listed((("bytes read", read), ("files opened", opened)))
        + _from_part(option.judged_share)
    )


def _listed(rows: Iterable[tuple[str, str]]) -> str:
    shown = "".join(
        f"<div><dt>{escaped(name)}</dt><dd>{escaped(text)}</dd></div>" for name, text in rows
    )
    return f"<dl>{shown}</dl>"


def _from_part(part: float) -> str:
    if part >= 1:
        return ""
    return hint(
        f"Predicted from {share(part)} of the bytes that it rewrites; the others are taken to come"
        " out alike."
    )


def between(ends: Range, told: Callable[[float], str]) -> str:
    """Return both ends of a range, or one text if people read the same."""
    low, high = told(ends.low), told(ends.high)
    return low if low == high else f"{low} to {high}"


def change(before: float, after: float, noun: str) -> str:
    """Return by how much it becomes less or more."""
    if before == after or not before:
        return f"no change {noun}"
    word = "less" if after < before else "more"
    return f"{share(abs(before - after) / before)} {word} {noun}"


def amount_row(
    name: str, told: str, part: float, spread: tuple[float, float] | None = None, files: str = ""
) -> str:
    """Return a bar with its name and what it stands for; `part` is its share of the scale."""
    style = "now" if name == "now" else "bar"
    return (
        f'<span class="side">{escaped(name)}</span>{shapes.bar(part, spread, style=style)}'
        f'<span class="amount">{escaped(told)}'
        + (f" <small>{escaped(files)}</small>" if files else "")
        + "</span>"
    )


def _costs(bar: Bar, option: Option) -> str:
    plan = option.plan
    inputs = sum(len(group.inputs) for group in plan.groups)
    outputs = sum(group.expected_outputs for group in plan.groups)
    rows = (
        ("rewritten", f"{counted(inputs, 'file')}, {size(plan.size_bytes)}"),
        ("written", counted(outputs, "file")),
        ("start, reads, writes, opening of files", size(option.cost_bytes)),
    )
    rate = f"{number(bar.readings_a_day)} readings of each predicate a day"
    paid = (
        "never paid back"
        if option.payback_days is None
        else f"paid back in {days(option.payback_days)}"
    )
    figure = f"{size(option.cost_bytes)}, {paid}"
    return (
        f'<p class="figure">{figure}</p>'
        + hint(f"At {rate}; worth it up to {days(bar.payback_days)}.")
        + _listed(rows)
    )


def _rejected(option: Option) -> str:
    return more(
        "the rewrite that was judged",
        f"<p>{escaped(sentence(option.reason))}</p>{command(option.command)}",
    )


def _others(options: list[Option]) -> str:
    rows = [
        (
            option.name,
            size(Whole(option).bytes_after),
            size(option.cost_bytes),
            "never" if option.payback_days is None else days(option.payback_days),
            "yes" if option.is_worth_it else "no",
            option.reason,
            option.command,
        )
        for option in options[:_OTHERS_LISTED]
    ]
    headings = ("", "a reading after", "costs", "pays back in", "worth it", "why", "command")
    return more(f"{counted(len(options), 'other rewrite')} judged", html_table(headings, rows))
