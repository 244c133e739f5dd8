"""Credentials that expire, in front of moto's server, which would accept any for ever."""

from collections.abc import Callable, Mapping
from threading import Lock

from support.emulators import Emulator
from support.proxy import Request

_EXPIRED = b"""<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"""
"""What S3 answers, with the status 400."""


class Tokens:
    """Gives out session tokens, and lets the emulator's proxy refuse those that have expired.

    A token expires after so many requests, however slow the machine is. `given` counts the tokens,
    `refused` the requests with expired ones.
    """

    def __init__(self, emulator: Emulator, requests: Callable[[int], int]) -> None:
        """`requests` says for how many requests the token of a number is good, from 0."""
        self._options = emulator.options
        self._requests = requests
        self._lock = Lock()
        self._left: list[int] = []
        self.refused = 0
        emulator.proxy.refuse, emulator.proxy.refusal = self._refuse, _EXPIRED

    @property
    def given(self) -> int:
        return len(self._left)

    def __call__(self) -> Mapping[str, str]:
        """The storage options with a token that nobody has used."""
        with self._lock:
            number = len(self._left)
            self._left.append(self._requests(number))
        return {**self._options, "aws_session_token": f"S3ntinelToken{number:05d}"}

    def expire(self) -> None:
        """Let all tokens that were given out expire."""
        with self._lock:
            self._left = [0] * len(self._left)

    def _refuse(self, request: Request) -> int | None:
        number = int((request.token or "S3ntinelToken-1").removeprefix("S3ntinelToken"))
        with self._lock:
            if number < 0 or self._left[number] <= 0:
                self.refused += 1
                return 400
            self._left[number] -= 1
        return None
