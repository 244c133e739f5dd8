"""What a shell is offered behind words that are typed: names, and files or directories."""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from liquidlog.cli.defaults import OPTIONS as CONFIG_OPTIONS
from liquidlog.cli.defaults import DefaultedCommand, given_or_defaults, set_by_file
from liquidlog.cli.output import VERBOSE
from liquidlog.clustering.settings import (
    SETTINGS,
    TAKES,
    WEIGHTS,
    Stage,
    parse_setting,
    split_names,
)
from liquidlog.errors import UsageError
from liquidlog.predicates.workload import Workload
from liquidlog.spec.text import parse_size
from liquidlog.storage.options import StorageOptions
from liquidlog.table import Table

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def directories(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Offer directories: tables on local disk are some."""
    return [CompletionItem(typed, type="dir")]


def files(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Offer files."""
    return [CompletionItem(typed, type="file")]


def one_of(names: Callable[[], Iterable[str]]) -> Complete:
    """Offer names, which are asked for only then: what knows them may take long to import."""

    def complete(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in names() if name.startswith(typed)]

    return complete


def strategies() -> Iterable[str]:
    """Return the names of the strategies."""
    return tuple(TAKES)


def curves() -> Iterable[str]:
    """Return the names of the curves."""
    from liquidlog.curve.curves import Curve

    return [curve.value for curve in Curve]


def executors() -> Iterable[str]:
    """Return the names of the executors that are installed."""
    from liquidlog.operations.executors import executor_names

    return executor_names()


# Types of option values: text on the command line to numbers, shares, sizes and pairs

Value = TypeVar("Value")
"""What the text of an option stands for."""

_WHOLE: Final = 100.0


class Parsed(click.ParamType[Value], ABC):
    """A type of option values that are parsed from text."""

    @abstractmethod
    def parse(self, text: str) -> Value:
        """Return the value."""

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Value:
        """Return the value; one that is no text is a default, or was parsed before."""
        if not isinstance(value, str):
            return cast("Value", value)
        try:
            return self.parse(value)
        except UsageError as error:
            self.fail(error.message, param, ctx)


class WholeNumber(Parsed[int]):
    """A whole number on the command line, from `least` to `most`."""

    name = "integer"

    def __init__(self, least: int, most: int | None = None) -> None:
        self._least = least
        self._most = most

    def parse(self, text: str) -> int:
        """Return the number."""
        number: int | None = None
        with suppress(ValueError):
            number = int(text)
        most = math.inf if self._most is None else self._most
        if number is None or not self._least <= number <= most:
            upto = "" if self._most is None else f" to {self._most}"
            raise UsageError(f"expected a whole number from {self._least}{upto}, found {text!r}")
        return number


class Number(Parsed[float]):
    """A finite number on the command line, at least `least`."""

    name = "number"

    def __init__(self, least: float) -> None:
        self._least = least

    def parse(self, text: str) -> float:
        """Return the number."""
        number = math.nan
        with suppress(ValueError):
            number = float(text)
        if not self._least <= number < math.inf:
            raise UsageError(f"expected a number from {self._least}, found {text!r}")
        return number


class Positive(Number):
    """A finite number above 0 on the command line."""

    def __init__(self) -> None:
        super().__init__(0)

    def parse(self, text: str) -> float:
        """Return the number."""
        number = super().parse(text)
        if not number:
            raise UsageError(f"expected a number above 0, found {text!r}")
        return number


class Percentage(Parsed[float]):
    """A share on the command line: 10% or 0.1."""

    name = "share"

    def parse(self, text: str) -> float:
        """Return the share, from 0 to 1."""
        found = text.strip()
        share = math.nan
        with suppress(ValueError):
            share = float(found.removesuffix("%")) / (_WHOLE if found.endswith("%") else 1)
        if not 0 <= share <= 1:
            raise UsageError(f"expected a share like 10% or 0.1, found {text!r}")
        return share


class SizeType(Parsed[int]):
    """A size on the command line: bytes, or a number with a unit."""

    name = "size"

    def parse(self, text: str) -> int:
        """Return the size in bytes."""
        return parse_size(text)


class PairsType(Parsed[tuple[str, str]]):
    """A `key=value` on the command line."""

    name = "k=v"

    def parse(self, text: str) -> tuple[str, str]:
        """Return (key, value)."""
        key, found, value = text.partition("=")
        if not found or not key:
            # The text is not repeated: it may be a secret without its name.
            raise UsageError("a value is not of the form key=value")
        return key, value


SIZE = SizeType()
PAIR = PairsType()
LOCAL_FILE = click.Path(dir_okay=False, path_type=Path)


# The options that several commands share

P = ParamSpec("P")
R = TypeVar("R")

Pairs = tuple[tuple[str, str], ...]
"""The value of a repeated option of the form key=value."""


def verb(*examples: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function the command of the same name, with a help text that ends with examples."""
    heading = "Example:" if len(examples) == 1 else "Examples:"
    made = click.command(
        cls=DefaultedCommand, epilog="\n".join(["\b", heading, *(f"  {line}" for line in examples)])
    )

    def command(function: Callable[..., Any]) -> click.Command:
        built = made(function)
        built.params += [VERBOSE, *CONFIG_OPTIONS]
        return built

    return command


def table_argument(command: Callable[P, R]) -> Callable[P, R]:
    """Add the TABLE argument and the options for opening the table."""
    return click.argument("table", shell_complete=directories)(storage_option(command))


def storage_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--storage-option`."""
    return click.option(
        "--storage-option",
        "storage_options",
        multiple=True,
        type=PAIR,
        callback=given_or_defaults,
        help="An option of the storage, named as in delta-rs; repeats.",
    )(command)


def json_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--json`."""
    help_text = "Print one JSON document and nothing else."
    return click.option("--json", "as_json", is_flag=True, help=help_text)(command)


def dry_run_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--dry-run`."""
    help_text = "Check everything and say what would happen; write nothing."
    return click.option("--dry-run", is_flag=True, help=help_text)(command)


def limit_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--limit`."""
    help_text = "List at most this many, and say on stderr how many more there are."
    return click.option("--limit", type=WholeNumber(1), help=help_text)(command)


def version_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--version` and `--timestamp`."""
    at_time = "The table as it was at this time, in UTC unless a zone is named: 2026-01-31T12:00Z."
    with_time = click.option("--timestamp", help=at_time)(command)
    at_version = "The table at this version; the newest by default."
    return click.option("--version", type=WholeNumber(0), help=at_version)(with_time)


def chosen_version(table: Table, version: int | None, timestamp: str | None) -> int | None:
    """Return the version that the options name, None for the newest."""
    if timestamp is None:
        return version
    if version is not None:
        raise UsageError("give either --version or --timestamp")
    from liquidlog.log.history import version_at
    from liquidlog.spec.text import parse_time

    return version_at(table.opened.store, table.snapshot(), parse_time(timestamp))


def settings_options(
    *visible: str, stages: Sequence[Stage] = tuple(Stage)
) -> Callable[[Callable[P, R]], Callable[..., R]]:
    """Return the decorator that adds settings as options; the command receives `settings`.

    `visible` have an option of their own; `--set NAME=VALUE` gives any of these stages.
    """

    def decorate(command: Callable[P, R]) -> Callable[..., R]:
        @functools.wraps(command)
        def with_settings(*args: P.args, **kwargs: P.kwargs) -> R:
            own = {name: kwargs.pop(name) for name in visible}
            texts = cast("tuple[str, ...]", kwargs.pop("set_"))
            settings = _settings(own, texts, stages)
            return command(*args, settings=settings, **kwargs)  # type: ignore[arg-type]

        decorated: Callable[..., R] = click.option(
            "--set",
            "set_",
            multiple=True,
            metavar="NAME=VALUE",
            shell_complete=one_of(partial(_names, stages)),
            help="Another setting, as tolerance=1.5; repeats. docs/reference/settings.md has all.",
        )(with_settings)
        for name in reversed(visible):
            decorated = _VISIBLE[name](decorated)
        return decorated

    return decorate


def _settings(
    own: Mapping[str, Any], texts: Sequence[str], stages: Sequence[Stage]
) -> dict[str, Any]:
    # A flag that is not given is False; any other option is None.
    found = {name: value for name, value in own.items() if value is not None and value is not False}
    given = dict.fromkeys(found, True)
    for name in {"zorder_by", "prefix", "bloom_filter"} & found.keys():
        found[name] = split_names(found[name])
    for text in texts:
        setting, value = parse_setting(text, stages)
        if setting.name in given and found[setting.name] != value:
            raise UsageError(f"{setting.name} is given two values; give it once", name=setting.name)
        found[setting.name], given[setting.name] = value, True
    defaults = {name: value for name, value in set_by_file().items() if name not in found}
    return {**defaults, **found}


def _names(stages: Sequence[Stage]) -> Iterator[str]:
    return (f"{one.name}=" for one in SETTINGS if one.stage in stages and one.name != WEIGHTS)


def bar_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options of a judgement; the command receives `bar`, arguments of Table.judge."""
    return gathered(command, _BAR_OPTIONS, "bar", dict)


_BAR_OPTIONS = {
    "payback_days": click.option(
        "--payback-days",
        type=Positive(),
        help="A rewrite is worth it if it has spared readers what it costs within this many days."
        "  [default: 30]",
    ),
    "readings_a_day": click.option(
        "--readings-per-day",
        "readings_a_day",
        type=Positive(),
        help="How often each predicate is read in a day.  [default: 24]",
    ),
}


def _option(name: str, help_text: str, **how: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:  # noqa: ANN401  click's
    return click.option(f"--{name.replace('_', '-')}", name, help=help_text, **how)


_VISIBLE: Final[Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = {
    "full": _option(
        "full", "Also rewrite files of other clustering columns or providers.", is_flag=True
    ),
    "where": _option(
        "where",
        "overlap: rewrite only files that this SQL predicate may match; of a partitioned table the"
        " partitions that match it.",
    ),
    "strategy": _option(
        "strategy",
        "How files are chosen: cube or overlap.  [default: cube]",
        shell_complete=one_of(strategies),
    ),
    "budget": _option(
        "budget", "overlap: rewrite at most this size.  [default: no limit]", type=SIZE
    ),
    "max_file_size": _option(
        "max_file_size",
        "Size to divide the input by: the number of files to write.  [default: 1GiB]",
        type=SIZE,
    ),
    "zorder_by": _option(
        "zorder_by", "Order rows by these columns, a,b; for a table without its own."
    ),
    "curve": _option(
        "curve",
        "Order of rows in a cube: hilbert, kd (narrower files), zorder or linear."
        "  [default: hilbert]",
        shell_complete=one_of(curves),
    ),
}


def output_option(
    help_text: str, *, required: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return the decorator that adds `-o`: a local file that is replaced."""
    return click.option("-o", "--output", type=LOCAL_FILE, required=required, help=help_text)


def workload_option(help_text: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return the decorator that adds `--workload`, an address for `workload_at`."""
    return click.option("--workload", help=help_text)


def workload_at(source: str | None, table: Table, storage_options: Pairs) -> Workload:
    """Return what readers ask of the table, as a file or a source says it; nothing without one."""
    if source is None:
        return ()
    # Its modules take longer to import than it takes to look at a table.
    from liquidlog.operations.scan import read_workload

    options = StorageOptions.of(mapping(storage_options))
    return read_workload(source, table=table.uri, storage_options=options)


def advice_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--advice`."""
    help_text = "Make the layout of this advice, saved by `advise -o`; rewrites as --full does."
    return click.option("--advice", help=help_text)(command)


def gathered(
    command: Callable[P, R],
    options: Mapping[str, Callable[[Callable[..., R]], Callable[..., R]]],
    into: str,
    combine: Callable[[dict[str, Any]], object],
) -> Callable[..., R]:
    """Add options; the command receives the given ones, combined, as one argument `into`."""

    @functools.wraps(command)
    def with_options(*args: P.args, **kwargs: P.kwargs) -> R:
        values = {name: kwargs.pop(name) for name in options}
        # A flag that is not given is False; any other option is None.
        given = {
            name: value
            for name, value in values.items()
            if value is not None and value is not False
        }
        return command(*args, **{into: combine(given)}, **kwargs)  # type: ignore[arg-type]

    decorated: Callable[..., R] = with_options
    for option in reversed([*options.values()]):
        decorated = option(decorated)
    return decorated


def mapping(pairs: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """Return repeated `k=v` options as a mapping."""
    found: dict[str, str] = {}
    for key, value in pairs:
        if found.setdefault(key, value) != value:
            raise UsageError(f"{key} is given two values; give it once", name=key)
    return found
