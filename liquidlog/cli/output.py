"""Print, log and write for commands, and ask users for consent."""

import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec
import pyarrow as pa

from liquidlog.errors import CheckpointWarning, DocumentError, StorageError, UsageError
from liquidlog.operations.executors import EXECUTOR_GROUP
from liquidlog.report.jsonable import jsonable, render_json
from liquidlog.report.printing import Report, say, show, show_json
from liquidlog.spec.actions import UNREADABLE
from liquidlog.spec.text import Rows, iso_time, visible

# Log records go to stderr: with -v and -vv those of both packages, else those of executors.

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)
_PACKAGES: Final = ("liquidlog", "liquidspark")


def _heard(context: click.Context, _: click.Parameter, count: int) -> None:
    if not count or context.resilient_parsing:
        return
    if count >= len(_LEVELS):
        raise click.UsageError("-v can be given at most twice", context)
    context.with_resource(_heard_by(_Line(), _LEVELS[count], *_PACKAGES))


VERBOSE: Final = click.Option(
    ["-v", "--verbose"],
    count=True,
    is_eager=True,
    expose_value=False,
    callback=_heard,
    help="Log each step on stderr, with times; -vv logs more.",
)


def _flag(name: str, help_text: str) -> click.Option:
    def keep(context: click.Context, _: click.Parameter, is_given: bool) -> None:  # noqa: FBT001
        context.meta[name] = is_given

    return click.Option([name], is_flag=True, expose_value=False, callback=keep, help=help_text)


JSON: Final = _flag("--json", "Print one JSON document and nothing else.")
ALL: Final = _flag("--all", "List everything; a terminal otherwise shows one screen per list.")


def is_json() -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get("--json"))


@contextmanager
def _heard_by(handler: logging.Handler, level: int, *names: str) -> Iterator[None]:
    logs = [logging.getLogger(name) for name in names]
    levels = [log.level for log in logs]
    for log in logs:
        log.addHandler(handler)
        log.setLevel(level)
    try:
        yield
    finally:
        for log, before in zip(logs, levels, strict=True):
            log.removeHandler(handler)
            log.setLevel(before)


class _Line(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            when = iso_time(round(record.created * 1000))
            say(f"{when} {record.levelname} {record.name}: {visible(record.getMessage())}")
        except Exception:  # noqa: BLE001  a failed log line must not end the command
            self.handleError(record)


def executors_heard() -> AbstractContextManager[None]:
    """Return a context manager that prints messages of executors on stderr.

    With `--json`, stderr has only the document of an error; with `-v`, messages are log lines.
    """
    is_verbose = any(isinstance(one, _Line) for one in logging.getLogger(_PACKAGES[0]).handlers)
    # Without any handler, Python prints warnings on stderr.
    handler = logging.NullHandler() if is_json() or is_verbose else _Said()
    level = logging.getLogger(EXECUTOR_GROUP).level if is_json() else logging.INFO
    return _heard_by(handler, level, EXECUTOR_GROUP)


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))


def note(text: str) -> None:
    """Print a text on stderr, unless the command prints JSON."""
    if not is_json():
        say(text)


def require_consent(what: str, *, yes: bool) -> None:
    """Print `what` the command would do, and ask whether to go on unless `yes`."""
    if yes:
        say(f"note: {what}")
        return
    if is_json() or not sys.stdin.isatty():
        raise UsageError(f"{what}; nothing was written: to do it, give --yes", option="yes")
    say(what)
    if not click.confirm("Go on?", err=True):
        raise UsageError("nothing was written, since the answer was no")


# Output of commands: text or JSON on stdout, warnings on stderr, and files

FORMAT_VERSION: Final = 1
"""The version of the documents of `--json`; plans have their own version."""

Listed = TypeVar("Listed", pa.Table, Rows)

_TREND_FIELDS: Final = ("table_uri", "total_file_count", "average_depth")
"""Every release writes these fields in each line of a trend."""


@contextmanager
def warnings_said() -> Iterator[None]:
    """Print warnings on stderr; a warning about a checkpoint is printed each time."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", CheckpointWarning)
        warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
        yield


def emit(
    value: Any,  # noqa: ANN401  what a command returns
    render: Callable[[Any], Report],
    *,
    root: str | None = None,
    dry_run: bool = False,
) -> None:
    """Print a result on stdout: as `render` shows it, or as JSON, in the field `root` if given."""
    if not is_json():
        context = click.get_current_context(silent=True)
        meta = {} if context is None or context.params.get("limit") is not None else context.meta
        show(render(value), cut=meta.get("--all") is False)
        return
    document = jsonable(value if root is None else {root: value})
    if dry_run:
        document["dry_run"] = True
    show_json(render_json({"format_version": FORMAT_VERSION, **document}))


def emit_change(value: Any, render: Callable[..., Report], *, dry_run: bool) -> None:  # noqa: ANN401
    """Print the result of a command that writes; `render` takes `dry_run` too."""
    emit(value, partial(render, dry_run=dry_run), dry_run=dry_run)


def first_of(rows: Listed, limit: int | None) -> Listed:
    """Return the first `limit` rows, all if None."""
    if isinstance(rows, Rows):
        return Rows(rows[:limit])
    return rows.slice(0, limit)


def say_rest(total: int, limit: int | None) -> None:
    """Print on stderr how many rows a limit left out."""
    if limit is not None and total > limit:
        say(f"{total - limit} more of {total} left out by --limit {limit}")


def replace_file(path: Path, content: str | bytes | Iterable[bytes]) -> None:
    """Write a local file atomically; after a failure the old content stays."""
    whole = content.encode() if isinstance(content, str) else content
    pieces = [whole] if isinstance(whole, bytes) else whole
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as device:  # or a pipe
                device.writelines(pieces)
            return
        target = path.resolve()  # replaces the target of a symbolic link, not the link
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(pieces)
                file.flush()
                os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            mode = target.stat().st_mode if target.exists() else 0o666 & ~mask
            Path(name).chmod(mode & 0o7777)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(str(path), f"cannot be written: {error.strerror}") from error


def require_trend(path: Path) -> None:
    """Refuse a file whose first line is not a line of a trend of health."""
    if not path.is_file():
        return
    try:
        with path.open("rb") as file:
            line = file.readline(1 << 20)  # much longer than any line of a trend
    except OSError as error:
        raise StorageError(str(path), f"cannot be read: {error.strerror}") from error
    try:
        found = msgspec.json.decode(line, type=dict[str, Any])
    except UNREADABLE:
        found = {}
    if line and not found.keys() >= set(_TREND_FIELDS):
        raise DocumentError(
            str(path),
            "is not a trend of health, so no line is added to it: its first line is not a JSON"
            f" object with {', '.join(_TREND_FIELDS)}; name a new file",
        )


def append_line(path: Path, line: str) -> None:
    """Append a line to a local file in one write, so that lines of several processes stay whole.

    If a crash cut off the last line, a line end comes first.
    """
    data = line.encode()
    try:
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as file:
                file.seek(-1, os.SEEK_END)
                data = data if file.read() == b"\n" else b"\n" + data
        with path.open("ab", buffering=0) as file:
            file.write(data)
    except OSError as error:
        raise StorageError(str(path), f"cannot be written: {error.strerror}") from error
