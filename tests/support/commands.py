"""Commands run in this process, their documents decoded."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from liquidlog.cli.common import run
from liquidlog.cli.main import cli

Call = Callable[..., tuple[int, Any, Any]]


def caller(capsys: pytest.CaptureFixture[str]) -> Call:
    """Return what runs a command with --json: to (status, document on stdout, on stderr)."""

    def run_command(*words: str) -> tuple[int, Any, Any]:
        status = run(cli, [*words, "--json"])
        captured = capsys.readouterr()
        return status, _document(captured.out), _document(captured.err)

    return run_command


def _document(text: str) -> Any:
    return json.loads(text) if text.startswith(("{", "[")) else text
