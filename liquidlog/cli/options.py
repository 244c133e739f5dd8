"""The options that commands share: their values, their defaults from a file, and completion."""

import functools
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from liquidlog.cli.output import ALL, JSON, VERBOSE, note
from liquidlog.clustering.settings import (
    BY_NAME,
    FLAG,
    NOT_IN_FILES,
    SETTINGS,
    TAKES,
    WEIGHTS,
    Setting,
    Stage,
    parse_setting,
    split_names,
)
from liquidlog.errors import LiquidlogError, UsageError
from liquidlog.log.history import version_at
from liquidlog.logs import Log
from liquidlog.operations.executors import executor_names
from liquidlog.predicates.workload import Workload
from liquidlog.spec.schema import leaves, quote_path
from liquidlog.spec.text import parse_size, parse_time, suggestion
from liquidlog.storage.addresses import StorageOptions, is_local, is_secret, table_address
from liquidlog.table import Table

StorageValue = str | Callable[[], str]
"""A text, or a function that reads a variable of the environment."""


@dataclass(frozen=True, slots=True, repr=False)
class StorageDefaults:
    """Storage options by prefix of addresses; only the longest prefix counts."""

    by_prefix: Mapping[str, Mapping[str, StorageValue]] = field(default_factory=dict)

    def of(self, *addresses: str) -> Mapping[str, str]:
        """Return the options of addresses; addresses on local disk have none."""
        found: dict[str | None, str] = {}
        for one in addresses:
            if not is_local(one):
                whole = f"{_canonical(one)}/"
                fitting = (key for key in self.by_prefix if whole.startswith(f"{key.rstrip('/')}/"))
                found[max(fitting, key=len, default=None)] = one
        if len(found) > 1:
            first, second = islice(found.values(), 2)
            raise UsageError(
                f"{first} and {second} have different storage options in the file of defaults, and"
                " a command uses the same options for all addresses: run it once for each, or give"
                " --storage-option"
            )
        options = self.by_prefix.get(next(iter(found), None) or "", {})
        return {name: one if isinstance(one, str) else one() for name, one in options.items()}


def read_storages(found: object, where: str) -> StorageDefaults:
    """Return the storage options in a section of a file; variables are read when needed."""
    if not isinstance(found, dict):
        raise UsageError(f"{where} must be tables of options by prefix")
    by_prefix = {}
    for prefix, options in found.items():
        if is_local(prefix):
            raise UsageError(f"{where} {prefix} is no address of a storage, as s3://bucket")
        address = _canonical(prefix)  # refuses credentials before an error could show them
        place = f"{where} {address}"
        if not isinstance(options, dict):
            # The value may be a secret: no error repeats it.
            raise UsageError(f'{place} must be a table: write ["storage-options"."s3://bucket"]')
        by_prefix[address] = {
            name: _value(name, value, f"{place}: {name}") for name, value in options.items()
        }
    return StorageDefaults(by_prefix)


def _value(name: str, found: Any, where: str) -> StorageValue:  # noqa: ANN401  as TOML has it
    variable = found.get("env") if isinstance(found, dict) and len(found) == 1 else None
    if isinstance(variable, str) and variable:
        return partial(_variable, variable, where)
    if isinstance(found, bool):
        found = str(found).lower()
    if not isinstance(found, str | int):
        raise UsageError(f'{where}: expected text or {{ env = "NAME" }}')
    if is_secret(name):
        raise UsageError(
            f"{where} may be a secret, and does not belong in a file: put it into a variable of the"
            ' environment, and write { env = "NAME" }'
        )
    return str(found)


def _variable(name: str, where: str) -> str:
    found = os.environ.get(name)
    if found is None:
        raise UsageError(f"{where}: the environment has no variable {name}; set it")
    return found


def _canonical(address: str) -> str:
    scheme, mark, rest = address.partition("://")
    if mark and not rest:
        return table_address(f"{scheme}://any").removesuffix("any")
    return table_address(address)


# Defaults of options from the file `liquidlog.toml`: a section per verb, and one for storages
#
# A value in the file counts like one on the command line; the command line wins. A file cannot
# decide what a user must decide for each command. A file that was only found, in the current
# directory or above it, may have come with a clone, so it sets only how plans are made and judged.
# Options that could run code or send credentials elsewhere need a file that the user named.

FILE_NAME: Final = "liquidlog.toml"
VARIABLE: Final = "LIQUIDLOG_CONFIG"

STORAGES: Final = "storage-options"

_IN_FILES: Final = frozenset(
    {
        *("strategy", "curve", "max-file-size", "budget", "executor", "max-columns", "min-gain"),
        *("payback-days", "queries-per-day", "local-limit", "fail-if", "limit", "time-zone"),
        *("amplification", "redact", "sample", "spark-conf"),
    }
)
"""Options that a file may set."""

_MAX_BYTES: Final = 1 << 20
_OFF: Final = "liquidlog.no-config"
_KEPT: Final = "liquidlog.defaults"
_EITHER: Final = "give either --config or --no-config"
_log: Final = Log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """A file of defaults; `is_named` if the user named it.

    The file sets the options `used` of the verb, and the `settings` of `--set`. Files of other
    users do not count: they are `passed_over`.
    """

    path: str
    is_named: bool
    sections: Mapping[str, Any]
    passed_over: tuple[str, ...] = ()
    used: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    storages: StorageDefaults = field(default_factory=StorageDefaults)


class DefaultedCommand(click.Command):
    """A command whose options have defaults in a file; log and errors name these options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; the error about a removed option names its successor."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.removeprefix("--").replace("-", "_")
            instead = _GONE.get(name) or (f"use --set {name}=VALUE" if name in BY_NAME else None)
            if instead is None:
                raise
            text = f"the option {error.option_name} is gone: {instead}"
            raise click.UsageError(text, ctx) from None

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  click's signature
        """Run the command; its errors name the options that the file sets."""
        defaults: Defaults | None = ctx.meta.get(_KEPT)
        if defaults is None:
            return super().invoke(ctx)
        names = [*(f"--{name}" for name in defaults.used), *defaults.settings]
        listed = ", ".join(names)
        text = f"{defaults.path} sets {listed or 'nothing'} for {self.name}"
        _log.info("%s", text)
        for path in defaults.passed_over:
            _log.info("%s is passed over: it belongs to another user", path)
        if listed and not defaults.is_named and "dry_run" in ctx.params:
            note(f"note: {text}")
        try:
            return super().invoke(ctx)
        except UsageError as error:
            if listed:
                error.message = f"{error.message}; {text}"
            raise


_GONE: Final = {
    "final": "use --set final=true",
    "no_read_back": "use --set read_back=false",
    "skip_clustered": "use --set skip_clustered=true",
    "sample": "use --set sample=true",
    "row_groups": "row groups have a million rows and a page index; whole files are measured",
    "all": "use --why without a path, with --limit",
    "file": "use --why PATH",
    "replay": "compare `history` with `plan`",
    **dict.fromkeys(
        ("throughput", "hour_price", "tib_price", "currency", "start_seconds"),
        "compute prices from the files and bytes that a prediction for a --workload has",
    ),
}
"""What to use instead of removed options."""


def _of_running_command() -> Defaults | None:
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_KEPT)


def storage_defaults(*addresses: str) -> Mapping[str, str]:
    """Return the storage options that the running command's file has for addresses."""
    defaults = _of_running_command()
    found = {} if defaults is None else defaults.storages.of(*addresses)
    if defaults is not None and found:
        names = ", ".join(found)
        _log.info("%s has storage options for %s: %s", defaults.path, addresses[0], names)
    return found


def _off(context: click.Context, _: click.Parameter, off: bool) -> None:  # noqa: FBT001  click's
    if off:
        context.meta[_OFF] = True
        if context.meta.get(_KEPT) is not None and context.meta[_KEPT].is_named:
            raise click.UsageError(_EITHER, context)
        context.meta[_KEPT] = context.default_map = None


def _read(context: click.Context, _: click.Parameter, named: str | None) -> None:
    if context.resilient_parsing:
        return
    if context.meta.get(_OFF):
        if named is not None:
            raise click.UsageError(_EITHER, context)
        return
    if (defaults := _chosen(named)) is None:
        return
    _require_sections(context, defaults)
    used, values, settings = {}, {}, {}
    for parameter, key, value in _set_in_file(context, defaults):
        if isinstance(parameter, click.Option):
            used[key] = values[parameter.name] = value
        else:
            settings[parameter.name] = value
    storages = defaults.sections.get(STORAGES, {})
    options = read_storages(storages, f"{defaults.path}: [{STORAGES}]")
    context.meta[_KEPT] = replace(defaults, used=used, settings=settings, storages=options)
    context.default_map = values


OPTIONS: Final = (
    click.Option(
        ["--no-config"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_off,
        help=f"Read no file of defaults, neither {FILE_NAME} nor the file in {VARIABLE}.",
    ),
    click.Option(
        ["--config"],
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_read,
        help=f"Read defaults of options from this file.  [default: {VARIABLE}, else the nearest"
        f" {FILE_NAME}]",
    ),
)
"""Options of every verb; click evaluates --no-config first."""


def _chosen(named: str | None) -> Defaults | None:
    path = named if named is not None else os.environ.get(VARIABLE)
    if path:
        return Defaults(path=path, is_named=True, sections=_sections(path))
    passed_over: list[str] = []
    here = Path.cwd()
    for directory in (here, *here.parents):
        found = directory / FILE_NAME
        if not found.is_file():
            continue
        if found.stat().st_uid in {os.getuid(), 0}:
            chosen = Defaults(path=str(found), is_named=False, sections=_sections(str(found)))
            return replace(chosen, passed_over=tuple(passed_over))
        passed_over.append(str(found))
    return None


def _sections(path: str) -> Mapping[str, Any]:
    if not Path(path).is_file():
        raise UsageError(f"{path} is no file; name a file of defaults", config=path)
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise UsageError(f"{path} has more than {_MAX_BYTES} bytes", config=path)
        return tomllib.loads(content.decode())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", config=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}", config=path) from error
    except RecursionError:
        raise UsageError(f"{path} is not TOML: it nests too deeply", config=path) from None


def _require_sections(context: click.Context, defaults: Defaults) -> None:
    group = context.find_root().command
    verbs = group.list_commands(context) if isinstance(group, click.Group) else [context.info_name]
    known = [*(verb for verb in verbs if verb), STORAGES]
    for name, section in defaults.sections.items():
        where = f"{defaults.path}: [{name}]"
        if name not in known:
            near = suggestion(name, known, what="verbs")
            raise UsageError(f"{where} is no verb{near}", config=defaults.path)
        if not isinstance(section, dict):
            raise UsageError(f"{where} must be a table of options", config=defaults.path)
    if STORAGES in defaults.sections and not defaults.is_named:
        raise UsageError(_only_named(defaults, f"[{STORAGES}]"), config=defaults.path)


def _set_in_file(
    context: click.Context, defaults: Defaults
) -> Iterator[tuple[click.Option | Setting, str, Any]]:
    options = {
        name.removeprefix("--"): one
        for one in context.command.params
        if isinstance(one, click.Option)
        for name in one.opts
        if name.startswith("--")
    }
    verb = context.command.name or ""
    for key, found in defaults.sections.get(verb, {}).items():
        where = f"{defaults.path}: [{verb}] {key}"
        setting = BY_NAME.get(key.replace("-", "_")) if "set" in options else None
        if key not in options and setting is not None:
            yield setting, key, _setting_value(setting, found, where, defaults)
            continue
        if key not in options:
            known = [name for name in options if name in _IN_FILES]
            near = suggestion(key, known, what="options that a file may set")
            raise UsageError(f"{where}: {verb} has no option --{key}{near}", config=defaults.path)
        if key not in _IN_FILES:
            hint = f"; write a table [{STORAGES}.\u2026]" if key == "storage-option" else ""
            text = f"{where} cannot come from a file: give it on the command line{hint}"
            raise UsageError(text, config=defaults.path)
        if key == "spark-conf" and not defaults.is_named:  # Spark runs code that settings name
            raise UsageError(_only_named(defaults, f"[{verb}] {key}"), config=defaults.path)
        value = _option_value(options[key], found, where)
        try:
            options[key].type_cast_value(context, value)
        except click.BadParameter as error:
            raise UsageError(f"{where}: {error.message}", config=defaults.path) from None
        yield options[key], key, value


def _setting_value(setting: Setting, found: object, where: str, defaults: Defaults) -> Any:  # noqa: ANN401  any setting's
    if setting.name in NOT_IN_FILES:
        raise UsageError(
            f"{where} cannot come from a file: give it on the command line", config=defaults.path
        )
    try:
        value = setting.kind.of_text(_text(found, where)) if isinstance(found, str) else found
        setting.parsed(value)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", config=defaults.path) from None
    return value


def _only_named(defaults: Defaults, key: str) -> str:
    return (
        f"{defaults.path}: {key} counts only in a file that you name, since somebody else may have"
        f" written a file that is only found: give --config {defaults.path}, or set {VARIABLE}"
    )


def _option_value(option: click.Option, found: object, where: str) -> object:
    if option.is_flag:
        if isinstance(found, bool):
            return found
        raise UsageError(f"{where}: expected true or false, found {found!r}")
    if not option.multiple:
        return _text(found, where)
    if isinstance(found, dict):
        return [f"{key}={_text(value, where)}" for key, value in found.items()]
    return [_text(one, where) for one in (found if isinstance(found, list) else [found])]


def _text(found: object, where: str) -> str:
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        raise UsageError(f"{where}: expected text or a number, found {found!r}")
    return str(found)


Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def directories(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    return [CompletionItem(typed, type="dir")]


def files(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    return [CompletionItem(typed, type="file")]


def one_of(names: Callable[[], Iterable[str]]) -> Complete:
    """Offer names; `names` is called when a user asks for them."""

    def complete(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in names() if name.startswith(typed)]

    return complete


def offered_columns(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """Offer the columns of a TABLE on local disk behind the last comma; ignores errors."""
    before, comma, last = typed.rpartition(",")
    # After an option without its value, click leaves the arguments in `args`.
    address = context.params.get("table") or next(iter(context.args), None)
    with suppress(LiquidlogError):
        if address is not None and is_local(address):
            names = (quote_path(leaf.logical) for leaf in leaves(Table(address).snapshot().schema))
            given = before.split(",")
            fitting = [name for name in names if name.startswith(last) and name not in given]
            return [CompletionItem(f"{before}{comma}{name}") for name in fitting]
    return []


def curves() -> Iterable[str]:
    from liquidlog.curve.curves import Curve

    return [curve.value for curve in Curve]


# Types of option values: numbers, shares, sizes and pairs

Value = TypeVar("Value")


class Parsed(click.ParamType[Value]):
    """A type of option values; `parse` makes them of text."""

    def __init__(self, name: str, parse: Callable[[str], Value]) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self,
        value: Any,  # noqa: ANN401  click's signature
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Value:
        """Return a parsed text; click also passes defaults and parsed values, which stay."""
        if not isinstance(value, str):
            return cast("Value", value)
        try:
            return self._parse(value)
        except UsageError as error:
            self.fail(error.message, param, ctx)


def whole_number(least: int, most: int | None = None) -> Parsed[int]:

    def parse(text: str) -> int:
        with suppress(ValueError):
            number = int(text)
            if least <= number <= (math.inf if most is None else most):
                return number
        upto = "" if most is None else f" to {most}"
        raise UsageError(f"expected a whole number from {least}{upto}, found {text!r}")

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
    share = _number(found.removesuffix("%")) / (100 if found.endswith("%") else 1)
    if not 0 <= share <= 1:
        raise UsageError(f"expected a share like 10% or 0.1, found {text!r}")
    return share


def _pair(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key:
        # The text may be a secret without its name: no error repeats it.
        raise UsageError("a value is not of the form key=value")
    return key, value


PERCENTAGE: Final = Parsed("share", _share)
SIZE: Final = Parsed("size", parse_size)
LOCAL_FILE = click.Path(dir_okay=False, path_type=Path)


# The options that several commands share

R = TypeVar("R")


class Address(NamedTuple):
    """The address of a command's table, and the options of its storage."""

    uri: str
    options: Mapping[str, str]

    def open(self) -> Table:
        return Table.open(self.uri, storage_options=self.options)


def verb(*examples: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function the command of the same name; examples end its help text."""
    heading = "Example:" if len(examples) == 1 else "Examples:"
    epilog = "\n".join(["\b", heading, *(f"  {line}" for line in examples)])

    def command(function: Callable[..., Any]) -> click.Command:
        built = click.command(cls=DefaultedCommand, epilog=epilog)(function)
        built.params += [JSON, ALL, VERBOSE, *OPTIONS]
        return built

    return command


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def table_argument(command: Callable[..., R]) -> Callable[..., R]:
    """Add the TABLE argument and its storage options; the command receives an `Address`."""

    @functools.wraps(command)
    def with_address(table: str, storage_options: Mapping[str, str], **given: object) -> R:
        options = storage_options or storage_defaults(table)
        return command(table=Address(table, options), **given)

    return click.argument("table", shell_complete=directories)(storage_option(with_address))


def pairs_option(*names: str, help_text: str) -> Decorator:
    """Return a decorator that adds a repeated option key=value; the command gets a mapping."""

    def mapping(
        _: click.Context, __: click.Parameter, pairs: Sequence[tuple[str, str]]
    ) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for key, value in pairs:
            if found.setdefault(key, value) != value:
                raise UsageError(f"{key} is given two values; give it once", name=key)
        return found

    type_ = Parsed("k=v", _pair)
    return click.option(*names, multiple=True, type=type_, callback=mapping, help=help_text)


storage_option: Final = pairs_option(
    "--storage-option",
    "storage_options",
    help_text="A storage option, named as in delta-rs; repeats.",
)
spark_conf_option: Final = pairs_option("--spark-conf", help_text="A Spark setting; repeats.")
dry_run_option: Final = click.option(
    "--dry-run", is_flag=True, help="Check everything, show what would happen, write nothing."
)
limit_option: Final = click.option(
    "--limit",
    type=whole_number(1),
    help="List at most this many; stderr says how many more there are.",
)
advice_option: Final = click.option(
    "--advice",
    help="Use the layout in this advice, saved by `advise -o`; rewrites files like --full.",
)


def executor_option(help_text: str, **how: Any) -> Decorator:  # noqa: ANN401  click's
    return click.option("--executor", shell_complete=one_of(executor_names), help=help_text, **how)


def version_options(command: Callable[..., R]) -> Callable[..., R]:
    at_time = "Show the table at this time, by default in UTC: 2026-01-31T12:00Z."
    with_time = click.option("--timestamp", help=at_time)(command)
    at_version = "Show the table at this version.  [default: the newest]"
    return click.option("--version", type=whole_number(0), help=at_version)(with_time)


def chosen_version(table: Table, version: int | None, timestamp: str | None) -> int | None:
    """Return the version that the options name, None for the newest."""
    if timestamp is None:
        return version
    if version is not None:
        raise UsageError("give either --version or --timestamp")
    return version_at(table.opened.store, table.snapshot(), parse_time(timestamp))


def settings_options(*visible: str, stages: Sequence[Stage] = tuple(Stage)) -> Decorator:
    """Return a decorator that adds settings as options; the command receives `settings`.

    `visible` settings have their own options; `--set NAME=VALUE` takes every setting of `stages`.
    """
    known = (one for one in SETTINGS if one.stage in stages and one.name != WEIGHTS)
    names = [f"{one.name}=" for one in known]

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
            shell_complete=one_of(lambda: names),
            help="Another setting, as tolerance=1.5; repeats. See docs/reference/settings.md.",
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
    for name in {"zorder_by", "prefix", "bloom_filter"} & found.keys():
        found[name] = split_names(found[name])
    for text in texts:
        setting, value = parse_setting(text, stages)
        if found.setdefault(setting.name, value) != value:
            raise UsageError(f"{setting.name} is given two values; give it once", name=setting.name)
    defaults = _of_running_command()
    return {**({} if defaults is None else defaults.settings), **found}


def bar_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options of a judgement; the command receives `bar` for Table.judge."""

    @functools.wraps(command)
    def with_bar(payback_days: float | None, queries_per_day: float | None, **given: object) -> R:
        values = {"payback_days": payback_days, "queries_per_day": queries_per_day}
        bar = {name: value for name, value in values.items() if value is not None}
        return command(bar=bar, **given)

    positive = Parsed("number", _positive)
    in_a_day = "Queries of the table per day.  [default: as the workload records]"
    with_queries = click.option("--queries-per-day", type=positive, help=in_a_day)(with_bar)
    within = (
        "A rewrite is worth it if it pays back within this many days.  [default: 30, or 1,000"
        " queries if the queries per day are unknown]"
    )
    return click.option("--payback-days", type=positive, help=within)(with_queries)


_OFFERED: Final[Mapping[str, Complete]] = {
    "strategy": one_of(lambda: TAKES),
    "curve": one_of(curves),
    "zorder_by": offered_columns,
}


def _visible(setting: Setting) -> Decorator:
    how: dict[str, Any] = {"is_flag": True} if setting.kind is FLAG else {}
    if setting.kind.is_size:
        how["type"] = SIZE
    if setting.name in _OFFERED:
        how["shell_complete"] = _OFFERED[setting.name]
    text = f"{setting.help[0].upper()}{setting.help[1:]}."
    return click.option(f"--{setting.name.replace('_', '-')}", setting.name, help=text, **how)


def output_option(help_text: str, *, required: bool = False) -> Decorator:
    return click.option("-o", "--output", type=LOCAL_FILE, required=required, help=help_text)


def workload_option(help_text: str) -> Decorator:
    return click.option("--workload", help=help_text)


judging_workload_option: Final = workload_option(
    "Judge rewrites for these queries: JSON lines, .sql, or a source of `workload import`."
    "  [default: full scans, and queries for one value of a column]"
)


def workload_at(source: str | None, uri: str, options: Mapping[str, str]) -> Workload:
    """Return the queries of a table in a file or another source; none without a source."""
    if source is None:
        return ()
    # This import takes longer than looking at a table.
    from liquidlog.operations.advise import read_workload

    return read_workload(source, table=uri, storage_options=StorageOptions.of(options))
