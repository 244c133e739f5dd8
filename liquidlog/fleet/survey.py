"""A survey of many tables, which a few processes look at, ranked by their verdicts.

Only pages are written. One workload, read once, has the queries of all tables.
"""

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from liquidlog.clustering.columns import clustering_state
from liquidlog.errors import (
    EXIT_ERROR,
    EXIT_OK,
    LiquidlogError,
    StorageError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.fleet.deciding import Decision, depth_ratio, rank
from liquidlog.fleet.finding import find_tables
from liquidlog.foresee.verdict import Bar, Criteria, Verdict, no_verdict
from liquidlog.local.workers import TaskFailedError, Workers, core_count
from liquidlog.logs import Log
from liquidlog.operations.doctor import Overview
from liquidlog.operations.workloads import predicates_of
from liquidlog.predicates.workload import Workload
from liquidlog.storage import local
from liquidlog.storage.addresses import is_local
from liquidlog.storage.options import StorageOptions
from liquidlog.table import Table
from liquidlog.workload.form import KnownTable, Query, Tables, grouped, normal
from liquidlog.workload.sources import found_in, open_table

_log: Final = Log(__name__)

MOST_PROCESSES: Final = 8
"""The most processes; each looks at one table at a time."""

_FEWEST_PROCESSES: Final = 2
"""Two even on one core, as one may wait for storage."""

_SOON_LOOKED_AT: Final = 3
"""One process looks at so few tables sooner than others start."""

_ORDER: Final = (Decision.REWRITE, Decision.FAIL, Decision.LEAVE)
_OPENED_TOGETHER: Final = 4
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST: Final = 60


class Readers:
    """The queries of a workload by table."""

    def __init__(
        self, source: str | None, addresses: Sequence[str], options: StorageOptions
    ) -> None:
        """Read the workload, if there is a source, without tables that cannot be opened."""
        self.source = source
        self._options = options
        self._queries: dict[str, list[Query]] = {}
        if source is None:
            return
        with ThreadPoolExecutor(_OPENED_TOGETHER) as pool:
            opened = pool.map(self._opened, addresses)
            known = tuple(table for table in opened if table is not None)
        for query in grouped(found_in([source], Tables(known), options)).queries:
            self._queries.setdefault(normal(query.table), []).append(query)

    def _opened(self, address: str) -> KnownTable | None:
        with suppress(LiquidlogError):
            return open_table(address, self._options)
        return None

    def queries_of(self, address: str) -> tuple[Query, ...]:
        """Return the recorded queries of a table."""
        return tuple(self._queries.get(normal(address), ()))

    def of(self, address: str) -> Workload | None:
        """Return the predicates on a table; () without a workload, None if it has none of them."""
        if self.source is None:
            return ()
        return predicates_of(self.queries_of(address), address, self._options) or None


def unasked(source: str | None, bar: Bar) -> Verdict:
    """Return the verdict on a table that has no query in a workload."""
    found = no_verdict("leave", f"{source} asks nothing of it", Criteria(bar=bar))
    return replace(found, readers="workload")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """What was found about a table; None is unknown, `verdict` is a document.

    `action` is REWRITE, LEAVE or FAIL; `page` is the name of a file.
    """

    table: str
    action: Decision
    reason: str
    version: int | None = None
    files: int | None = None
    size_bytes: int | None = None
    columns: tuple[str, ...] = ()
    depth_ratio: float | None = None
    verdict: Mapping[str, Any] | None = None
    rank: float = 0.0
    page: str | None = None
    seconds: float = 0.0
    error: LiquidlogError | None = None

    @property
    def answer(self) -> str:
        """The answer of the verdict; without one, the action."""
        return self.action.value if self.verdict is None else str(self.verdict["answer"])

    @property
    def worth(self) -> Mapping[str, Any] | None:
        """The verdict if a rewrite is worth it, else None."""
        return self.verdict if self.action is Decision.REWRITE else None

    def document(self) -> dict[str, Any]:
        """Return the JSON document of the table."""
        return {
            "table": self.table,
            "files": self.files,
            "bytes": self.size_bytes,
            "depth_ratio": self.depth_ratio,
            "action": self.action.value,
            "reason": self.reason,
            "version": self.version,
            "cluster_by_keys": list(self.columns),
            "verdict": self.verdict,
            "page": self.page,
            "seconds": round(self.seconds, 3),
            "error": None if self.error is None else self.error.document(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """The directory of the tables' pages, and the function that makes one.

    It takes an overview and a workload's name; other processes must be able to import it.
    """

    directory: str
    render: Callable[[Overview, str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRequest:
    """The arguments of a survey.

    `prefixes` are addresses of tables or directories above them, and globs. Without a `workload`
    (an address), readers are assumed. One process is this one; None is about one per core.
    """

    prefixes: tuple[str, ...]
    workload: str | None = None
    bar: Bar = field(default_factory=Bar)
    storage_options: Mapping[str, str] | None = None
    pages: Pages | None = None
    processes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The survey of one table, with its queries in the workload."""

    address: str
    request: FleetRequest
    queries: tuple[Query, ...] = ()

    @property
    def storage_options(self) -> Mapping[str, str] | None:
        """The options of the table; none on local disk."""
        return None if is_local(self.address) else self.request.storage_options


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The tables of a survey: first the rewrite that pays back soonest.

    Then come failed tables, then tables to leave alone, the largest first.
    """

    tables: tuple[Surveyed, ...]
    bar: Bar
    workload: str | None
    seconds: float

    def document(self) -> dict[str, Any]:
        """Return the JSON document of the survey."""
        return {
            "tables": [table.document() for table in self.tables],
            "readers": "assumed" if self.workload is None else "workload",
            "queries_per_day": self.bar.queries_per_day,
            "payback_days": self.bar.payback_days,
            "seconds": round(self.seconds, 3),
        }

    @property
    def exit_status(self) -> int:
        """EXIT_ERROR if a table could not be looked at, else EXIT_OK."""
        return EXIT_OK if all(one.error is None for one in self.tables) else EXIT_ERROR


def survey(
    request: FleetRequest,
    *,
    on_found: Callable[[int], None] = lambda _: None,
    on_table: Callable[[Surveyed], None] = lambda _: None,
) -> Fleet:
    """Look at all tables; the failure of one stops no other.

    `on_found` gets the number of tables, `on_table` each result.
    """
    if not request.prefixes:
        raise UsageError("there is nothing to look at: name tables, or what is above them")
    started = time.monotonic()
    if request.pages is not None:
        make_directory(request.pages.directory)
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
    asked = [
        Survey(address=address, request=request, queries=readers.queries_of(address))
        for address in addresses
    ]
    for one in _all(asked, request.processes):
        _log.info("looked at %s in %.2f s: %s, %s", one.table, one.seconds, one.action, one.reason)
        on_table(one)
        tables.append(one)
    return Fleet(
        tables=ranked(tables),
        bar=request.bar,
        workload=request.workload,
        seconds=time.monotonic() - started,
    )


def ranked(tables: Sequence[Surveyed]) -> tuple[Surveyed, ...]:
    """Return tables in the order of `Fleet`."""

    def place(one: Surveyed) -> tuple[int, float, int, str]:
        return _ORDER.index(one.action), one.rank, -(one.size_bytes or 0), one.table

    return tuple(sorted(tables, key=place))


def _all(asked: Sequence[Survey], processes: int | None) -> Iterator[Surveyed]:
    """Yield results as they come, from other processes if there are many tables."""
    if processes == 1 or (processes is None and len(asked) <= _SOON_LOOKED_AT):
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


def make_directory(directory: str) -> None:
    """Make a directory and its parents."""
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(directory, f"cannot be made: {error.strerror}") from error


def surveyed(survey: Survey) -> Surveyed:
    """Look at one table; any error becomes its result."""
    started = time.monotonic()
    try:
        found = _surveyed(survey)
    except UnsupportedFeatureError as error:
        found = Surveyed(table=survey.address, action=Decision.LEAVE, reason=error.message)
    except Exception as error:  # noqa: BLE001  one table's failure stops no other
        found = not_surveyed(survey.address, as_known(error))
    return replace(found, seconds=time.monotonic() - started)


def not_surveyed(address: str, error: LiquidlogError) -> Surveyed:
    """Return the result of a table that failed."""
    return Surveyed(table=address, action=Decision.FAIL, reason=error.message, error=error)


def _surveyed(survey: Survey) -> Surveyed:
    table = Table.open(survey.address, storage_options=survey.storage_options)
    snapshot = table.snapshot()
    known = Surveyed(
        table=table.uri,
        action=Decision.LEAVE,
        reason="",
        version=snapshot.version,
        files=snapshot.files.num_rows,
        size_bytes=snapshot.size_bytes,
        columns=tuple(column.name for column in clustering_state(snapshot).columns),
    )
    asked: Workload | None = ()
    source, bar = survey.request.workload, survey.request.bar
    if source is not None:
        options = StorageOptions.of(survey.storage_options)
        asked = predicates_of(survey.queries, table.uri, options) or None
    if asked is None:
        ratio = depth_ratio(snapshot, table.opened.bounds_of(snapshot))
        return _decided(replace(known, depth_ratio=ratio), unasked(source, bar))
    return _judged(survey.request, table, asked, known)


def _judged(request: FleetRequest, table: Table, asked: Workload, known: Surveyed) -> Surveyed:
    """Add the verdict, and write the page if wanted."""
    arguments: dict[str, Any] = {
        "workload": asked,
        "workload_source": request.workload,
        "payback_days": request.bar.payback_days,
        "queries_per_day": request.bar.queries_per_day,
    }
    if request.pages is None:
        snapshot = table.snapshot()
        ratio = depth_ratio(snapshot, table.opened.bounds_of(snapshot))
        return _decided(replace(known, depth_ratio=ratio), table.judge(**arguments))
    overview = table.overview(**arguments, past=False)
    ratio = None if overview.health is None else overview.health.depth_ratio
    name = file_name(table.uri, ".html")
    content = request.pages.render(overview, request.workload or "W")
    local.replace(str(Path(request.pages.directory, name)), content.encode())
    shown = replace(known, depth_ratio=ratio, page=name)
    if overview.verdict is None:
        return replace(shown, action=Decision.FAIL, reason=overview.problem or "it is not judged")
    return _decided(shown, overview.verdict)


def _decided(known: Surveyed, verdict: Verdict) -> Surveyed:
    best = verdict.best
    return replace(
        known,
        action=Decision.LEAVE if best is None else Decision.REWRITE,
        reason=verdict.sentence,
        verdict=verdict.document(),
        rank=0.0 if best is None else rank(best),
    )


def as_known(error: Exception) -> LiquidlogError:
    """Return an error as one of ours; a foreign one is named by its class."""
    if isinstance(error, LiquidlogError):
        return error
    return LiquidlogError(f"{type(error).__name__}: {error}")


def file_name(address: str, suffix: str) -> str:
    """Return a plain file name that no other table has."""
    last = address.rstrip("/").rpartition("/")[2]
    name = _ODD.sub("-", last)[:_LONGEST].lstrip(".-") or "table"
    digest = hashlib.sha256(address.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{name}-{digest}{suffix}"
