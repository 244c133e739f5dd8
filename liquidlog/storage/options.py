"""Storage options under the names that delta-rs uses. Their values are never shown.

An option may be spelled in upper or lower case, with or without the prefix of its storage.
Messages, reprs and documents contain only the names of options.

Options may come from a callable, as credentials do that expire. It is asked where tables are
opened, never in a task: tasks are sent the values of the moment.
"""

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, NoReturn, TypeAlias

from liquidlog.errors import StorageError, UsageError
from liquidlog.spec.arguments import text_mapping
from liquidlog.spec.text import masked, near_names

_SECRET: Final = re.compile(r"key|secret|token|sas|password|credential", re.IGNORECASE)
SINGLE_WRITER: Final = "liquidlog_single_writer"
"""An option of our own, never passed to a client."""
OptionsSource: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str]]
"""Options by name, or a callable that is called again whenever they may have expired."""
_KEPT_SECONDS: Final = 60.0
"""How long an answer of the callable is used."""
_REMEMBERED: Final = 8
"""Answers of a callable that are kept out of messages: a request may outlast some of them."""
_SHORTEST_SECRET: Final = 6
_MOST_SHOWN: Final = 300
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m)?")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True, repr=False)
class StorageOptions:
    """Options as the user gave them, or what `supply` gives when asked; never in a document."""

    items: tuple[tuple[str, str], ...] = field(default=())
    expiring: bool = False
    supply: "Supply | None" = None

    @classmethod
    def of(cls, options: OptionsSource | None) -> "StorageOptions":
        """Return the options in a mapping, or of a callable; None means none."""
        if options is None:
            return cls()
        if callable(options) and not isinstance(options, Mapping):
            return cls(supply=Supply(options))
        return cls(_sorted_items(options, argument="storage_options"))

    def __repr__(self) -> str:
        """Return the names only."""
        if self.supply is not None:
            return "StorageOptions(from a callable)"
        return f"StorageOptions({', '.join(name for name, _ in self.items)})"

    def __bool__(self) -> bool:
        return bool(self.items) or self.supply is not None

    def latest(self) -> "StorageOptions":
        """Return the values to use now: a callable's are at most a minute old."""
        return self if self.supply is None else self.supply.latest()

    def fresh(self) -> "StorageOptions":
        """Return the values of this moment, asking the callable again."""
        return self if self.supply is None else self.supply.fresh()

    def source(self) -> OptionsSource:
        """Return the mapping or the callable that gave the options."""
        if self.supply is None:
            return dict(self.items)
        return lambda: dict(self.latest().items)

    def differ_from(self, used: "StorageOptions") -> bool:
        """Return whether the values differ from `used`, asking the callable again."""
        return self.supply is not None and (
            self.supply.latest() != used or self.supply.fresh() != used
        )

    def given(self) -> dict[str, str]:
        """Return the options by name without our own; for clients only."""
        items = self.latest().items
        return {name: value for name, value in items if name.lower() != SINGLE_WRITER}

    def known(self) -> Iterator[tuple[str, str]]:
        """Yield all names and values that a message must hide, without asking the callable."""
        yield from self.items
        if self.supply is not None:
            yield from self.supply.known()

    @property
    def single_writer(self) -> bool:
        """Whether the user vouches that no writer commits to the table in a way we cannot see."""
        items = self.latest().items
        return any(name.lower() == SINGLE_WRITER and is_true(value) for name, value in items)

    def named(
        self, aliases: Mapping[str, Sequence[str]], prefixes: Sequence[str], *, storage: str
    ) -> dict[str, str]:
        """Return the values, each under its canonical name."""
        known = {
            prefix + spelling: name
            for name, spellings in aliases.items()
            for spelling in (name, *spellings)
            for prefix in ("", *prefixes)
        }
        unknown = [name for name, _ in self.items if name.lower() not in known]
        if unknown:
            usual = sorted(prefixes[0] + name for name in aliases)
            near = dict.fromkeys(one for name in unknown for one in near_names(name, usual))
            hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(usual)}"
            raise UsageError(
                f"{storage} has no option {', '.join(unknown)}; {hint}", options=unknown
            )
        return {known[name.lower()]: value for name, value in self.items}


class Supply:
    """The options of a callable, for all threads of one process."""

    def __init__(
        self,
        ask: Callable[[], Mapping[str, str]],
        *,
        now_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._now_seconds = now_seconds
        self._lock = Lock()
        self._asked_seconds: float | None = None
        self._given: deque[StorageOptions] = deque(maxlen=_REMEMBERED)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: a task is sent values."""
        raise TypeError("a callable that gives storage options stays in its process")

    def latest(self) -> StorageOptions:
        """Return what the callable gave at most a minute ago."""
        return self._asked_after(self._now_seconds() - _KEPT_SECONDS)

    def fresh(self) -> StorageOptions:
        """Return the callable's options now; threads that ask at once share an answer."""
        return self._asked_after(self._now_seconds())

    def known(self) -> Iterator[tuple[str, str]]:
        """Yield the names and values of the last answers."""
        for options in tuple(self._given):
            yield from options.items

    def _asked_after(self, seconds: float) -> StorageOptions:
        with self._lock:
            if self._asked_seconds is None or self._asked_seconds <= seconds:
                asked_seconds = self._now_seconds()
                found = StorageOptions(self._asked(), expiring=True)
                self._asked_seconds = asked_seconds
                if not self._given or self._given[-1] != found:
                    self._given.append(found)
            return self._given[-1]

    def _asked(self) -> tuple[tuple[str, str], ...]:
        try:
            found = self._ask()
        except Exception as error:
            # What the callable says may hold a secret; its error is the cause of this one.
            detail = f"the callable failed with {type(error).__name__}"
            raise StorageError("storage_options", detail) from error
        return _sorted_items(found, argument="what storage_options returns")


NO_OPTIONS: Final = StorageOptions()


def redacted(text: str, options: StorageOptions, environment: Mapping[str, str]) -> str:
    """Return the first line of a client's message, shortened and without secrets."""
    line = text.strip().partition("\n")[0]
    for secret in sorted(_secrets(options, environment), key=len, reverse=True):
        line = line.replace(secret, "***")
    line = masked(line)
    return line if len(line) <= _MOST_SHOWN else line[:_MOST_SHOWN] + "..."


def is_secret(name: str) -> bool:
    """Return whether an option with this name may have a secret value."""
    return _SECRET.search(name) is not None


def is_true(value: str) -> bool:
    """Return whether an option's text means yes."""
    return value.strip().lower() in {"1", "true", "yes", "y", "on"}


def seconds(name: str, value: str) -> float:
    """Return a duration such as 30s, 500ms or 2m in seconds."""
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise UsageError(
            f"the storage option {name} must be a duration such as 30s", options=[name]
        )
    return float(found[1]) * _SECONDS[found[2]]


def _sorted_items(options: object, *, argument: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(text_mapping(options, argument=argument).items()))


def _secrets(options: StorageOptions, environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in (*options.known(), *environment.items()):
        if not is_secret(name):
            continue
        # Clients put parts of a secret into URLs: those of a SAS token appear as query parameters.
        parts = [part.partition("=")[2] for part in value.split("&")]
        for piece in (value, *parts, *value.replace("\\n", "\n").splitlines()):
            if len(piece) >= _SHORTEST_SECRET:
                yield piece
