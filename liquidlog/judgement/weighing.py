"""Weigh one rewrite: what it brings readers against what it costs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from liquidlog.foresee.prediction import EVERYTHING, PredictedReads, Prediction, Range
from liquidlog.judgement.costs import payback_days, plan_cost, reading_cost
from liquidlog.judgement.verdicts import Bar, Judgement, Option
from liquidlog.plan import ClusteringPlan
from liquidlog.spec.text import render_size

NARROW: Final = "assumed"

_MANY: Final = 0.1
_LONGER: Final = 1.2
"""No rewrite is worth it that lets readers of so large a share of the readings wait so much longer.
"""

_NAMED: Final = 4

_TRIVIAL: Final = 0.02
"""Readers may read more bytes by this share of what a reading costs, if they open fewer files."""

_SHORT_DAYS: Final = 10
_LONGEST_SHOWN_DAYS: Final = 3650


def weigh(
    name: str,
    command: str,
    plan: ClusteringPlan,
    prediction: Prediction,
    bar: Bar,
    *,
    arguments: Mapping[str, Any] | None = None,
    share: float = 1.0,
    table_share: float = 1.0,
) -> Option:
    """Return a rewrite as judged.

    Args:
        name: What it is, in short.
        command: The command that makes it.
        plan: All of it.
        prediction: What it brings, or a part of it in a part of the table.
        bar: What it must do to be worth it.
        arguments: Those of Table.plan for it.
        share: How large the part of the plan is; 1 for all of it.
        table_share: How large the part of the table is.
    """
    before = reading_cost(prediction.bytes_before, prediction.files_before)
    bytes_, files = prediction.bytes_after_range, prediction.files_after_range
    after = reading_cost(prediction.bytes_after, prediction.files_after)
    low, high = (
        reading_cost(*ends) for ends in ((bytes_.low, files.low), (bytes_.high, files.high))
    )
    # Groups that were not predicted spare as much per byte as those that were.
    spared = [(before - one) / share for one in (after, low, high)]
    before /= table_share
    after, low, high = (max(0.0, before - one) for one in spared)
    cost, readings = plan_cost(plan), bar.readings_a_day * max(1, len(prediction.predicates))
    days = payback_days(cost, before - after, readings)
    problem = _problem(plan, prediction, before, after, high, days, bar)
    part = "" if share == 1 else f", judged by {share:.1%} of it"
    return Option(
        name=name,
        command=command,
        arguments=arguments or {},
        plan=plan,
        prediction=prediction,
        cost_bytes=cost,
        reading_before=before,
        reading_after=after,
        reading_after_range=Range(min(low, after), max(high, after)),
        judged_share=share,
        net_bytes=(before - after) * readings * bar.payback_days - cost,
        payback_days=days,
        is_worth_it=problem is None,
        reason=(problem or _gain(before, after, cost, days)) + part,
    )


def _problem(
    plan: ClusteringPlan,
    prediction: Prediction,
    before: float,
    after: float,
    high: float,
    days: float | None,
    bar: Bar,
) -> str | None:
    """Return why a rewrite is not worth it, None if it is."""
    if not plan.groups:
        return "there is nothing that it would rewrite"
    worst = _worse_off(prediction)
    if worst is not None:
        return (
            f"who asks for {worst.where} would wait longer: it opens {_size(worst.bytes_after)} in"
            f" {worst.files_after:.3g} files instead of {_size(worst.bytes_before)} in"
            f" {worst.files_before:.3g}"
        )
    read_before, read_after = prediction.bytes_before, prediction.bytes_after
    most = read_before + _TRIVIAL * reading_cost(read_before, prediction.files_before)
    if read_after > most:
        return (
            f"readers would read more, {_size(read_after)} instead of {_size(read_before)} per"
            " reading"
        )
    if after >= before:
        return f"a reading would cost as much as now, {_size(before)} with the opening of files"
    if high >= before:
        return (
            f"it may spare readers nothing: a reading costs {_size(before)} now, and"
            f" {_size(after)} after it, but perhaps {_size(max(high, after))}"
        )
    if days is None or days > bar.payback_days:
        shown = "never" if days is None else f"only after {days_text(days)}"
        return (
            f"it pays back {shown}: it costs {_size(plan_cost(plan))} with its start and takes a"
            f" reading from {_size(before)} to {_size(after)}"
        )
    return None


def _worse_off(prediction: Prediction) -> PredictedReads | None:
    """Return the reader who would wait longest beyond now, of those who may not wait longer.

    They make up a tenth of the readings or more, and would wait longer by more than a fifth.
    """
    worse = [
        row
        for row in prediction.predicates
        if row.share >= _MANY and row.seconds_after > _LONGER * row.seconds_before
    ]
    return max(worse, key=lambda row: row.seconds_after - row.seconds_before, default=None)


def _assumed(names: Sequence[str]) -> str:
    """Return the assumed readers in words."""
    values = [name for name in names if name != EVERYTHING]
    if not values:
        return "full scans"
    more = f" and {len(values) - _NAMED} more columns" if len(values) > _NAMED else ""
    return f"full scans and readers of {', '.join(values[:_NAMED])}{more}"


def _gain(before: float, after: float, cost: float, days: float | None) -> str:
    part = (before - after) / before if before else 0.0
    paid = "" if days is None else f" and pays back in {days_text(days)}"
    return (
        f"a reading costs {_size(after)} instead of {_size(before)} ({-part:+.0%}, the opening of"
        f" files counted), the rewrite {_size(cost)} with its start{paid}"
    )


def days_text(days: float) -> str:
    """Return a number of days for people."""
    if days < 1 / 24:
        return "less than an hour"
    if days < 1:
        hours = round(days * 24)
        return f"{hours} hour{'s' if hours > 1 else ''}"
    if days > _LONGEST_SHOWN_DAYS:
        return "more than ten years"
    return f"{days:.1f} days" if days < _SHORT_DAYS else f"{days:.0f} days"


def chosen(readers: str, bar: Bar, options: Sequence[Option]) -> Judgement:
    """Return the judgement over all options: the best that is worth it, or to leave the table.

    The best spares readers most within the bar's days; of equal ones, the first.
    """
    ranked = tuple(sorted(options, key=lambda one: (not one.is_worth_it, -one.net_bytes)))
    best = ranked[0] if ranked and ranked[0].is_worth_it else None
    return Judgement(
        readers=readers, bar=bar, options=ranked, best=best, reason=_reason(readers, bar, ranked)
    )


def left(reason: str, bar: Bar, readers: str, *, unmeasured: bool = False) -> Judgement:
    """Return the judgement of a table that no rewrite is weighed for, with the reason."""
    return Judgement(
        readers=readers, bar=bar, reason=reason, unmeasured=reason if unmeasured else None
    )


def _reason(readers: str, bar: Bar, ranked: Sequence[Option]) -> str:
    options = [option for option in ranked if option.plan.groups]
    if not options:
        return "there is nothing to rewrite: no strategy would take a file"
    first, each = options[0], "each predicate"
    of = "the workload"
    if readers == NARROW:
        of = _assumed([row.where for row in first.prediction.predicates])
        each = "each of them"
    rate = f"judged for {of}, {bar.readings_a_day:g} readings of {each} a day"
    if first.is_worth_it:
        return f"{first.name}: {first.reason}; {rate}"
    others = len(options) - 1
    more = (
        f", and {others} more option{'s are' if others > 1 else ' is'} no better" if others else ""
    )
    return f"no rewrite is worth it: with {first.name}, {first.reason}{more}; {rate}"


def _size(size_bytes: float) -> str:
    return render_size(round(size_bytes))
