"""The commands: thin calls of liquidlog.table, text or `--json`."""

from liquidlog.cli.main import main

__all__ = ["main"]
