"""The options that several commands share."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeVar

import click

from liquidlog.cli.completion import codecs, curves, directories, one_of, strategies
from liquidlog.cli.defaults import OPTIONS as CONFIG_OPTIONS
from liquidlog.cli.defaults import Verb, given_or_defaults
from liquidlog.cli.values import LOCAL_FILE, PAIR, SIZE, Positive, WholeNumber
from liquidlog.cli.verbosity import VERBOSE
from liquidlog.errors import UsageError
from liquidlog.predicates.workload import Workload
from liquidlog.spec.schema import quote_path, split_paths
from liquidlog.storage.options import StorageOptions
from liquidlog.table import Table

P = ParamSpec("P")
R = TypeVar("R")

Pairs = tuple[tuple[str, str], ...]
"""The value of a repeated option of the form key=value."""


def verb(*examples: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function the command of the same name, with a help text that ends with examples."""
    heading = "Example:" if len(examples) == 1 else "Examples:"
    made = click.command(
        cls=Verb, epilog="\n".join(["\b", heading, *(f"  {line}" for line in examples)])
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


def read_back_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--no-read-back`."""
    help_text = "Do not read outputs back: their proof then ends before the Parquet encoder."
    return click.option("--no-read-back", is_flag=True, help=help_text)(command)


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


def row_groups_option(command: Callable[P, R]) -> Callable[P, R]:
    """Add `--row-groups`."""
    help_text = "Also say what readers open inside files, by the footers of at most 128 of them."
    return click.option("--row-groups", is_flag=True, help=help_text)(command)


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
    return table.version_at(timestamp)


def policy_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options of a plan; the command receives `policy`, the arguments of Table.plan."""
    return gathered(command, _POLICY_OPTIONS, "policy", _policy)


def _policy(given: Mapping[str, Any]) -> Mapping[str, Any]:
    listed = {"zorder_by", "bloom_filter", "prefix"} & given.keys()
    return {**given, **{name: split_names(given[name]) for name in listed}}


def rewrite_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options of a plan that is to be rewritten, as `policy_options` does."""
    return gathered(command, _REWRITE_OPTIONS, "policy", _policy)


def migration_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options of a migration; the command receives `policy`, for Table.plan_migration."""
    options = {name: _REWRITE_OPTIONS[name] for name in MIGRATION_OPTIONS}
    return gathered(command, options, "policy", _policy)


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

_POLICY_OPTIONS = {
    "full": click.option(
        "--full", is_flag=True, help="Also rewrite files of other clustering columns or providers."
    ),
    "skip_clustered": click.option(
        "--skip-clustered",
        is_flag=True,
        help="cube: files that lie well beside the others of their group keep their bytes and only"
        " join the new cube.",
    ),
    "strategy": click.option(
        "--strategy",
        shell_complete=one_of(strategies),
        help="How files are chosen: cube or overlap.  [default: cube]",
    ),
    "min_cube_size": click.option(
        "--min-cube-size",
        type=SIZE,
        help="A cube of this size is stable and left alone.  [default: 100GiB]",
    ),
    "target_cube_size": click.option(
        "--target-cube-size",
        type=SIZE,
        help="Fill cubes, and groups of --zorder-by, to this size.  [default: 150GiB]",
    ),
    "max_file_size": click.option(
        "--max-file-size",
        type=SIZE,
        help="Size to divide the input by: the number of files to write.  [default: 1GiB]",
    ),
    "curve": click.option(
        "--curve",
        shell_complete=one_of(curves),
        help="Order of rows in a cube: hilbert, kd (narrower files), zorder or linear."
        "  [default: hilbert]",
    ),
    "zorder_by": click.option(
        "--zorder-by", help="Order rows by these columns, a,b; for a table without its own."
    ),
    "budget": click.option(
        "--budget", type=SIZE, help="overlap: rewrite at most this size.  [default: no limit]"
    ),
    "where": click.option(
        "--where",
        help="overlap: rewrite only files that this SQL predicate may match; of a partitioned table"
        " the partitions that match it.",
    ),
    "tolerance": click.option(
        "--tolerance",
        type=float,
        help="overlap: rewrite only if queries for one value read more than this many times the"
        " bytes that they would read after a full rewrite.  [default: 1.27]",
    ),
    "min_overlapping_files": click.option(
        "--min-overlapping-files",
        type=WholeNumber(0),
        help="overlap: rewrite a clustered file of full size only if on average this many share"
        " --min-overlap of its range.  [default: 4]",
    ),
    "min_overlap": click.option(
        "--min-overlap",
        type=float,
        help="overlap: the share of a file's range, 0 to 1, that others must cover."
        "  [default: 0.75]",
    ),
}

_REWRITE_OPTIONS = {
    **_POLICY_OPTIONS,
    "prefix": click.option(
        "--prefix",
        help="Clustering columns of few values, a,b: each file holds one value of them, as far as"
        " files keep a quarter of the target.",
    ),
    "compression": click.option(
        "--compression",
        shell_complete=one_of(codecs),
        help="Codec of the files to write: zstd, snappy, gzip, lz4_raw or uncompressed."
        "  [default: as the table's property says, else zstd]",
    ),
    "bloom_filter": click.option(
        "--bloom-filter",
        help="Write Bloom filters for these columns, a,b: readers skip row groups by equality on"
        " them too.",
    ),
}


MIGRATION_OPTIONS: Final = (
    *("min_cube_size", "target_cube_size", "max_file_size", "curve"),
    *("prefix", "compression", "bloom_filter"),
)


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


def split_names(text: str) -> tuple[str, ...]:
    """Return the column names of a comma-separated list, in the user's spelling."""
    names = tuple(quote_path(path) for path in split_paths(text))
    if not names:
        raise UsageError("a list of columns is needed, as a,b")
    return names


def mapping(pairs: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """Return repeated `k=v` options as a mapping."""
    found: dict[str, str] = {}
    for key, value in pairs:
        if found.setdefault(key, value) != value:
            raise UsageError(f"{key} is given two values; give it once", name=key)
    return found
