"""Settings of a session, put on and taken off.

Settings that are applied to somebody else's session are restored exactly. Several rewrites may use
one session at the same time, from several threads. A setting then has one value for all of them,
that of the rewrite that applied it last. When the last of them ends, the session gets its earlier
value back, or none. A value that somebody else sets meanwhile stays: the end of a rewrite does not
overwrite it, and for a later rewrite it is the value to restore.
"""

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import RLock
from typing import Final, Protocol


class Conf(Protocol):
    """The settings of a session, as classic and Connect sessions have them."""

    def get(self, key: str, default: str | None, /) -> str | None: ...  # noqa: D102
    def set(self, key: str, value: str, /) -> None: ...  # noqa: D102
    def unset(self, key: str, /) -> None: ...  # noqa: D102


class Session(Protocol):
    """A session that settings can be applied to."""

    @property
    def conf(self) -> Conf: ...  # noqa: D102


@dataclass(slots=True)
class _Setting:
    """A setting's value before, and the values that users want, by user in order of arrival."""

    before: str | None
    wanted: dict[object, str] = field(default_factory=dict)

    def value(self) -> str | None:
        return next(reversed(self.wanted.values()), self.before)


_in_use: Final[dict[tuple[Hashable, str], _Setting]] = {}
_lock: Final = RLock()


@contextmanager
def settings_applied(session: Session, settings: Mapping[str, str]) -> Iterator[None]:
    """Context manager: applies settings to the session, and restores the earlier ones on exit.

    If the session refuses one of them, none stays. Other users of the session see them, too.
    """
    key, user = _session_key(session), object()
    put: list[str] = []
    try:
        for name, value in settings.items():
            _put(session, (key, name), user, value)
            put.append(name)
        yield
    finally:
        for name in reversed(put):
            _take(session, (key, name), user)


def _put(session: Session, place: tuple[Hashable, str], user: object, value: str) -> None:
    _, name = place
    with _lock:
        found = session.conf.get(name, None)
        setting = _in_use.get(place) or _Setting(before=found)
        session.conf.set(name, value)
        if found != setting.value():
            setting.before = found
        setting.wanted[user] = value
        _in_use[place] = setting


def _take(session: Session, place: tuple[Hashable, str], user: object) -> None:
    _, name = place
    with _lock:
        setting = _in_use[place]
        ours = setting.value()
        del setting.wanted[user]
        if not setting.wanted:
            del _in_use[place]
        wanted = setting.value()
        # A session that has been stopped meanwhile has no settings to restore.
        with suppress(Exception):
            if wanted == ours or session.conf.get(name, None) != ours:
                return
            if wanted is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, wanted)


def _session_key(session: Session) -> Hashable:
    """Return a key that all objects for the same session share, as they share its settings."""
    connect = getattr(session, "session_id", None)
    if connect is not None:
        return str(connect)
    java = getattr(session, "_jsparkSession", None)
    return id(session) if java is None else str(java.sessionUUID())
