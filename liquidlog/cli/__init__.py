"""The commands: thin calls of liquidlog.table that print text or, with `--json`, JSON.

- `main` lists the verbs by section and loads a verb when it is called: begin here
- `looking`, `changing` the verbs of one table that rewrite no file, `statements` the verb `sql`
- `rewriting` the verbs that plan, rewrite and commit, `upkeeping` those of many tables
- `options` parses values, completes words and reads defaults from a file
- `output` prints results, logs for -v, asks for consent; `failures` turns errors into exit statuses
"""

import os
import sys

__all__ = ["main"]


def main() -> None:
    start("liquidlog.cli.main")


def start(module: str) -> None:
    """Import a module, run its `start`, and exit with the returned status.

    The import is slow: if a user interrupts it, one sentence says so.
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
    """Return an error if stdout is closed, else None."""
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for _ in closed:
        # Takes the stream's number, which the next opened file would take.
        os.open(os.devnull, os.O_RDWR)
    if "stderr" in closed:
        sys.stderr = os.fdopen(2, "w")
    if "stdout" not in closed:
        return None
    return "error: standard output is closed; redirect it to a file, or to /dev/null"
