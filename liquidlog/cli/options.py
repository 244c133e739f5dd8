"""The options that commands share: defaults from a file, values, and what a shell is offered."""

import functools
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
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
from liquidlog.logs import Log
from liquidlog.predicates.workload import Workload
from liquidlog.spec.schema import leaves, quote_path
from liquidlog.spec.text import parse_size, suggestion
from liquidlog.storage.addresses import StorageOptions, is_local, is_secret, table_address
from liquidlog.table import Table

_VARIABLE: Final = "env"


def _variable(name: str, where: str) -> str:
    found = os.environ.get(name)
    if found is None:
        raise UsageError(f"{where}: the environment has no variable {name}; set it")
    return found


StorageValue = str | Callable[[], str]
"""A text, or what reads a variable of the environment when it is needed."""


@dataclass(frozen=True, slots=True, repr=False)
class StorageDefaults:
    """Options of storages by prefix of addresses; only the longest prefix counts."""

    by_prefix: Mapping[str, Mapping[str, StorageValue]] = field(default_factory=dict)

    def of(self, *addresses: str) -> Mapping[str, str]:
        """Return the options of addresses; addresses on local disk have none."""
        found = {self._prefix(one): one for one in addresses if not is_local(one)}
        if len(found) > 1:
            first, second = [*found.values()][:2]
            raise UsageError(
                f"{first} and {second} have different options in the file of defaults, and one"
                " command takes the same for all: run it once for each, or give --storage-option"
            )
        options = self.by_prefix.get(next(iter(found), None) or "", {})
        return {name: one if isinstance(one, str) else one() for name, one in options.items()}

    def _prefix(self, address: str) -> str | None:
        whole = f"{_canonical(address)}/"
        fitting = (one for one in self.by_prefix if whole.startswith(f"{one.rstrip('/')}/"))
        return max(fitting, key=len, default=None)


def read_storages(found: object, where: str) -> StorageDefaults:
    """Return the options in a section of a file; variables are read later."""
    if not isinstance(found, dict):
        raise UsageError(f"{where} must be tables of options by prefix")
    by_prefix = {}
    for prefix, options in found.items():
        if is_local(prefix):
            raise UsageError(f"{where} {prefix} is no address in a storage, as s3://bucket")
        address = _canonical(prefix)  # refuses credentials in it, before it is shown
        place = f"{where} {address}"
        if not isinstance(options, dict):
            # The value is not repeated: it may be a secret that has no prefix.
            raise UsageError(f'{place} must be a table: write ["storage-options"."s3://bucket"]')
        values = {name: _value(name, value, f"{place}: {name}") for name, value in options.items()}
        by_prefix[address] = values
    return StorageDefaults(by_prefix)


def _value(name: str, found: Any, where: str) -> StorageValue:  # noqa: ANN401  as TOML has it
    if isinstance(found, dict):
        variable = found.get(_VARIABLE)
        if set(found) != {_VARIABLE} or not isinstance(variable, str) or not variable:
            raise UsageError(f'{where}: expected text or {{ {_VARIABLE} = "NAME" }}')
        return partial(_variable, variable, where)
    if isinstance(found, bool):
        found = str(found).lower()
    if not isinstance(found, str | int):
        raise UsageError(f'{where}: expected text or {{ {_VARIABLE} = "NAME" }}')
    if is_secret(name):
        raise UsageError(
            f"{where} may be a secret, and does not belong in a file: put it into a variable of the"
            f' environment, and write {{ {_VARIABLE} = "NAME" }}'
        )
    return str(found)


def _canonical(address: str) -> str:
    scheme, mark, rest = address.partition("://")
    if mark and not rest:
        return table_address(f"{scheme}://any").removesuffix("any")
    return table_address(address)


# Defaults of options from a file, `liquidlog.toml`: a section for each verb, and of storages
#
# A value of the file counts as if it stood on the command line, which wins. What a user must
# decide for each command cannot come from a file. A file that was only found, in the current
# directory or above it, may have come with a clone: it decides only how plans are made and judged.
# What could run code or send credentials elsewhere needs a file that the user named.

FILE_NAME: Final = "liquidlog.toml"
VARIABLE: Final = "LIQUIDLOG_CONFIG"

STORAGES: Final = "storage-options"

HARMLESS: Final = frozenset(
    {
        *("strategy", "curve", "max-file-size", "budget", "executor", "max-columns", "min-gain"),
        *("payback-days", "queries-per-day", "local-limit", "fail-if", "limit", "time-zone"),
        *("amplification", "redact", "sample"),
    }
)
"""Options that any file may set."""

NAMED_ONLY: Final = frozenset({"spark-conf"})
"""Options that need a file that the user named, since Spark runs code that its settings name."""

_MAX_BYTES: Final = 1 << 20
_OFF: Final = "liquidlog.no-config"
_KEPT: Final = "liquidlog.defaults"
_log: Final = Log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """A file of defaults; `is_named` if the user named it.

    `used` are the verb's options that it sets, `settings` those of `--set`. `passed_over` are
    files of other users, which do not count.
    """

    path: str
    is_named: bool
    sections: Mapping[str, Any]
    passed_over: tuple[str, ...] = ()
    used: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    storages: StorageDefaults = field(default_factory=StorageDefaults)


class DefaultedCommand(click.Command):
    """A command whose options have defaults in a file; its log and errors name them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words; the error for an option of an earlier release names its successor."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            instead = _instead_of(error.option_name)
            if instead is None:
                raise
            text = f"the option {error.option_name} is gone: {instead}"
            raise click.UsageError(text, ctx) from None

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  click's signature
        """Run the command, and add the defaults to its errors."""
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


def _instead_of(option: str) -> str | None:
    name = option.removeprefix("--").replace("-", "_")
    if name in _FLAGS_GONE:
        return f"use --set {_FLAGS_GONE[name]}"
    if name in BY_NAME:
        return f"use --set {name}=VALUE"
    return _GONE.get(option)


_FLAGS_GONE: Final = {
    "final": "final=true",
    "no_read_back": "read_back=false",
    "skip_clustered": "skip_clustered=true",
    "sample": "sample=true",
}
_GONE: Final = {
    "--row-groups": "files have row groups of a million rows and a page index, and are the unit"
    " that is measured",
    "--all": "use --why without a path, with --limit",
    "--file": "use --why PATH",
    "--replay": "compare `history` with `plan`",
    **dict.fromkeys(
        ("--throughput", "--hour-price", "--tib-price", "--currency", "--start-seconds"),
        "a prediction for a --workload has files and bytes, from which prices follow",
    ),
}


def _of_running_command() -> Defaults | None:
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_KEPT)


def storage_defaults(*addresses: str) -> Mapping[str, str]:
    """Return the storage options of some addresses in the running command's file."""
    defaults = _of_running_command()
    found = {} if defaults is None else defaults.storages.of(*addresses)
    if defaults is not None and found:
        names = ", ".join(found)
        _log.info("%s has storage options for %s: %s", defaults.path, addresses[0], names)
    return found


def set_by_file() -> Mapping[str, Any]:
    """Return the running verb's settings in the command's file."""
    defaults = _of_running_command()
    return {} if defaults is None else defaults.settings


def defaults_of_table(context: click.Context) -> Mapping[str, str]:
    """Return the storage options in the file for the command's table, if it has one."""
    table = context.params.get("table")
    return storage_defaults(table) if isinstance(table, str) else {}


def _off(context: click.Context, _: click.Parameter, off: bool) -> None:  # noqa: FBT001  click's
    if off:
        context.meta[_OFF] = True
        if context.meta.get(_KEPT) is not None and context.meta[_KEPT].is_named:
            _refuse_both(context)
        context.meta[_KEPT] = context.default_map = None


def _read(context: click.Context, _: click.Parameter, named: str | None) -> None:
    if context.resilient_parsing:
        return
    if context.meta.get(_OFF):
        if named is not None:
            _refuse_both(context)
        return
    defaults = _chosen(named)
    if defaults is None:
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


def _refuse_both(context: click.Context) -> None:
    raise click.UsageError("--config has no effect with --no-config: give one of them", context)


OPTIONS: Final = (
    click.Option(
        ["--no-config"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_off,
        help=f"Read no file of defaults: neither {FILE_NAME} nor that of {VARIABLE}.",
    ),
    click.Option(
        ["--config"],
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_read,
        help=f"Take defaults of options from this file.  [default: {VARIABLE}, else the nearest"
        f" {FILE_NAME}]",
    ),
)
"""Options of every verb; --no-config is evaluated first."""


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
            sections = _sections(str(found))
            others = tuple(passed_over)
            return Defaults(path=str(found), is_named=False, sections=sections, passed_over=others)
        passed_over.append(str(found))
    return None


def _sections(path: str) -> Mapping[str, Any]:
    if not Path(path).is_file():
        raise UsageError(f"{path} is no file; name one that has defaults of options", config=path)
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
            known = [name for name in options if name in HARMLESS | NAMED_ONLY]
            near = suggestion(key, known, what="options that a file may set")
            raise UsageError(f"{where}: {verb} has no option --{key}{near}", config=defaults.path)
        if key not in HARMLESS | NAMED_ONLY:
            hint = f"; write a table [{STORAGES}.\u2026]" if key == "storage-option" else ""
            text = f"{where} cannot come from a file: say it on the command line{hint}"
            raise UsageError(text, config=defaults.path)
        if key in NAMED_ONLY and not defaults.is_named:
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
            f"{where} cannot come from a file: say it on the command line", config=defaults.path
        )
    try:
        value = setting.kind.of_text(_text(found, where)) if isinstance(found, str) else found
        setting.parsed(value)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", config=defaults.path) from None
    return value


def _only_named(defaults: Defaults, key: str) -> str:
    return (
        f"{defaults.path}: {key} counts only in a file that you name, since a file that is only"
        f" found may be another's: give --config {defaults.path}, or set {VARIABLE}"
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
        built.params += [JSON, ALL, VERBOSE, *OPTIONS]
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
