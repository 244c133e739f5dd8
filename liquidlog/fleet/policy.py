"""A policy of upkeep: which tables are looked at, when they are rewritten, what that may take.

It is a file of TOML. What it does not say has the defaults of `UpkeepPolicy`; every wrong key is
named at once, with what was expected and found. Sizes are bytes and times milliseconds, unless a
name says otherwise. A limit that is None is none.
"""

import math
import os.path
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

from liquidlog.errors import DocumentError, StorageError, UsageError
from liquidlog.foresee.verdict import Bar
from liquidlog.operations.rewrite import read_file
from liquidlog.spec.text import parse_duration, parse_size, suggestion
from liquidlog.storage.addresses import is_local, local_path

T = TypeVar("T")

_DAY_MS: Final = 86_400_000
_WHOLE: Final = 100.0
_LONGEST: Final = 60
"""Longer values are cut in errors, in characters."""

_GONE: Final = {
    "quiet": "quiet windows are gone: let the schedule start tick only when it may work",
    "back_off": "the back-off is gone, and every run tries each table again: let the schedule wait"
    " longer, or name a table in exclude",
    "rewrite.readings_a_day": "say queries_per_day: all queries of a table in a day",
}
"""Keys that there were, and what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteWhen:
    """What makes a table worth judging: any of these, each at least so much.

    `commits` and `age_ms` count since the last rewrite, whoever made it; `age_ms` only if something
    was committed since. `unclustered_bytes` and `depth_ratio` are those of the health,
    `small_file_share` is that of files below SMALL_FILE_BYTES among all. Within `payback_days` the
    best rewrite must have paid back.
    """

    commits: int | None = None
    unclustered_bytes: int | None = None
    small_file_share: float | None = None
    depth_ratio: float | None = None
    payback_days: float | None = None
    age_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePolicy:
    """When tables are rewritten, and for whom that must be worth it.

    `workload` is where the readers' predicates are, in the form that commands take.
    """

    when: RewriteWhen
    bar: Bar = field(default_factory=Bar)
    workload: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one run may take: bytes of the files to rewrite, and minutes to begin rewrites in."""

    bytes: int | None = None
    minutes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPolicy:
    """A checkpoint is made when the newest is so many commits old."""

    commits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumPolicy:
    """A vacuum is made when the last that deleted something is `age_ms` old.

    It keeps files for `retain`, a duration as the command takes it; as the table says if None.
    """

    age_ms: int
    retain: str | None = None


DEFAULT_WHEN: Final = RewriteWhen(
    commits=20, unclustered_bytes=1 << 30, small_file_share=0.5, depth_ratio=1.5, age_ms=7 * _DAY_MS
)
"""What makes a table worth judging if a policy does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepPolicy:
    """What a run of upkeep does with which tables.

    `tables` and `exclude` are addresses, or globs of them. `rewrite`, `checkpoint` and `vacuum` are
    None where nothing of that kind is to be done.
    """

    tables: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rewrite: RewritePolicy | None = field(default_factory=lambda: RewritePolicy(when=DEFAULT_WHEN))
    budget: Budget = field(default_factory=Budget)
    checkpoint: CheckpointPolicy | None = None
    vacuum: VacuumPolicy | None = None


class _Kind(NamedTuple, Generic[T]):
    """A kind of value: what is expected, in words, and what parses it.

    `parse` raises ValueError for whatever is not of this kind.
    """

    expected: str
    parse: Callable[[object], T]


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(value)
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(value)
    return value


def _positive(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(value)
    return float(value)


def _size(value: object) -> int:
    return parse_size(value if isinstance(value, int) else _text(value))


def _duration(value: object) -> int:
    return parse_duration(_text(value))


def _share(value: object) -> float:
    if isinstance(value, str):
        share = float(value.strip().removesuffix("%")) / (
            _WHOLE if value.strip().endswith("%") else 1
        )
    elif isinstance(value, int | float) and not isinstance(value, bool):
        share = float(value)
    else:
        raise ValueError(value)  # noqa: TRY004  the one error of all kinds
    if not 0 < share <= 1:
        raise ValueError(value)
    return share


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(value)  # noqa: TRY004
    return tuple(map(_text, value))


def _retention(value: object) -> str:
    text = _text(value)
    parse_duration(text)
    return text


_TEXT: Final = _Kind("a text", _text)
_TEXTS: Final = _Kind("a list of texts", _texts)
_COUNT: Final = _Kind("a whole number from 1", _count)
_POSITIVE: Final = _Kind("a number above 0", _positive)
_SIZE: Final = _Kind('bytes or a size like "1.5GiB"', _size)
_SHARE: Final = _Kind('a share above 0 and up to 1, like "30%" or 0.3', _share)
_DURATION: Final = _Kind('a duration like "12h" or "7d"', _duration)
_RETENTION: Final = _Kind('a duration like "168h" or "30d"', _retention)

_KEYS: Final[Mapping[str, Mapping[str, _Kind[Any]]]] = {
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
"""The tables of a policy, and the kinds of their keys' values."""

_NEEDED: Final = {"checkpoint": "commits", "vacuum": "age"}
"""Keys that their tables must have."""

_FIELDS: Final = {"age": "age_ms"}
"""Fields that are not called as their keys."""


def _parsed(kind: _Kind[T], value: object) -> T:
    """Return a value of a kind."""
    try:
        return kind.parse(value)
    except (ValueError, UsageError, OverflowError):
        raise ValueError(f"expected {kind.expected}, found {_shown(value)}") from None


def _shown(value: object) -> str:
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def read_policy(path: str) -> UpkeepPolicy:
    """Return the policy in a file of TOML."""
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
    """Return an address as seen from a directory; whole paths and URIs are as they are."""
    is_whole = not is_local(address) or "://" in address or address.startswith(("~", "file:"))
    return address if is_whole else os.path.join(home, address)  # noqa: PTH118


def parse_policy(text: str, where: str) -> UpkeepPolicy:
    """Return the policy in a text; what it does not say has the defaults of UpkeepPolicy.

    `where` is the file that errors name.
    """
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
    """Return the error of a file that is no policy: trying again brings nothing."""
    return UsageError(f"{where}: {detail}", policy=where)


def _sections(
    found: Mapping[str, Any], name: str, problems: list[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name, values by field) of a table of TOML and of those in it; note what is wrong."""
    kinds, values = _KEYS[name], dict[str, Any]()
    for key, value in found.items():
        path = f"{name}.{key}" if name else key
        if key in kinds:
            try:
                values[_FIELDS.get(key, key)] = _parsed(kinds[key], value)
            except ValueError as error:
                problems.append(f"{path}: {error}")
        elif key not in _tables_in(name):
            near = suggestion(key, [*kinds, *_tables_in(name)], what="keys here")
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
    """Yield what a table of TOML must have and has not."""
    needed = _NEEDED.get(name)
    if needed is not None and needed not in found:
        yield f"{name}.{needed}: expected {_KEYS[name][needed].expected}, found nothing"
    if name == "rewrite.when" and not found:
        yield f"{name}: expected at least one key, found none; leave the table out for the defaults"


def _tables_in(name: str) -> list[str]:
    """Return the keys of a table that are tables themselves."""
    below = f"{name}." if name else ""
    inner = (path.removeprefix(below) for path in _KEYS if path.startswith(below))
    return [key for key in inner if key and "." not in key]


def _policy(sections: Mapping[str, dict[str, Any]]) -> UpkeepPolicy:
    """Return the policy of values that are right."""
    rewrite = dict(sections.get("rewrite", {}))
    workload, when = rewrite.pop("workload", None), sections.get("rewrite.when")
    asked = RewritePolicy(
        when=DEFAULT_WHEN if when is None else RewriteWhen(**when),
        bar=Bar(**rewrite),
        workload=workload,
    )
    checkpoint, vacuum = sections.get("checkpoint"), sections.get("vacuum")
    return UpkeepPolicy(
        **{"rewrite": asked, **sections[""]},
        budget=Budget(**sections.get("budget", {})),
        checkpoint=None if checkpoint is None else CheckpointPolicy(**checkpoint),
        vacuum=None if vacuum is None else VacuumPolicy(**vacuum),
    )
