"""What the packages log, on stderr: all of it with `-v` and `-vv`, else what executors say."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from liquidlog.operations.executors import EXECUTOR_GROUP
from liquidlog.report.printing import say
from liquidlog.spec.text import iso_time, visible

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)
_PACKAGES: Final = ("liquidlog", "liquidspark")
_MOST: Final = len(_LEVELS) - 1


def _is_verbose() -> bool:
    return any(isinstance(one, _Line) for one in logging.getLogger(_PACKAGES[0]).handlers)


def _heard(context: click.Context, _: click.Parameter, count: int) -> None:
    if not count or context.resilient_parsing:
        return
    if count > _MOST:
        raise click.UsageError("-v can be given twice: there is no more to say", context)
    context.with_resource(logged(_LEVELS[count]))


VERBOSE: Final = click.Option(
    ["-v", "--verbose"],
    count=True,
    is_eager=True,
    expose_value=False,
    callback=_heard,
    help="Log on stderr what is read, decided and written, with times; -vv logs the details.",
)
"""The option of every verb; it takes effect before anything else of the command."""


@contextmanager
def logged(level: int) -> Iterator[None]:
    """Context manager: what the packages log from a level on appears on stderr, and only there."""
    handler, before = _Line(), []
    for name in _PACKAGES:
        log = logging.getLogger(name)
        before.append((log, log.level))
        log.addHandler(handler)
        log.setLevel(level)
    try:
        yield
    finally:
        for log, own_level in before:
            log.removeHandler(handler)
            log.setLevel(own_level)


class _Line(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            when = iso_time(round(record.created * 1000))
            say(f"{when} {record.levelname} {record.name}: {visible(record.getMessage())}")
        except Exception:  # noqa: BLE001  as handlers do: a line of the log ends no command
            self.handleError(record)


@contextmanager
def executors_heard(*, as_json: bool) -> Iterator[None]:
    """Context manager: messages of executors to the logger EXECUTOR_GROUP appear on stderr.

    With `as_json` they do not, for the document of an error; with `-v` they are lines of the log.
    """
    log = logging.getLogger(EXECUTOR_GROUP)
    handler = logging.NullHandler() if as_json or _is_verbose() else _Said()
    level = log.level
    log.addHandler(handler)  # without any, Python prints warnings on stderr
    if not as_json:
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))
