"""Everything that only reads a table, called as a user would: through Table and the commands."""

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

from liquidlog.cli.failures import DEBUG_VARIABLE
from liquidlog.cli.main import cli, run
from liquidlog.errors import EXIT_ERROR, EXIT_OK, EXIT_UNSUPPORTED, EXIT_USAGE, LiquidlogError
from liquidlog.report.jsonable import render_json
from liquidlog.table import Table

EXPECTED_STATUSES: Final = {EXIT_OK, EXIT_ERROR, EXIT_USAGE, EXIT_UNSUPPORTED}

STAGES: Final[dict[str, Callable[[Table], Any]]] = {
    "detail": Table.detail,
    "files": Table.files,
    "history": Table.history,
    "cubes": Table.cubes,
    "health": Table.health,
    "health where": lambda table: table.health(where="x > 1 and s < 'b' or y is null"),
    "plan": lambda table: table.plan(min_cube_size=1000, target_cube_size=3000),
    "full plan": lambda table: table.plan(full=True),
    "explain": lambda table: table.explain(),
}

COMMANDS: Final = ("detail", "files", "history", "health", "plan")


def look_through_facade(uri: str) -> dict[str, str]:
    """Return what each stage said: `ok` or the code of our error.

    Any other exception is let through: it would be a traceback for a user.
    """
    return {name: _outcome(stage, uri) for name, stage in STAGES.items()}


def _outcome(stage: Callable[[Table], Any], uri: str) -> str:
    try:
        render_json(stage(Table.open(uri)))
    except LiquidlogError as error:
        render_json(error.document())
        return error.code
    return "ok"


def command_status(*words: str) -> int:
    """Run a command with its output thrown away; unexpected exceptions are let through."""
    sink = io.StringIO()
    with surfaced(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        return run(cli, list(words))


@contextlib.contextmanager
def surfaced() -> Iterator[None]:
    """Let exceptions out of the command line that it would turn into a sentence."""
    with mock.patch.dict(os.environ, {DEBUG_VARIABLE: "1"}):
        yield


def tree(root: Path) -> dict[str, tuple[int, int]]:
    """Return (size in bytes, time of change in ns) of every file below `root`."""
    return {
        str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in root.rglob("*")
    }
