"""A process that has everything imported and forks for each order: a line of JSON, answered by one.

Such programs are `support.writers die` and `support.ticking`.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self, TypeAlias

from support.repository import ROOT

Run: TypeAlias = Callable[..., Any]
"""(arguments of the command line, calls to survive or None) -> what became of it."""

_DYING: Final = ("support.writers", "die")


class Forking:
    """Context manager: a process that runs a module of the tests and answers orders."""

    def __init__(self, module: str, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            cwd=ROOT / "tests",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._answers = self._process.stdin, self._process.stdout

    def ask(self, **order: Any) -> Any:
        """Return the answer to an order."""
        self._orders.write(json.dumps(order) + "\n")
        self._orders.flush()
        return json.loads(self._answers.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Let the process end, and wait until it has."""
        self._orders.close()
        self._answers.close()
        self._process.wait()


@contextmanager
def killed_on_the_way() -> Iterator[Run]:
    """Context manager: runs commands, each killed after so many calls if it is told how many."""
    with Forking(*_DYING) as process:

        def run(arguments: Sequence[str], point: int | None = None) -> Any:
            return process.ask(arguments=arguments, point=point)

        yield run
