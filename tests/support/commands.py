"""Commands run in this process, their documents decoded."""

import json
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import pytest

from liquidlog.cli.main import cli, run

Call = Callable[..., tuple[int, Any, Any]]


def caller(capsys: pytest.CaptureFixture[str]) -> Call:
    """Return what runs a command with --json: to (status, document on stdout, on stderr)."""

    def run_command(*words: str) -> tuple[int, Any, Any]:
        status = run(cli, [*words, "--json"])
        captured = capsys.readouterr()
        return status, _document(captured.out), _document(captured.err)

    return run_command


def said(*words: str) -> tuple[int, str, str]:
    """Return (status, stdout, stderr) of a command, without a fixture."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        status = run(cli, words)
    return status, out.getvalue(), err.getvalue()


def _document(text: str) -> Any:
    return json.loads(text) if text.startswith(("{", "[")) else text
