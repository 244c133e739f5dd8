"""A survey of many tables: all are found, looked at in a few processes, and ranked."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final

from liquidlog.errors import LiquidlogError, StorageError, UsageError
from liquidlog.fleet.finding import find_tables
from liquidlog.fleet.outcomes import exit_status_of
from liquidlog.fleet.readers import Readers
from liquidlog.fleet.surveying import Pages, Survey, Surveyed, not_surveyed, surveyed
from liquidlog.judgement.verdicts import Bar
from liquidlog.local.workers import TaskFailedError, Workers, core_count
from liquidlog.logs import Log
from liquidlog.storage.options import StorageOptions
from liquidlog.upkeep.decisions import Decision

_log: Final = Log(__name__)

MOST_PROCESSES: Final = 8
"""The most processes: each looks at one table at a time, and has its own connections."""

_FEWEST_PROCESSES: Final = 2
"""Also on one core: storage that is far away is waited for by one of them."""

_SOON_LOOKED_AT: Final = 3
"""So few tables are looked at before other processes have started."""

_ORDER: Final = (Decision.REWRITE, Decision.FAIL, Decision.LEAVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRequest:
    """What is asked of a survey.

    `prefixes` are addresses of tables or of what is above them, and globs. Without a `workload`,
    the address of one, readers are narrow. With `pages` each table gets a page. `processes` is the
    number of processes; one for each core, within limits, if None.
    """

    prefixes: tuple[str, ...]
    workload: str | None = None
    bar: Bar = field(default_factory=Bar)
    storage_options: Mapping[str, str] | None = None
    pages: Pages | None = None
    processes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The tables of a survey, the one first whose rewrite spares readers most per byte of it.

    Behind those that are worth it come the tables that failed, then those to leave alone, the
    largest first. `workload` is the address of the readers' workload, None for narrow readers.
    """

    tables: tuple[Surveyed, ...]
    bar: Bar
    workload: str | None
    seconds: float

    def document(self) -> dict[str, Any]:
        """Return the survey ready to print as JSON."""
        return {
            "tables": [table.document() for table in self.tables],
            "readers": "narrow" if self.workload is None else "workload",
            "readings_a_day": self.bar.readings_a_day,
            "payback_days": self.bar.payback_days,
            "seconds": round(self.seconds, 3),
        }

    @property
    def exit_status(self) -> int:
        """The exit status of the errors if all have the same, EXIT_ERROR if not."""
        return exit_status_of(one.error for one in self.tables if one.error is not None)


def survey(
    request: FleetRequest,
    *,
    on_found: Callable[[int], None] = lambda _: None,
    on_table: Callable[[Surveyed], None] = lambda _: None,
) -> Fleet:
    """Return what all tables are like and what to do with them; one's failure stops no other.

    `on_found` hears of the number of tables, `on_table` of each once it was looked at.
    """
    if not request.prefixes:
        raise UsageError("there is nothing to look at: name tables, or what is above them")
    started = monotonic()
    if request.pages is not None:
        _make_directory(request.pages.directory)
    options = StorageOptions.of(request.storage_options)
    found = find_tables(request.prefixes, (), options, below=True)
    addresses = [one.address for one in found if one.problem is None]
    readers = Readers(request.workload, addresses, options)
    on_found(len(addresses))
    _log.info("looking at %d tables", len(addresses))
    tables = [
        not_surveyed(one.address, LiquidlogError(one.problem))
        for one in found
        if one.problem is not None
    ]
    asked = [_asked(request, readers, address) for address in addresses]
    for one in _all(asked, request.processes):
        _log.info("looked at %s in %.2f s: %s, %s", one.table, one.seconds, one.action, one.reason)
        on_table(one)
        tables.append(one)
    return Fleet(
        tables=ranked(tables),
        bar=request.bar,
        workload=request.workload,
        seconds=monotonic() - started,
    )


def ranked(tables: Sequence[Surveyed]) -> tuple[Surveyed, ...]:
    """Return tables in the order in which `Fleet` has them."""
    return tuple(
        sorted(
            tables,
            key=lambda one: (
                _ORDER.index(one.action),
                -one.gain,
                -(one.size_bytes or 0),
                one.table,
            ),
        )
    )


def _asked(request: FleetRequest, readers: Readers, address: str) -> Survey:
    return Survey(
        address=address,
        options=dict(request.storage_options or {}),
        source=request.workload,
        queries=readers.queries_of(address),
        bar=request.bar,
        pages=request.pages,
    )


def _all(asked: Sequence[Survey], processes: int | None) -> Iterator[Surveyed]:
    """Yield the tables as they are looked at, in other processes if they are many."""
    if len(asked) <= _SOON_LOOKED_AT and processes is None:
        yield from map(surveyed, asked)
        return
    usual = max(_FEWEST_PROCESSES, min(core_count(), MOST_PROCESSES))
    workers = Workers(min(usual if processes is None else processes, max(1, len(asked))))
    try:
        running = {workers.submit(surveyed, one, attempt=0): one.address for one in asked}
        for future in as_completed(running):
            try:
                yield future.result()
            except TaskFailedError as error:
                yield not_surveyed(running[future], LiquidlogError(str(error)))
    finally:
        workers.close()


def _make_directory(directory: str) -> None:
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(directory, f"cannot be made: {error.strerror}") from error
