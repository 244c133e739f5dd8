"""The commands: thin calls of liquidlog.table that print text or, with `--json`, JSON.

- `main` the verbs by name and section, each loaded when it is called: begin here
- `options` what they take, as values, for completion, and by default from a file
- `output` where results go, what -v logs, and consent asked for
- `looking`, `changing`, `rewriting` the verbs,
  `upkeeping` those of many tables, `statements` of SQL
- `failures` errors to sentences and exit statuses
"""

import os
import sys

__all__ = ["main"]

_STREAMS = ("stdin", "stdout", "stderr")


def main() -> None:
    """Run the command line and exit with its status."""
    start("liquidlog.cli.main")


def start(module: str) -> None:
    """Import the module of a command line, and exit with the status that its `start` returns.

    Users may interrupt the import, which takes long; that ends in one sentence too.
    """
    try:
        if refusal := _closed_output():
            sys.exit(refusal)
        from importlib import import_module

        sys.exit(import_module(module).start())
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; groups that were committed stay committed\n")
        sys.exit(130)


def _closed_output() -> str | None:
    """Return why nothing is done if stdout is closed, None if it is open.

    A file that is opened later would take the closed stream's number, and get what others print.
    """
    closed = [name for name in _STREAMS if getattr(sys, name) is None]
    for _ in closed:
        os.open(os.devnull, os.O_RDWR)  # takes the lowest number, which is that of a stream
    if "stderr" in closed:
        sys.stderr = os.fdopen(2, "w")
    if "stdout" not in closed:
        return None
    return "error: standard output is closed; redirect it to a file, or to /dev/null"
