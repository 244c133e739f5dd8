"""From the text of a policy, which is TOML, to a policy; every wrong key is named at once."""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import time
from typing import Any, Final, TypeVar

from liquidlog.errors import UsageError
from liquidlog.judgement.verdicts import PAYBACK_DAYS, READINGS_A_DAY, Bar
from liquidlog.spec.text import suggestion
from liquidlog.upkeep import values
from liquidlog.upkeep.policy import (
    DEFAULT_WHEN,
    BackOff,
    Budget,
    CheckpointPolicy,
    RewritePolicy,
    RewriteWhen,
    UpkeepPolicy,
    VacuumPolicy,
)
from liquidlog.upkeep.values import Kind, parsed
from liquidlog.upkeep.windows import DAYS, QuietWindow

T = TypeVar("T")

_WHEN: Final[Mapping[str, tuple[str, Kind[Any]]]] = {
    "commits": ("commits", values.COUNT),
    "unclustered_bytes": ("unclustered_bytes", values.SIZE),
    "small_file_share": ("small_file_share", values.SHARE),
    "depth_ratio": ("depth_ratio", values.POSITIVE),
    "payback_days": ("payback_days", values.POSITIVE),
    "age": ("age_ms", values.DURATION),
}
"""Keys of `[rewrite.when]`: the field of RewriteWhen, and the kind of value."""


def parse_policy(text: str, where: str) -> UpkeepPolicy:
    """Return the policy in a text; what it does not say has the defaults of UpkeepPolicy.

    `where` is the file that errors name.
    """
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise wrong_policy(where, f"is not TOML: {error}") from error
    except RecursionError:
        raise wrong_policy(where, "is not TOML that can be read: it nests too deeply") from None
    problems: list[str] = []
    policy = _policy(_Section(found, "", problems))
    if problems:
        raise wrong_policy(where, "; ".join(problems))
    return policy


def wrong_policy(where: str, detail: str) -> UsageError:
    """Return the error of a file that is no policy: trying again brings nothing."""
    return UsageError(f"{where}: {detail}", policy=where)


class _Section:
    """A table of TOML, whose keys are taken one by one; problems are added to a shared list."""

    def __init__(self, found: Mapping[str, Any], name: str, problems: list[str]) -> None:
        self._found = found
        self._name = name
        self._problems = problems
        self._known: list[str] = []

    def take(self, key: str, kind: Kind[T], default: T) -> T:
        """Return the value of a key, the default without it or if it is wrong."""
        found = self.find(key, kind)
        return default if found is None else found

    def find(self, key: str, kind: Kind[T]) -> T | None:
        """Return the value of a key, None without it or if it is wrong."""
        self._known.append(key)
        if key not in self._found:
            return None
        try:
            return parsed(kind, self._found[key])
        except ValueError as error:
            self._problems.append(f"{self._path(key)}: {error}")
            return None

    def need(self, key: str, kind: Kind[T], otherwise: T) -> T:
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

    def sections(self, key: str) -> "Iterator[_Section]":
        """Yield the tables of a key that repeats, as [[key]]."""
        self._known.append(key)
        found = self._found.get(key, [])
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            self._problems.append(f"{self._path(key)}: expected tables, each as [[{key}]]")
            return
        for number, one in enumerate(found, start=1):
            yield _Section(one, f"{self._path(key)}[{number}]", self._problems)

    def refuse(self, problem: str) -> None:
        """Note a problem of this table as a whole."""
        self._problems.append(f"{self._name}: {problem}")

    def is_empty(self) -> bool:
        """Return whether the table has no key at all."""
        return not self._found

    def done(self) -> None:
        """Note the keys that nothing has taken."""
        for key in self._found.keys() - set(self._known):
            near = suggestion(key, self._known, what="keys here")
            self._problems.append(f"{self._path(key)}: there is no such key{near}")

    def _path(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def _policy(top: _Section) -> UpkeepPolicy:
    made = UpkeepPolicy(
        tables=top.take("tables", values.TEXTS, ()),
        exclude=top.take("exclude", values.TEXTS, ()),
        budget=_read(top, "budget", _budget, Budget()),
        quiet=tuple(_window(section) for section in top.sections("quiet")),
        back_off=_read(top, "back_off", _back_off, BackOff()),
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
        payback_days=section.take("payback_days", values.POSITIVE, PAYBACK_DAYS),
        readings_a_day=section.take("readings_a_day", values.POSITIVE, READINGS_A_DAY),
    )
    return RewritePolicy(
        when=_read(section, "when", _when, DEFAULT_WHEN),
        bar=bar,
        workload=section.find("workload", values.TEXT),
    )


def _when(section: _Section) -> RewriteWhen:
    if section.is_empty():
        section.refuse(
            "expected at least one key, found none; leave the table out for the defaults"
        )
    return RewriteWhen(**{name: section.find(key, kind) for key, (name, kind) in _WHEN.items()})


def _budget(section: _Section) -> Budget:
    return Budget(
        bytes=section.find("bytes", values.SIZE),
        minutes=section.find("minutes", values.POSITIVE),
    )


def _window(section: _Section) -> QuietWindow:
    start = section.need("from", values.CLOCK, time.min)
    end = section.need("to", values.CLOCK, time.min)
    days = section.take("days", values.WEEKDAYS, DAYS)
    zone = section.take("time_zone", values.ZONE, "UTC")
    section.done()
    return QuietWindow(start=start, end=end, days=days, time_zone=zone)


def _back_off(section: _Section) -> BackOff:
    usual = BackOff()
    made = BackOff(
        first_ms=section.take("first", values.DURATION, usual.first_ms),
        longest_ms=section.take("longest", values.DURATION, usual.longest_ms),
        alive_ms=section.take("alive", values.DURATION, usual.alive_ms),
    )
    if made.longest_ms < made.first_ms:
        section.refuse("longest is shorter than first")
    return made


def _checkpoint(section: _Section) -> CheckpointPolicy:
    return CheckpointPolicy(commits=section.need("commits", values.COUNT, 1))


def _vacuum(section: _Section) -> VacuumPolicy:
    return VacuumPolicy(
        age_ms=section.need("age", values.DURATION, 0),
        retain=section.find("retain", values.RETENTION),
    )
