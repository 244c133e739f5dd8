"""The options that commands share, as values, and what a shell is offered for them."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from liquidlog.cli.defaults import OPTIONS as CONFIG_OPTIONS
from liquidlog.cli.defaults import DefaultedCommand, defaults_of_table, set_by_file
from liquidlog.cli.output import ALL, JSON, VERBOSE
from liquidlog.clustering.settings import (
    BY_NAME,
    FLAG,
    SETTINGS,
    TAKES,
    WEIGHTS,
    Setting,
    Stage,
    parse_setting,
    split_names,
)
from liquidlog.errors import LiquidlogError, UsageError
from liquidlog.predicates.workload import Workload
from liquidlog.spec.schema import leaves, quote_path
from liquidlog.spec.text import parse_size
from liquidlog.storage.addresses import StorageOptions, is_local
from liquidlog.table import Table

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def directories(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Offer directories, as tables on local disk are."""
    return [CompletionItem(typed, type="dir")]


def files(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Offer files."""
    return [CompletionItem(typed, type="file")]


def one_of(names: Callable[[], Iterable[str]]) -> Complete:
    """Offer names; `names` is called late, as it may import much."""

    def complete(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in names() if name.startswith(typed)]

    return complete


def offered_columns(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """Offer the columns of a TABLE on local disk behind the last comma; no failure is said."""
    before, comma, last = typed.rpartition(",")
    # Behind an option that lacks its value, click leaves arguments where they are.
    address = context.params.get("table") or next(iter(context.args), None)
    with suppress(LiquidlogError):
        if address is not None and is_local(address):
            names = (quote_path(leaf.logical) for leaf in leaves(Table(address).snapshot().schema))
            given = [*before.split(",")]
            return [
                CompletionItem(f"{before}{comma}{name}")
                for name in names
                if name.startswith(last) and name not in given
            ]
    return []


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

_WHOLE: Final = 100.0


class Parsed(click.ParamType[Value]):
    """A type of option values, parsed from text."""

    def __init__(self, name: str, parse: Callable[[str], Value]) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Value:
        """Parse a text; any other value is a default, or was parsed before."""
        if not isinstance(value, str):
            return cast("Value", value)
        try:
            return self._parse(value)
        except UsageError as error:
            self.fail(error.message, param, ctx)


def whole_number(least: int, most: int | None = None) -> Parsed[int]:
    """Return a type of whole numbers, with both ends."""

    def parse(text: str) -> int:
        number: int | None = None
        with suppress(ValueError):
            number = int(text)
        if number is None or not least <= number <= (math.inf if most is None else most):
            upto = "" if most is None else f" to {most}"
            raise UsageError(f"expected a whole number from {least}{upto}, found {text!r}")
        return number

    return Parsed("integer", parse)


def _number(text: str) -> float:
    with suppress(ValueError):
        return float(text)
    return math.nan


def _positive(text: str) -> float:
    number = _number(text)
    if not 0 < number < math.inf:
        raise UsageError(f"expected a number above 0, found {text!r}")
    return number


def _share(text: str) -> float:
    found = text.strip()
    share = _number(found.removesuffix("%")) / (_WHOLE if found.endswith("%") else 1)
    if not 0 <= share <= 1:
        raise UsageError(f"expected a share like 10% or 0.1, found {text!r}")
    return share


def _pair(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key:
        # The text is not repeated: it may be a secret without its name.
        raise UsageError("a value is not of the form key=value")
    return key, value


PERCENTAGE: Final = Parsed("share", _share)
SIZE: Final = Parsed("size", parse_size)
PAIR: Final = Parsed("k=v", _pair)
LOCAL_FILE = click.Path(dir_okay=False, path_type=Path)


# The options that several commands share

R = TypeVar("R")


class Address(NamedTuple):
    """The address of a command's table, and the options of its storage."""

    uri: str
    options: Mapping[str, str]

    def open(self) -> Table:
        """Open the table."""
        return Table.open(self.uri, storage_options=self.options)


def verb(*examples: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function the command of the same name; examples end its help text."""
    heading = "Example:" if len(examples) == 1 else "Examples:"
    made = click.command(
        cls=DefaultedCommand, epilog="\n".join(["\b", heading, *(f"  {line}" for line in examples)])
    )

    def command(function: Callable[..., Any]) -> click.Command:
        built = made(function)
        built.params += [JSON, ALL, VERBOSE, *CONFIG_OPTIONS]
        return built

    return command


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def table_argument(command: Callable[..., R]) -> Callable[..., R]:
    """Add the TABLE argument and its storage options; the command receives an `Address`."""

    @functools.wraps(command)
    def with_address(table: str, storage_options: Mapping[str, str], **given: object) -> R:
        return command(table=Address(table, storage_options), **given)

    return click.argument("table", shell_complete=directories)(storage_option(with_address))


def pairs_option(
    *names: str,
    help_text: str,
    default: Callable[[click.Context], Mapping[str, str]] = lambda _: {},
) -> Decorator:
    """Return a decorator that adds a repeated option key=value; the command gets a mapping."""

    def mapping(
        context: click.Context, _: click.Parameter, pairs: Sequence[tuple[str, str]]
    ) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for key, value in pairs:
            if found.setdefault(key, value) != value:
                raise UsageError(f"{key} is given two values; give it once", name=key)
        return found or default(context)

    return click.option(*names, multiple=True, type=PAIR, callback=mapping, help=help_text)


storage_option: Final = pairs_option(
    "--storage-option",
    "storage_options",
    help_text="An option of the storage, named as in delta-rs; repeats.",
    default=defaults_of_table,
)
spark_conf_option: Final = pairs_option("--spark-conf", help_text="A Spark setting; repeats.")


dry_run_option: Final = click.option(
    "--dry-run", is_flag=True, help="Check everything and say what would happen; write nothing."
)
limit_option: Final = click.option(
    "--limit",
    type=whole_number(1),
    help="List at most this many, and say on stderr how many more there are.",
)
advice_option: Final = click.option(
    "--advice",
    help="Make the layout of this advice, saved by `advise -o`; rewrites as --full does.",
)


def executor_option(help_text: str, **how: Any) -> Decorator:  # noqa: ANN401  click's
    """Return a decorator that adds `--executor`."""
    return click.option("--executor", shell_complete=one_of(executors), help=help_text, **how)


def version_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add `--version` and `--timestamp`."""
    at_time = "The table as it was at this time, in UTC unless a zone is named: 2026-01-31T12:00Z."
    with_time = click.option("--timestamp", help=at_time)(command)
    at_version = "The table at this version; the newest by default."
    return click.option("--version", type=whole_number(0), help=at_version)(with_time)


def chosen_version(table: Table, version: int | None, timestamp: str | None) -> int | None:
    """Return the version that the options name, None for the newest."""
    if timestamp is None:
        return version
    if version is not None:
        raise UsageError("give either --version or --timestamp")
    from liquidlog.log.history import version_at
    from liquidlog.spec.text import parse_time

    return version_at(table.opened.store, table.snapshot(), parse_time(timestamp))


def settings_options(*visible: str, stages: Sequence[Stage] = tuple(Stage)) -> Decorator:
    """Return a decorator that adds settings as options; the command receives `settings`.

    `visible` settings have their own option; `--set NAME=VALUE` gives any setting of these stages.
    """

    def decorate(command: Callable[..., R]) -> Callable[..., R]:
        @functools.wraps(command)
        def with_settings(set_: tuple[str, ...], **given: object) -> R:
            own = {name: given.pop(name) for name in visible}
            return command(settings=_settings(own, set_, stages), **given)

        decorated: Callable[..., R] = click.option(
            "--set",
            "set_",
            multiple=True,
            metavar="NAME=VALUE",
            shell_complete=one_of(partial(_names, stages)),
            help="Another setting, as tolerance=1.5; repeats. docs/reference/settings.md has all.",
        )(with_settings)
        for name in reversed(visible):
            decorated = _visible(BY_NAME[name])(decorated)
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


def bar_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options of a judgement; the command receives `bar` for Table.judge."""

    @functools.wraps(command)
    def with_bar(payback_days: float | None, queries_per_day: float | None, **given: object) -> R:
        values = {"payback_days": payback_days, "queries_per_day": queries_per_day}
        bar = {name: value for name, value in values.items() if value is not None}
        return command(bar=bar, **given)

    positive = Parsed("number", _positive)
    in_a_day = "Queries of the table in a day.  [default: as the workload records]"
    with_queries = click.option("--queries-per-day", type=positive, help=in_a_day)(with_bar)
    within = (
        "A rewrite is worth it if it has paid back within this many days.  [default: 30, or"
        " 1,000 queries if queries a day are not known]"
    )
    return click.option("--payback-days", type=positive, help=within)(with_queries)


_OFFERED: Final[Mapping[str, Complete]] = {
    "strategy": one_of(lambda: TAKES),
    "curve": one_of(curves),
    "zorder_by": offered_columns,
}


def _visible(setting: Setting) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    how: dict[str, Any] = {"is_flag": True} if setting.kind is FLAG else {}
    if setting.kind.is_size:
        how["type"] = SIZE
    if setting.name in _OFFERED:
        how["shell_complete"] = _OFFERED[setting.name]
    text = f"{setting.help[0].upper()}{setting.help[1:]}."
    return click.option(f"--{setting.name.replace('_', '-')}", setting.name, help=text, **how)


def output_option(help_text: str, *, required: bool = False) -> Decorator:
    """Return a decorator that adds `-o`, a local file to replace."""
    return click.option("-o", "--output", type=LOCAL_FILE, required=required, help=help_text)


def workload_option(help_text: str) -> Decorator:
    """Return a decorator that adds `--workload`, an address for `workload_at`."""
    return click.option("--workload", help=help_text)


def workload_at(source: str | None, uri: str, options: Mapping[str, str]) -> Workload:
    """Return the queries of a table in a file or another source; none without a source."""
    if source is None:
        return ()
    # Its modules take longer to import than it takes to look at a table.
    from liquidlog.operations.workloads import read_workload

    return read_workload(source, table=uri, storage_options=StorageOptions.of(options))
