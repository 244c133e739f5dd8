"""Turn every error into one sentence or one JSON document, and an exit status."""

import os
import re
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

_NO_COMMAND: Final = re.compile(r"No such command '(.+?)'")


def explain_failure(error: BaseException, *, as_json: bool) -> int:
    """Explain on stderr why a command failed, and return its exit status."""
    if isinstance(error, click.Abort | KeyboardInterrupt):
        say("interrupted; groups that were committed stay committed")
        return EXIT_INTERRUPTED
    if _is_of_output(error):
        # Buffered output would fail again, with a traceback, when the interpreter exits.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # whoever read it has seen enough
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
        return _unwritable_name(error)
    return LiquidlogError(
        f"{type(error).__name__}: {error}; this should have been a better message, please"
        f" report it with what {DEBUG_VARIABLE}=1 shows"
    )


def _unwritable_name(error: UnicodeEncodeError) -> LiquidlogError:
    encoding = sys.getfilesystemencoding()
    advice = "it is not UTF-8; give it another name"
    if encoding != "utf-8":
        advice = f"the character set of this environment is {encoding}; set LC_ALL=C.UTF-8"
    return LiquidlogError(f"the name {error.object!r} cannot be used: {advice}")


def _problem(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption):
        parameters = [] if error.ctx is None else error.ctx.command.params
        known = [name for parameter in parameters for name in parameter.opts]
        return f"there is no option {error.option_name}{_hint(error.option_name, known)}"
    message = error.format_message()
    verb = _NO_COMMAND.match(message)
    context = error.ctx if isinstance(error, click.UsageError) else None
    if verb is not None and context is not None and isinstance(context.command, click.Group):
        known = context.command.list_commands(context)
        return f"there is no verb {verb[1]}{_hint(verb[1], known)}"
    return f"{message[:1].lower()}{message[1:]}".removesuffix(".")


def _hint(name: str, known: list[str]) -> str:
    near = near_names(name, known)
    return f" (did you mean {' or '.join(near)}?)" if near else ""
