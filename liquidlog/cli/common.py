"""What all commands share: options, output, and errors as exit statuses."""

import functools
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, ParamSpec, TypeVar

import click
import pyarrow as pa

from liquidlog.cli.usage import WholeNumber, click_message
from liquidlog.errors import EXIT_ERROR, EXIT_INTERRUPTED, LiquidlogError, UsageError
from liquidlog.operations.checkpoint import CheckpointWarning
from liquidlog.report.jsonable import jsonable, render_error, render_json
from liquidlog.report.layout import Report
from liquidlog.report.printing import say, show, show_json
from liquidlog.spec.rows import Rows
from liquidlog.spec.sizes import parse_size

DEBUG_VARIABLE: Final = "LIQUIDLOG_DEBUG"
"""Environment variable: if set, an unexpected error shows where it happened."""

FORMAT_VERSION: Final = 1
"""Of every document that `--json` prints; the documents of plans have their own."""

P = ParamSpec("P")
R = TypeVar("R")
Listed = TypeVar("Listed", pa.Table, Rows)

Pairs = tuple[tuple[str, str], ...]
"""What an option of key=value that repeats arrives as."""


class SizeType(click.ParamType[int]):
    """A size on the command line: bytes, or a number with a unit."""

    name = "size"

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        """Return the size in bytes."""
        try:
            return parse_size(value)
        except UsageError as error:
            self.fail(error.message, param, ctx)


class PairsType(click.ParamType[tuple[str, str]]):
    """A `key=value` on the command line."""

    name = "k=v"

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[str, str]:
        """Return (key, value)."""
        if isinstance(value, tuple):
            return value
        key, found, text = str(value).partition("=")
        if not found or not key:
            # It may be a secret whose name was forgotten, so it is not repeated.
            self.fail("a value is not of the form key=value", param, ctx)
        return key, text


SIZE = SizeType()
PAIR = PairsType()


def table_argument(command: Callable[P, R]) -> Callable[P, R]:
    """Add the TABLE argument and the options that go with it."""
    return click.argument("table")(storage_option(command))


def storage_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--storage-option`."""
    return click.option(
        "--storage-option",
        "storage_options",
        multiple=True,
        type=PAIR,
        help="An option of the storage, named as in delta-rs; repeats.",
    )(command)


def json_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--json`."""
    help_text = "Print one JSON document and nothing else."
    return click.option("--json", "as_json", is_flag=True, help=help_text)(command)


def dry_run_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--dry-run`."""
    help_text = "Do everything but the writing: say what would be."
    return click.option("--dry-run", is_flag=True, help=help_text)(command)


def limit_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--limit`."""
    help_text = "List at most this many, and say on stderr how many more there are."
    return click.option("--limit", type=WholeNumber(min=1), help=help_text)(command)


def first_of(rows: Listed, limit: int | None) -> Listed:
    """Return the first rows, all without a limit."""
    if isinstance(rows, Rows):
        return Rows(rows[:limit])
    return rows.slice(0, limit)


def tell_rest(total: int, limit: int | None) -> None:
    """Say how many rows of all a limit left out."""
    if limit is not None and total > limit:
        say(f"{total - limit} more of {total} left out by --limit {limit}")


def policy_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options that steer a planner; they arrive as one mapping, `policy`."""
    return gathered(command, _POLICY_OPTIONS, _POLICY_NAMES, "policy", lambda given: given)


def gathered(
    command: Callable[P, R],
    options: Sequence[Callable[[Callable[..., R]], Callable[..., R]]],
    names: Sequence[str],
    into: str,
    made: Callable[[dict[str, Any]], object],
) -> Callable[..., R]:
    """Add options that arrive as one argument `into`: what is `made` of those that are given."""

    @functools.wraps(command)
    def with_options(*args: P.args, **kwargs: P.kwargs) -> R:
        values = {name: kwargs.pop(name) for name in names}
        given = {name: value for name, value in values.items() if value is not None}
        return command(*args, **{into: made(given)}, **kwargs)  # type: ignore[arg-type]

    decorated: Callable[..., R] = with_options
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


_POLICY_OPTIONS = (
    click.option("--full", is_flag=True, help="Also rewrite files of other columns or providers."),
    click.option("--strategy", help="How files are chosen: cube [default] or overlap."),
    click.option("--min-cube-size", type=SIZE, help="Cubes of this size are stable [100GiB]."),
    click.option("--target-cube-size", type=SIZE, help="Size to pack cubes to [150GiB]."),
    click.option("--max-file-size", type=SIZE, help="Size of the files to write [1GiB]."),
    click.option(
        "--curve", help="Order inside a cube: hilbert, kd (narrower files), zorder or linear."
    ),
    click.option("--zorder-by", type=str, help="Columns for a table without clustering columns."),
    click.option("--budget", type=SIZE, help="overlap: most bytes to rewrite."),
    click.option("--where", help="overlap: take only files that this SQL predicate may touch."),
    click.option(
        "--tolerance", type=float, help="overlap: reads allowed, as times a full rewrite's [1.27]."
    ),
    click.option(
        "--min-overlapping-files", type=WholeNumber(min=0), help="overlap: see the README [4]."
    ),
    click.option("--min-overlap", type=float, help="overlap: see the README [0.75]."),
)
_POLICY_NAMES = (
    "full",
    "strategy",
    "min_cube_size",
    "target_cube_size",
    "max_file_size",
    "curve",
    "zorder_by",
    "budget",
    "where",
    "tolerance",
    "min_overlapping_files",
    "min_overlap",
)


def emit(
    value: Any,  # noqa: ANN401  what a command returns
    render: Callable[[Any], Report],
    *,
    as_json: bool,
    root: str | None = None,
    dry_run: bool = False,
) -> None:
    """Print a command's result on stdout.

    Args:
        value: The result.
        render: What shows it in text.
        as_json: Whether to print it as a JSON object instead.
        root: The name under which that object holds the result; None if the result is one.
        dry_run: Whether the result is only what would be, which the object then says.
    """
    if not as_json:
        show(render(value))
        return
    document = jsonable(value if root is None else {root: value})
    if dry_run:
        document["dry_run"] = True
    show_json(render_json({"format_version": FORMAT_VERSION, **document}))


def split_names(text: str) -> tuple[str, ...]:
    """Return the column names of a comma-separated list as a user writes them.

    Raises:
        UsageError: If the list is empty.
    """
    from liquidlog.spec.schema import quote_path, split_paths

    names = tuple(quote_path(path) for path in split_paths(text))
    if not names:
        raise UsageError("a list of columns is needed, as a,b")
    return names


def run(
    group: click.Group, arguments: Sequence[str] | None = None, *, program: str = "liquidlog"
) -> int:
    """Run a command and return its exit status; every error is one sentence on stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("always", CheckpointWarning)
        warnings.showwarning = _show_warning
        return _run(group, words, program)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    say(f"warning: {message}")


def _run(group: click.Group, words: list[str], program: str) -> int:
    try:
        return int(group.main(args=words, prog_name=program, standalone_mode=False) or 0)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("interrupted; whole groups that were committed stay committed")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # What is still held back would fail again, loudly, when the interpreter ends.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    except Exception as error:  # noqa: BLE001  the boundary to the user
        return _report(error, as_json="--json" in words)


def _report(error: Exception, *, as_json: bool) -> int:
    failure = _failure(error)
    if as_json:
        show_json(render_error(failure), sys.stderr)
    else:
        say(f"error: {failure.message}")
    return failure.exit_status


def _failure(error: Exception) -> LiquidlogError:
    """Return an error as one of ours.

    Raises:
        Exception: The error, if nobody expected it and DEBUG_VARIABLE is set.
    """
    if isinstance(error, LiquidlogError):
        return error
    if isinstance(error, click.ClickException):
        return UsageError(click_message(error))
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


def mapping(pairs: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """Return repeated `k=v` options as a mapping.

    Raises:
        UsageError: If a key has two values; they may be secrets, so they are not repeated.
    """
    found: dict[str, str] = {}
    for key, value in pairs:
        if found.setdefault(key, value) != value:
            raise UsageError(f"{key} is given two values; give it once", name=key)
    return found
