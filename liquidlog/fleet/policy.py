"""A policy of upkeep in TOML, and what it wants of a table, by the table's log.

A policy says which tables to look at, when to rewrite them, and within what budget. Missing keys
have the defaults of `UpkeepPolicy`; None is no limit. One error names all wrong keys. Past work is
read from commitInfo, the newest commits first, and no more than needed.
"""

import math
import os.path
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from sys import float_info
from typing import Annotated, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta, ValidationError, convert

from liquidlog.clustering.columns import UNCLUSTERED, clustering_state, file_states
from liquidlog.clustering.settings import remembered_if_right
from liquidlog.errors import DocumentError, StorageError, UsageError
from liquidlog.foresee.verdict import Bar, Option, Verdict
from liquidlog.log.loader import list_log, read_infos
from liquidlog.operations.inspect import judged_health
from liquidlog.operations.optimize import read_file
from liquidlog.operations.planning import ADVISED
from liquidlog.operations.vacuum import ORPHANS, VACUUM_END, VACUUM_START
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf
from liquidlog.spec.text import parse_duration, parse_size, render_size, rough_duration, suggestion
from liquidlog.storage.addresses import is_local, local_path
from liquidlog.storage.files import TableStore

_DAY_MS: Final = 86_400_000

_GONE: Final = {
    "quiet": "quiet windows are gone: let the schedule start tick only when it may work",
    "back_off": "the back-off is gone, and every run tries each table again: let the schedule wait"
    " longer, or name a table in exclude",
    "rewrite.readings_a_day": "say queries_per_day: all queries of a table in a day",
}
"""Keys of earlier releases, and what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteWhen:
    """Limits: a table is judged if it reaches one of them.

    `commits` and `age_ms` count since the last rewrite, `age_ms` only if commits followed it. The
    last limit is that the best rewrite pays back within `payback_days`.
    """

    commits: int | None = None
    unclustered_bytes: int | None = None
    small_file_share: float | None = None
    depth_ratio: float | None = None
    payback_days: float | None = None
    age_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePolicy:
    """When tables are rewritten, and for which queries; `workload` is their address."""

    when: RewriteWhen
    bar: Bar = field(default_factory=Bar)
    workload: str | None = None


DEFAULT_WHEN: Final = RewriteWhen(
    commits=20, unclustered_bytes=1 << 30, small_file_share=0.5, depth_ratio=1.5, age_ms=7 * _DAY_MS
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepPolicy:
    """What to do with which tables, given by addresses and globs.

    None is no limit, or work that is not wanted. One run rewrites at most `budget_bytes`, and
    begins rewrites within `budget_minutes`. A checkpoint is due `checkpoint_commits` after the
    last, a vacuum `vacuum_age_ms` after the last, with the retention `vacuum_retain`.
    """

    tables: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rewrite: RewritePolicy | None = field(default_factory=lambda: RewritePolicy(when=DEFAULT_WHEN))
    budget_bytes: int | None = None
    budget_minutes: float | None = None
    checkpoint_commits: int | None = None
    vacuum_age_ms: int | None = None
    vacuum_retain: str | None = None


_Text = Annotated[str, Meta(pattern=r"\S")]


class _Kind(NamedTuple):
    """A kind of value: its description, its type, and a function that converts it."""

    expected: str
    type: Any
    made: Callable[[Any], Any] = lambda value: value


def _share(value: float | str) -> float:
    if isinstance(value, str):
        number = float(value.strip().removesuffix("%"))
        value = number / 100 if value.strip().endswith("%") else number
    share: float = convert(value, Annotated[float, Meta(gt=0, le=1)])
    return share


def _retention(text: str) -> str:
    parse_duration(text)
    return text


_TEXT: Final = _Kind("a text", _Text)
_TEXTS: Final = _Kind("a list of texts", tuple[_Text, ...])
_COUNT: Final = _Kind("a whole number from 1", Annotated[int, Meta(ge=1)])
_POSITIVE: Final = _Kind("a number above 0", Annotated[float, Meta(gt=0, le=float_info.max)])
_SIZE: Final = _Kind('bytes or a size like "1.5GiB"', int | _Text, parse_size)
_SHARE: Final = _Kind('a share above 0 and up to 1, like "30%" or 0.3', float | _Text, _share)
_DURATION: Final = _Kind('a duration like "12h" or "7d"', _Text, parse_duration)
_RETENTION: Final = _Kind('a duration like "168h" or "30d"', _Text, _retention)

_KEYS: Final[Mapping[str, Mapping[str, _Kind]]] = {
    "": {"tables": _TEXTS, "exclude": _TEXTS},
    "rewrite": {"payback_days": _POSITIVE, "queries_per_day": _POSITIVE, "workload": _TEXT},
    "rewrite.when": {
        "commits": _COUNT,
        "unclustered_bytes": _SIZE,
        "small_file_share": _SHARE,
        "depth_ratio": _POSITIVE,
        "payback_days": _POSITIVE,
        "age": _DURATION,
    },
    "budget": {"bytes": _SIZE, "minutes": _POSITIVE},
    "checkpoint": {"commits": _COUNT},
    "vacuum": {"age": _DURATION, "retain": _RETENTION},
}
"""The kinds of values, by table and key of a policy."""

_TABLES_IN: Final = {"": ("rewrite", "budget", "checkpoint", "vacuum"), "rewrite": ("when",)}
_NEEDED: Final = {"checkpoint": "commits", "vacuum": "age"}


def _shown(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    longest = 60
    return text if len(text) <= longest else f"{text[:longest]}…"


def read_policy(path: str) -> UpkeepPolicy:
    try:
        policy = parse_policy(read_file(path).decode(), path)
    except (DocumentError, StorageError) as error:
        raise _wrong(path, error.detail) from error
    except UnicodeDecodeError as error:
        raise _wrong(path, f"is not TOML: it is not UTF-8 at byte {error.start}") from error
    home = os.path.dirname(os.path.abspath(local_path(path)))  # noqa: PTH100, PTH120
    rewrite = policy.rewrite
    if rewrite is not None and rewrite.workload is not None:
        rewrite = replace(rewrite, workload=_from(home, rewrite.workload))
    return replace(
        policy,
        tables=tuple(_from(home, address) for address in policy.tables),
        exclude=tuple(_from(home, address) for address in policy.exclude),
        rewrite=rewrite,
    )


def _from(home: str, address: str) -> str:
    """Return an address relative to a directory; absolute paths and URIs stay as they are."""
    is_whole = not is_local(address) or "://" in address or address.startswith(("~", "file:"))
    return address if is_whole else os.path.join(home, address)  # noqa: PTH118


def parse_policy(text: str, where: str) -> UpkeepPolicy:
    """Return the policy in a text; errors name the file `where`."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _wrong(where, f"is not TOML: {error}") from error
    except RecursionError:
        raise _wrong(where, "is not TOML that can be read: it nests too deeply") from None
    problems: list[str] = []
    sections = dict(_sections(found, "", problems))
    if problems:
        raise _wrong(where, "; ".join(problems))
    return _policy(sections)


def _wrong(where: str, detail: str) -> UsageError:
    return UsageError(f"{where}: {detail}", policy=where)


def _sections(
    found: Mapping[str, Any], name: str, problems: list[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, values by field) of a table of TOML and its inner tables; add problems."""
    kinds, inner, values = _KEYS[name], _TABLES_IN.get(name, ()), dict[str, Any]()
    for key, value in found.items():
        path = f"{name}.{key}" if name else key
        if key in kinds:
            try:
                converted = convert(value, kinds[key].type)
                values["age_ms" if key == "age" else key] = kinds[key].made(converted)
            except (ValidationError, ValueError, UsageError, OverflowError):
                problems.append(f"{path}: expected {kinds[key].expected}, found {_shown(value)}")
        elif key not in inner:
            near = suggestion(key, [*kinds, *inner], what="keys here")
            problems.append(f"{path}: {_GONE.get(path) or f'there is no such key{near}'}")
        elif isinstance(value, dict):
            yield from _sections(value, path, problems)
        elif path == "rewrite" and value is False:
            values["rewrite"] = None
        else:
            problems.append(f"{path}: expected a table, as [{path}], found {_shown(value)}")
    problems.extend(_missing(found, name))
    yield name, values


def _missing(found: Mapping[str, Any], name: str) -> Iterator[str]:
    needed = _NEEDED.get(name)
    if needed is not None and needed not in found:
        yield f"{name}.{needed}: expected {_KEYS[name][needed].expected}, found nothing"
    if name == "rewrite.when" and not found:
        yield f"{name}: expected at least one key, found none; leave the table out for the defaults"


def _policy(sections: Mapping[str, dict[str, Any]]) -> UpkeepPolicy:
    rewrite = dict(sections.get("rewrite", {}))
    workload, limits = rewrite.pop("workload", None), sections.get("rewrite.when")
    when = DEFAULT_WHEN if limits is None else RewriteWhen(**limits)
    asked = RewritePolicy(when=when, bar=Bar(**rewrite), workload=workload)
    others = {
        f"{name}_{key}": value
        for name in ("budget", "checkpoint", "vacuum")
        for key, value in sections.get(name, {}).items()
    }
    return UpkeepPolicy(**{"rewrite": asked, **sections[""], **others})


# What follows from a policy

_MINUTE_MS: Final = 60_000
MOST_COMMITS: Final = 1_000
"""The most commits that are read: a table may have one per second."""

_OPTIMIZE: Final = "OPTIMIZE"
_TOGETHER: Final = 16


class Decision(StrEnum):
    """What becomes of a table."""

    REWRITE = "rewrite"
    PLAN = "plan"
    """Only a plan was saved."""
    LEAVE = "leave"
    """No rewrite is worth it, or the table cannot be rewritten."""
    POSTPONE = "postpone"
    """A rewrite is worth it, but not now: the budget is spent, or others are at work."""
    FAIL = "fail"


@dataclass(slots=True, kw_only=True)
class PastWork:
    """What the newest commits did.

    `commits_since` counts the commits that changed files after the last rewrite, which was
    committed at `since_ms` as version `last_rewrite`. If no rewrite was read, `last_rewrite` is
    None, and all read commits count.
    """

    commits_since: int = 0
    since_ms: int | None = None
    commits_since_checkpoint: int = 0
    last_rewrite: int | None = None
    last_vacuum_ms: int | None = None

    def take(self, version: int, operation: str | None, at_ms: int) -> None:
        """Count a commit that is older than all counted ones."""
        if operation == VACUUM_START and self.last_vacuum_ms is None:
            self.last_vacuum_ms = at_ms
        if self.last_rewrite is None:
            self.since_ms = at_ms
            # These change no file, so they are no reason for a rewrite.
            self.commits_since += operation not in {VACUUM_START, VACUUM_END, ORPHANS, _OPTIMIZE}
            self.last_rewrite = version if operation == _OPTIMIZE else None


def past_work(
    store: TableStore, *, enough: Callable[[PastWork], bool] = lambda _: False
) -> PastWork:
    """Return what the newest commits did; reads commits until `enough` is true."""
    listing = list_log(store)
    newest_first = sorted(listing.commits, reverse=True)[:MOST_COMMITS]
    checkpoint = listing.checkpoints[0].version if listing.checkpoints else -1
    past = PastWork(commits_since_checkpoint=listing.newest - checkpoint)
    for start in range(0, len(newest_first), _TOGETHER):
        versions = newest_first[start : start + _TOGETHER]
        for version, info in zip(versions, read_infos(store, versions), strict=True):
            own_ms = info.get("inCommitTimestamp")
            at_ms = listing.commits[version].modification_time_ms
            past.take(version, info.get("operation"), own_ms if isinstance(own_ms, int) else at_ms)
        if enough(past):
            break
    return past


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The numbers that a policy limits; None is unknown, or does not apply.

    `commits` and `since_last_ms` count from the last rewrite, or, unless `is_since_rewrite`, from
    the log's oldest commit.
    """

    commits: int
    since_last_ms: int | None = None
    is_since_rewrite: bool = True
    unclustered_bytes: int | None = None
    small_files: int = 0
    files: int = 0
    depth_ratio: float | None = None


def seen_of(
    snapshot: Snapshot, past: PastWork, when: RewriteWhen, bounds_of: BoundsOf, now_ms: int
) -> Seen:
    """Return the numbers that a policy limits; the depth ratio only if `when` limits it."""
    columns = clustering_state(snapshot).columns
    sizes = snapshot.files["size"]
    # As in Apache Amoro, files below an eighth of the target size are small.
    small = pc.less(sizes, remembered_if_right(snapshot, "max_file_bytes") // 8)
    unclustered_bytes = None
    if columns:
        mask = pc.equal(file_states(snapshot, columns, 0), pa.scalar(UNCLUSTERED))
        unclustered_bytes = int(pc.sum(sizes.filter(mask)).as_py() or 0)
    return Seen(
        commits=past.commits_since,
        since_last_ms=None if past.since_ms is None else max(0, now_ms - past.since_ms),
        is_since_rewrite=past.last_rewrite is not None,
        unclustered_bytes=unclustered_bytes,
        small_files=pc.sum(small).as_py() or 0,
        files=snapshot.files.num_rows,
        depth_ratio=depth_ratio(snapshot, bounds_of) if when.depth_ratio else None,
    )


def depth_ratio(snapshot: Snapshot, bounds_of: BoundsOf) -> float | None:
    """Return the depth divided by the depth after a full rewrite, None without columns."""
    columns = clustering_state(snapshot).columns
    if not snapshot.files.num_rows or not columns:
        return None
    bounds = bounds_of([column.leaf for column in columns])
    least = remembered_if_right(snapshot, "min_cube_bytes")
    return judged_health(snapshot, columns, bounds, min_cube_bytes=least).depth_ratio


def _compared(when: RewriteWhen, seen: Seen) -> Mapping[str, tuple[str, bool]]:
    """Return in words each number that a policy limits, and whether it reaches the limit."""
    share = seen.small_files / seen.files if seen.files > 1 else None
    age_ms = seen.since_last_ms if seen.commits else None
    since, last = "the log begins", "the oldest commit is from"
    if seen.is_since_rewrite:
        since, last = "the last rewrite", "the last rewrite was"
    commits = "1 commit" if seen.commits == 1 else f"{seen.commits} commits"
    texts = {
        "commits": f"{commits} since {since}",
        "unclustered_bytes": f"{render_size(seen.unclustered_bytes or 0)} are unclustered",
        "small_file_share": f"{seen.small_files} of {seen.files} files are small",
        "depth_ratio": f"the depth is {seen.depth_ratio or 0:.1f} times that after a full rewrite",
        "age": f"{last} {rough_duration(age_ms or 0)} ago",
    }
    numbers: Mapping[str, tuple[float | None, float | None]] = {
        "commits": (seen.commits, when.commits or math.inf),
        "unclustered_bytes": (seen.unclustered_bytes, when.unclustered_bytes),
        "small_file_share": (share, when.small_file_share),
        "depth_ratio": (seen.depth_ratio, when.depth_ratio),
        "age": (age_ms, when.age_ms),
    }
    return {
        name: (texts[name], found >= limit)
        for name, (found, limit) in numbers.items()
        if found is not None and limit is not None
    }


def triggers(when: RewriteWhen, seen: Seen) -> dict[str, str]:
    """Return the reasons to judge a table, by the policy's key."""
    return {name: text for name, (text, is_met) in _compared(when, seen).items() if is_met}


def not_triggered(when: RewriteWhen, seen: Seen) -> str:
    texts = ", ".join(text for text, _ in _compared(when, seen).values())
    return f"the policy asks for no rewrite: {texts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a policy wants of a table: a rewrite or None, with its triggers and the reason.

    `verdict` is None if it was not needed. The rewrite reaches `bar`; it `is_early` if it comes
    too soon after the last.
    """

    reason: str
    rewrite: Option | None = None
    triggers: Mapping[str, str] = field(default_factory=dict)
    verdict: Verdict | None = None
    bar: Bar | None = None
    is_early: bool = False


def lasting_bar(bar: Bar, seen: Seen) -> Bar:
    """Return the bar of a rewrite: it must pay back in no more time than passed since the last.

    Appends undo a rewrite, and the next rewrite takes the same files again. So a table that was
    rewritten yesterday waits, or gets a smaller rewrite.
    """
    if seen.since_last_ms is None or not seen.is_since_rewrite:
        return bar
    lasts_days = max(seen.since_last_ms, _MINUTE_MS) / _DAY_MS
    return _within(bar, min(bar.payback_days, lasts_days))


def _within(bar: Bar, days: float) -> Bar:
    queries = bar.payback_queries * days / bar.payback_days
    return replace(bar, payback_days=days, payback_queries=queries)


def answer(policy: RewritePolicy, seen: Seen, judge: Callable[[Bar], Verdict]) -> Answer:
    """Return what a policy wants of a table; judges it only if that can change the answer.

    Only rewrites by the table's own columns count: people set new clustering columns.
    """
    when = policy.when
    found = triggers(when, seen)
    if not found and when.payback_days is None:
        return Answer(reason=not_triggered(when, seen))
    verdict = judge(policy.bar)
    lasting = lasting_bar(policy.bar, seen)
    own = [one for one in verdict.options if one.is_worth_it and one.name != ADVISED]
    best = next((one for one in own if one.pays_back(lasting)), None)
    days = when.payback_days
    if best is not None and days is not None and best.pays_back(_within(best.bar, days)):
        found["payback_days"] = f"it pays back after {best.payback_text()}"
    reason, is_early = verdict.sentence, best is None and bool(own)
    if best is not None and not found:
        best, reason = None, not_triggered(when, seen)
    elif best is not None and best is not verdict.best:
        reason += f" For now, {best.name}: {best.gain()}."
    elif is_early:
        ago = rough_duration(seen.since_last_ms or 0)
        reason += f" Not yet: the last one was {ago} ago, and this one takes longer to pay back."
    elif best is None and verdict.best is not None:
        reason += " Set these columns yourself: tick does not."
    return Answer(
        reason=reason, rewrite=best, triggers=found, verdict=verdict, bar=lasting, is_early=is_early
    )


def rank(option: Option) -> float:
    """Return a sort key: the payback as a share of the allowed time."""
    return (option.payback_queries or 0.0) / option.bar.most_queries(option.per_day)


@dataclass(slots=True, kw_only=True)
class Spending:
    """A budget, and what a run has spent of it; None is no limit."""

    begun_ms: int
    bytes: int | None = None
    minutes: float | None = None
    spent_bytes: int = 0

    @property
    def left_bytes(self) -> int | None:
        return None if self.bytes is None else max(0, self.bytes - self.spent_bytes)

    def is_over(self, now_ms: int) -> str | None:
        """Return why nothing can begin any more, None before the time is over."""
        minutes = self.minutes
        if minutes is None or now_ms - self.begun_ms < minutes * _MINUTE_MS:
            return None
        return f"the {minutes:g} minutes of the budget are over"

    def is_spent(self) -> str | None:
        """Return why no rewrite can begin any more, None if bytes are left."""
        if self.left_bytes != 0:
            return None
        return f"the budget of {render_size(self.bytes or 0)} is spent"
