"""What cannot be taken back easily is said before it is done, and asked for."""

import sys

import click

from liquidlog.errors import UsageError
from liquidlog.report.printing import say


def require_consent(what: str, *, yes: bool, can_ask: bool) -> None:
    """Say what would be done, and ask whether that is wanted; with `yes`, only say it."""
    if yes:
        say(f"note: {what}")
        return
    if not can_ask or not sys.stdin.isatty():
        raise UsageError(f"{what}; nothing was written: to do it, give --yes", option="yes")
    say(what)
    if not click.confirm("Go on?", err=True):
        raise UsageError("nothing was written, as the table is to stay as it is")
