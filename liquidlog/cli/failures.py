"""Turn every error into one sentence or one JSON document, and an exit status."""

import os
import sys
from contextlib import suppress
from traceback import walk_tb
from typing import Final

import click

from liquidlog.errors import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    LiquidlogError,
    SchemaMismatchError,
    StorageError,
    UsageError,
)
from liquidlog.report.printing import say, show, show_json
from liquidlog.spec.text import near_names

DEBUG_VARIABLE: Final = "LIQUIDLOG_DEBUG"
"""If this environment variable is set, an unexpected error shows its traceback."""


def explain_failure(error: BaseException, *, as_json: bool) -> int:
    """Explain on stderr why a command failed, and return its exit status."""
    if isinstance(error, click.Abort | KeyboardInterrupt):
        say("interrupted; groups that were committed stay committed")
        return EXIT_INTERRUPTED
    if _is_of_output(error):
        # Buffered output would fail again, with a traceback, when the interpreter exits.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # the reader wants no more
            return EXIT_ERROR
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        for line in error.format_message().splitlines():
            say(line)
        return error.exit_code
    failure = _failure(error)
    if as_json:
        # An error's fields may hold Arrow values; its message does not need pyarrow.
        from liquidlog.report.jsonable import render_json

        with suppress(OSError):
            show_json(render_json({"error": failure}), sys.stderr)
    else:
        say(f"error: {failure.message}", lines=isinstance(failure, SchemaMismatchError))
    return failure.exit_status


def _is_of_output(error: BaseException) -> bool:
    writers = {click.echo.__code__, show.__code__, show_json.__code__}
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    return isinstance(error, OSError) and any(frame.f_code in writers for frame in frames)


def _failure(error: BaseException) -> LiquidlogError:
    if isinstance(error, LiquidlogError):
        return error
    if isinstance(error, OSError) and _is_of_output(error):
        detail = f"cannot be written: {error.strerror}; what was committed stays committed"
        return StorageError("standard output", detail)
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        where = "" if context is None else f"; see {context.command_path} --help"
        return UsageError(f"{_problem(error)}{where}")
    if os.environ.get(DEBUG_VARIABLE):
        raise error
    if isinstance(error, UnicodeEncodeError):
        encoding = sys.getfilesystemencoding()
        advice = f"the character set of this environment is {encoding}; set LC_ALL=C.UTF-8"
        advice = "it is not UTF-8; give it another name" if encoding == "utf-8" else advice
        return LiquidlogError(f"the name {error.object!r} cannot be used: {advice}")
    return LiquidlogError(
        f"{type(error).__name__}: {error}; this is an error of liquidlog: please report it with the"
        f" output of {DEBUG_VARIABLE}=1"
    )


def _problem(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption):
        parameters = [] if error.ctx is None else error.ctx.command.params
        near = near_names(error.option_name, (name for one in parameters for name in one.opts))
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        return f"there is no option {error.option_name}{hint}"
    message = error.format_message()
    return f"{message[:1].lower()}{message[1:]}".removesuffix(".")
