"""A policy of upkeep: which tables are looked at, when they are rewritten, what that may take.

It is a file of TOML. What it does not say has the defaults of `UpkeepPolicy`; every wrong key is
named at once, with what was expected and found. Sizes are bytes and times milliseconds, unless a
name says otherwise. A limit that is None is none.
"""

import math
import os.path
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

from liquidlog.errors import DocumentError, StorageError, UsageError
from liquidlog.judgement.verdicts import PAYBACK_DAYS, READINGS_A_DAY, Bar
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


_WHEN: Final[Mapping[str, tuple[str, _Kind[Any]]]] = {
    "commits": ("commits", _COUNT),
    "unclustered_bytes": ("unclustered_bytes", _SIZE),
    "small_file_share": ("small_file_share", _SHARE),
    "depth_ratio": ("depth_ratio", _POSITIVE),
    "payback_days": ("payback_days", _POSITIVE),
    "age": ("age_ms", _DURATION),
}
"""Keys of `[rewrite.when]`: the field of RewriteWhen, and the kind of value."""


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
    policy = _policy(_Section(found, "", problems))
    if problems:
        raise _wrong(where, "; ".join(problems))
    return policy


def _wrong(where: str, detail: str) -> UsageError:
    """Return the error of a file that is no policy: trying again brings nothing."""
    return UsageError(f"{where}: {detail}", policy=where)


class _Section:
    """A table of TOML, whose keys are taken one by one; problems are added to a shared list."""

    def __init__(self, found: Mapping[str, Any], name: str, problems: list[str]) -> None:
        self._found = found
        self._name = name
        self._problems = problems
        self._known: list[str] = []

    def take(self, key: str, kind: _Kind[T], default: T) -> T:
        """Return the value of a key, the default without it or if it is wrong."""
        found = self.find(key, kind)
        return default if found is None else found

    def find(self, key: str, kind: _Kind[T]) -> T | None:
        """Return the value of a key, None without it or if it is wrong."""
        self._known.append(key)
        if key not in self._found:
            return None
        try:
            return _parsed(kind, self._found[key])
        except ValueError as error:
            self._problems.append(f"{self._path(key)}: {error}")
            return None

    def need(self, key: str, kind: _Kind[T], otherwise: T) -> T:
        """Return the value of a key that must be there; `otherwise` if it is not, or is wrong."""
        if key not in self._found:
            expected = f"expected {kind.expected}, found nothing"
            self._problems.append(f"{self._path(key)}: {expected}")
        return self.take(key, kind, otherwise)

    def is_off(self, key: str) -> bool:
        """Return whether a key that is else a table is false."""
        self._known.append(key)
        return self._found.get(key) is False

    def section(self, key: str) -> "_Section | None":
        """Return the table of a key, None without it."""
        self._known.append(key)
        found = self._found.get(key)
        if found is None:
            return None
        if not isinstance(found, dict):
            shown = f"expected a table, as [{self._path(key)}], found {found!r}"
            self._problems.append(f"{self._path(key)}: {shown}")
            return None
        return _Section(found, self._path(key), self._problems)

    def refuse(self, problem: str) -> None:
        """Note a problem of this table as a whole."""
        self._problems.append(f"{self._name}: {problem}")

    def is_empty(self) -> bool:
        """Return whether the table has no key at all."""
        return not self._found

    def done(self) -> None:
        """Note the keys that nothing has taken."""
        for key in self._found.keys() - set(self._known):
            gone = None if self._name else _GONE.get(key)
            near = suggestion(key, self._known, what="keys here")
            self._problems.append(f"{self._path(key)}: {gone or f'there is no such key{near}'}")

    def _path(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def _policy(top: _Section) -> UpkeepPolicy:
    made = UpkeepPolicy(
        tables=top.take("tables", _TEXTS, ()),
        exclude=top.take("exclude", _TEXTS, ()),
        budget=_read(top, "budget", _budget, Budget()),
        checkpoint=_read(top, "checkpoint", _checkpoint, None),
        vacuum=_read(top, "vacuum", _vacuum, None),
    )
    if top.is_off("rewrite"):
        made = replace(made, rewrite=None)
    else:
        usual = RewritePolicy(when=DEFAULT_WHEN)
        made = replace(made, rewrite=_read(top, "rewrite", _rewrite, usual))
    top.done()
    return made


def _read(top: _Section, key: str, read: Callable[[_Section], T], default: T) -> T:
    section = top.section(key)
    if section is None:
        return default
    made = read(section)
    section.done()
    return made


def _rewrite(section: _Section) -> RewritePolicy:
    bar = Bar(
        payback_days=section.take("payback_days", _POSITIVE, PAYBACK_DAYS),
        readings_a_day=section.take("readings_a_day", _POSITIVE, READINGS_A_DAY),
    )
    return RewritePolicy(
        when=_read(section, "when", _when, DEFAULT_WHEN),
        bar=bar,
        workload=section.find("workload", _TEXT),
    )


def _when(section: _Section) -> RewriteWhen:
    if section.is_empty():
        section.refuse(
            "expected at least one key, found none; leave the table out for the defaults"
        )
    return RewriteWhen(**{name: section.find(key, kind) for key, (name, kind) in _WHEN.items()})


def _budget(section: _Section) -> Budget:
    return Budget(
        bytes=section.find("bytes", _SIZE),
        minutes=section.find("minutes", _POSITIVE),
    )


def _checkpoint(section: _Section) -> CheckpointPolicy:
    return CheckpointPolicy(commits=section.need("commits", _COUNT, 1))


def _vacuum(section: _Section) -> VacuumPolicy:
    return VacuumPolicy(
        age_ms=section.need("age", _DURATION, 0),
        retain=section.find("retain", _RETENTION),
    )
