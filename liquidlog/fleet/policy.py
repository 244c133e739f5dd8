"""A policy of upkeep in TOML: which tables to look at, when to rewrite them, within what budget.

Missing keys have the defaults of `UpkeepPolicy`; all wrong keys are named at once, with what was
expected and found. None is no limit.
"""

import os.path
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from sys import float_info
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta, ValidationError, convert

from liquidlog.errors import DocumentError, StorageError, UsageError
from liquidlog.foresee.verdict import Bar
from liquidlog.operations.rewrite import read_file
from liquidlog.spec.text import parse_duration, parse_size, suggestion
from liquidlog.storage.addresses import is_local, local_path

_DAY_MS: Final = 86_400_000
_WHOLE: Final = 100.0
_LONGEST: Final = 60
"""Errors cut longer values, in characters."""

_GONE: Final = {
    "quiet": "quiet windows are gone: let the schedule start tick only when it may work",
    "back_off": "the back-off is gone, and every run tries each table again: let the schedule wait"
    " longer, or name a table in exclude",
    "rewrite.readings_a_day": "say queries_per_day: all queries of a table in a day",
}
"""Keys of earlier releases, and what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteWhen:
    """The least of any of these that makes a table worth judging.

    `commits` and `age_ms` count since the last rewrite, `age_ms` only if something was committed
    since. The best rewrite must pay back within `payback_days`.
    """

    commits: int | None = None
    unclustered_bytes: int | None = None
    small_file_share: float | None = None
    depth_ratio: float | None = None
    payback_days: float | None = None
    age_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePolicy:
    """When tables are rewritten, and for whose queries; `workload` is their address."""

    when: RewriteWhen
    bar: Bar = field(default_factory=Bar)
    workload: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The most bytes that one run may rewrite, and the minutes within which rewrites may begin."""

    bytes: int | None = None
    minutes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPolicy:
    """A checkpoint is due when the newest is so many commits old."""

    commits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumPolicy:
    """A vacuum is due when the last one is `age_ms` old; `retain` is the command's option."""

    age_ms: int
    retain: str | None = None


DEFAULT_WHEN: Final = RewriteWhen(
    commits=20, unclustered_bytes=1 << 30, small_file_share=0.5, depth_ratio=1.5, age_ms=7 * _DAY_MS
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepPolicy:
    """What to do with which tables, given by addresses and globs; None is not to be done."""

    tables: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rewrite: RewritePolicy | None = field(default_factory=lambda: RewritePolicy(when=DEFAULT_WHEN))
    budget: Budget = field(default_factory=Budget)
    checkpoint: CheckpointPolicy | None = None
    vacuum: VacuumPolicy | None = None


_Text = Annotated[str, Meta(pattern=r"\S")]
_Share = Annotated[float, Meta(gt=0, le=1)]


class _Kind(NamedTuple):
    """A kind of value: its description, its type, and what is made of it."""

    expected: str
    type: Any
    made: Callable[[Any], Any] = lambda value: value


def _share(value: float | str) -> float:
    if isinstance(value, str):
        number = float(value.strip().removesuffix("%"))
        value = number / _WHOLE if value.strip().endswith("%") else number
    return convert(value, _Share)


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

_FIELDS: Final = {"age": "age_ms"}
"""Fields that have another name than their keys."""


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
    """Yield (name, values by field) of a table of TOML and its inner tables; collect problems."""
    kinds, inner, values = _KEYS[name], _TABLES_IN.get(name, ()), dict[str, Any]()
    for key, value in found.items():
        path = f"{name}.{key}" if name else key
        if key in kinds:
            try:
                converted = convert(value, kinds[key].type)
                values[_FIELDS.get(key, key)] = kinds[key].made(converted)
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
