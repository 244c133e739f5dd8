"""Commands run in this process, their documents decoded."""

import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import click

from liquidlog.cli.main import cli, run
from support.repository import text


def commands() -> dict[str, click.Command]:
    """Return the command of each verb."""
    context = click.Context(cli)
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def said(*words: str) -> tuple[int, str, str]:
    """Return (status, stdout, stderr) of a command, without a fixture."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        status = run(cli, words)
    return status, out.getvalue(), err.getvalue()


def call(*words: str) -> tuple[int, Any, Any]:
    """Run a command with --json; return (status, document on stdout, on stderr)."""
    status, out, err = said(*words, "--json")
    return status, _document(out), _document(err)


def _document(text: str) -> Any:
    return json.loads(text) if text.startswith(("{", "[")) else text


# The statements that docs/reference/sql.md lists, and what comes of each

_REFUSED = "refused: "


def printed_statements() -> Iterator[tuple[str, str | None]]:
    """Yield (statement, the reason why it is refused, None if it runs), in the order to run."""
    _, _, table = text("docs/reference/sql.md").partition("<!-- statements -->\n")
    for line in table.strip().split("\n\n")[0].splitlines()[2:]:
        printed, _, outcome = line.strip("| ").rpartition(" | ")
        assert outcome == "runs" or outcome.startswith(_REFUSED), line
        reason = None if outcome == "runs" else outcome.removeprefix(_REFUSED)
        yield printed.partition(" | ")[2].strip("`").replace("\\n", "\n"), reason
