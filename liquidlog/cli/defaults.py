"""Defaults from a file: options of verbs, and options of storages by the prefix of an address."""

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from liquidlog.cli.output import note
from liquidlog.clustering.settings import BY_NAME, NOT_IN_FILES, Setting
from liquidlog.errors import UsageError
from liquidlog.logs import Log
from liquidlog.spec.text import suggestion
from liquidlog.storage.addresses import is_local, is_secret, table_address

_VARIABLE: Final = "env"


def _variable(name: str, where: str) -> str:
    found = os.environ.get(name)
    if found is None:
        raise UsageError(f"{where}: the environment has no variable {name}; set it")
    return found


Value = str | Callable[[], str]
"""A text, or what reads a variable of the environment when it is needed."""


@dataclass(frozen=True, slots=True, repr=False)
class StorageDefaults:
    """Options of storages by prefix of addresses; only the longest prefix counts."""

    by_prefix: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)

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


def _value(name: str, found: Any, where: str) -> Value:  # noqa: ANN401  as TOML has it
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
    for parameter, key, value in _settings(context, defaults):
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


def _settings(
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
