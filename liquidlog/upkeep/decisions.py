"""What follows from a policy for one table: whether it is worth judging, and what holds it up."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from liquidlog.judgement.verdicts import Bar, Judgement, Option
from liquidlog.spec.text import iso_time, render_size, rough_duration
from liquidlog.upkeep.policy import BackOff, Budget, RewritePolicy, RewriteWhen
from liquidlog.upkeep.windows import QuietWindow

SMALL_PART: Final = 8
"""A file is small that is below this part of the size that the table's files are to have.

Source: Apache Amoro, whose fragments are an eighth of the target size.
"""

_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 86_400_000


class Decision(StrEnum):
    """What becomes of a table."""

    REWRITE = "rewrite"
    PLAN = "plan"
    """A plan was saved; nothing else was done."""
    LEAVE = "leave"
    """There is nothing to do that is worth it, or the table cannot be rewritten."""
    POSTPONE = "postpone"
    """It would be worth it, but not now: budget, quiet window, others at work, back-off."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What triggers are compared with; None is not known, or not what the table has.

    `commits` and `since_last_ms` count since the last rewrite; if the log no longer has one, since
    its oldest commit, and `is_since_rewrite` is false.
    """

    commits: int
    since_last_ms: int | None = None
    is_since_rewrite: bool = True
    unclustered_bytes: int | None = None
    small_files: int = 0
    files: int = 0
    depth_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """A reason to judge a table: the key of the policy, and a sentence with its numbers."""

    name: str
    detail: str


def triggers(when: RewriteWhen, seen: Seen) -> tuple[Trigger, ...]:
    """Return the reasons why a table is worth judging, of those that do not need a judgement."""
    return tuple(_triggers(when, seen))


def _triggers(when: RewriteWhen, seen: Seen) -> Iterator[Trigger]:
    if when.commits is not None and seen.commits >= when.commits:
        since = "the last rewrite" if seen.is_since_rewrite else "the log begins"
        yield Trigger(name="commits", detail=f"{seen.commits} commits since {since}")
    unclustered = seen.unclustered_bytes
    if when.unclustered_bytes is not None and (unclustered or 0) >= when.unclustered_bytes:
        yield Trigger(
            name="unclustered_bytes", detail=f"{render_size(unclustered or 0)} are unclustered"
        )
    if when.small_file_share is not None and seen.files > 1:
        share = seen.small_files / seen.files
        if share >= when.small_file_share:
            detail = f"{seen.small_files} of {seen.files} files are small"
            yield Trigger(name="small_file_share", detail=detail)
    if (
        when.depth_ratio is not None
        and seen.depth_ratio is not None
        and seen.depth_ratio >= when.depth_ratio
    ):
        detail = f"the depth is {seen.depth_ratio:.1f} times that after a full rewrite"
        yield Trigger(name="depth_ratio", detail=detail)
    if (
        when.age_ms is not None
        and seen.commits
        and seen.since_last_ms is not None
        and seen.since_last_ms >= when.age_ms
    ):
        since = "the last rewrite was" if seen.is_since_rewrite else "the oldest commit is from"
        detail = f"{since} {rough_duration(seen.since_last_ms)} ago"
        yield Trigger(name="age", detail=detail)


def payback_trigger(when: RewriteWhen, judgement: Judgement) -> Trigger | None:
    """Return the reason to rewrite that only the judgement can give, None if there is none."""
    best = judgement.best
    if when.payback_days is None or best is None or best.payback_days is None:
        return None
    if best.payback_days > when.payback_days:
        return None
    return Trigger(name="payback_days", detail=f"it pays back in {best.payback_days:.1f} days")


def not_triggered(when: RewriteWhen, seen: Seen) -> str:
    """Return why a table is not worth judging, or not worth rewriting yet, in numbers."""
    found = [f"{seen.commits} commits since the last rewrite"]
    if not seen.is_since_rewrite:
        found = [f"{seen.commits} commits"]
    if when.unclustered_bytes is not None and seen.unclustered_bytes is not None:
        found.append(f"{render_size(seen.unclustered_bytes)} unclustered")
    if when.small_file_share is not None:
        found.append(f"{seen.small_files} of {seen.files} files small")
    if when.depth_ratio is not None and seen.depth_ratio is not None:
        found.append(f"depth ratio {seen.depth_ratio:.1f}")
    return f"nothing of the policy asks for a rewrite: {', '.join(found)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a policy wants of a table: a rewrite or None, what asked for it, and why in any case."""

    rewrite: Option | None
    triggers: tuple[Trigger, ...]
    reason: str


def lasting_bar(bar: Bar, seen: Seen) -> Bar:
    """Return what a rewrite must do to be worth it, as long as what it brings lasts.

    What is appended undoes a rewrite, and the next one takes the same files again. So it must pay
    back within the time since the last one, if that is shorter than the bar's days: a table that
    was rewritten yesterday waits until that is worth it again, or gets a smaller rewrite.
    """
    if seen.since_last_ms is None or not seen.is_since_rewrite:
        return bar
    lasts_days = max(seen.since_last_ms, _MINUTE_MS) / _DAY_MS
    return replace(bar, payback_days=min(bar.payback_days, lasts_days))


def answer(policy: RewritePolicy, seen: Seen, judge: Callable[[Bar], Judgement]) -> Answer:
    """Return what a policy wants of a table; it is judged only if that can change the answer.

    `judge` returns which rewrite meets a bar.
    """
    when = policy.when
    found = triggers(when, seen)
    if not found and when.payback_days is None:
        return Answer(rewrite=None, triggers=(), reason=not_triggered(when, seen))
    judgement = judge(lasting_bar(policy.bar, seen))
    paid = payback_trigger(when, judgement)
    found = found if paid is None else (*found, paid)
    best = judgement.best
    if best is None:
        return Answer(rewrite=None, triggers=found, reason=judgement.sentence)
    if not found:
        return Answer(rewrite=None, triggers=(), reason=not_triggered(when, seen))
    why = "; ".join(trigger.detail for trigger in found)
    reason = f"{why}; {best.name}: {best.reason}"
    return Answer(rewrite=best, triggers=found, reason=reason)


def spared_bytes_a_day(option: Option, readings_a_day: float) -> float:
    """Return what a rewrite spares all readers in a day, the opening of files counted."""
    predicates = max(1, len(option.prediction.predicates))
    return (option.reading_before - option.reading_after) * readings_a_day * predicates


def gain(spared_bytes_a_day: float, size_bytes: int, days: float) -> float:
    """Return the bytes that are spared within so many days per byte rewritten."""
    return spared_bytes_a_day * days / max(1, size_bytes)


@dataclass(slots=True, kw_only=True)
class Spending:
    """What is left of a budget; `begun_ms` is when the run began. Not frozen: it is spent."""

    budget: Budget
    begun_ms: int
    spent_bytes: int = 0

    @property
    def left_bytes(self) -> int | None:
        """The bytes that are left, None without a limit."""
        if self.budget.bytes is None:
            return None
        return max(0, self.budget.bytes - self.spent_bytes)

    def is_over(self, now_ms: int) -> str | None:
        """Return why nothing at all can be begun any more, None if something can."""
        minutes = self.budget.minutes
        if minutes is None or now_ms - self.begun_ms < minutes * _MINUTE_MS:
            return None
        return f"the {minutes:g} minutes of the budget are over"

    def is_spent(self) -> str | None:
        """Return why no rewrite can be begun any more, None if one can."""
        if self.left_bytes != 0:
            return None
        return f"the budget of {render_size(self.budget.bytes or 0)} is spent"


def quiet_until(windows: Sequence[QuietWindow], now_ms: int) -> str | None:
    """Return why nothing may be begun now, None outside all quiet windows."""
    for window in windows:
        if window.holds(now_ms):
            return f"this is a quiet window: {window}"
    return None


def backing_off(policy: BackOff, failures_ms: Sequence[int], now_ms: int) -> str | None:
    """Return why a table is left alone after failures at these times, None if it is not."""
    if not failures_ms:
        return None
    last_ms, count = max(failures_ms), len(failures_ms)
    again_ms = last_ms + policy.wait_ms(count)
    if now_ms >= again_ms:
        return None
    times = "the last run" if count == 1 else f"the last {count} runs"
    return (
        f"{times} failed or died, the last one {rough_duration(now_ms - last_ms)} ago; it is tried"
        f" again from {iso_time(again_ms)} on"
    )
