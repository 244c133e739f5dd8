"""The commands: thin calls of liquidlog.table that print text or, with `--json`, JSON."""

from liquidlog.cli.main import main

__all__ = ["main"]
