"""Who began a run: what a run's marker says of the process that is at work.

Markers of earlier releases, and of executors that do not say, hold no origin. An origin is for
people: nothing is decided by it, since a host or a process may be gone, or be called the same.
"""

import os
import socket
from typing import Annotated, Final, Self

import msgspec

from liquidlog.spec.actions import UNREADABLE

APPEND: Final = "append"
"""The verb of runs that append: they replace no file."""

_MOST_CHARACTERS: Final = 255

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=_MOST_CHARACTERS)]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The process that began a run.

    `verb` is what it does, as `optimize`; `started_ms` is when it began that, in ms since the
    epoch, by the clock of its `host`. `plan_id` is None for runs without a plan.
    """

    verb: _Name
    host: _Name
    pid: Annotated[int, msgspec.Meta(ge=0)]
    started_ms: int
    plan_id: str | None = None

    @classmethod
    def here(cls, verb: str, *, now_ms: int, plan_id: str | None = None) -> Self:
        """Return this process, which begins `verb` now."""
        host = socket.gethostname()[:_MOST_CHARACTERS] or "localhost"
        return cls(verb=verb, host=host, pid=os.getpid(), started_ms=now_ms, plan_id=plan_id)

    def __str__(self) -> str:
        """Return who it is, as part of a sentence."""
        return f"{self.verb} on {self.host}, process {self.pid}"


def encode_origin(origin: Origin) -> bytes:
    """Return an origin as one line of JSON; inverse: decode_origin."""
    return msgspec.json.encode(origin) + b"\n"


def decode_origin(content: bytes) -> Origin | None:
    """Return the origin in a marker, None if it holds none that can be read."""
    try:
        return msgspec.json.decode(content, type=Origin)
    except UNREADABLE:
        return None
