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
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.fleet.deciding import Decision, depth_ratio, rank
from liquidlog.fleet.finding import find_tables, own_options
from liquidlog.foresee.verdict import Bar, Criteria, Verdict, no_verdict
from liquidlog.local.workers import TaskFailedError, Workers, core_count
from liquidlog.logs import Log
from liquidlog.operations.doctor import Overview
from liquidlog.operations.judge import judge
from liquidlog.operations.workloads import predicates_of
from liquidlog.predicates.workload import Workload
from liquidlog.storage import local
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

    def of(self, address: str) -> Workload:
        """Return the predicates on a table, none without a workload."""
        return predicates_of(self.queries_of(address), address, self._options)


def judged(table: Table, asked: Workload, source: str | None, bar: Bar) -> Verdict:
    """Judge a table for the queries that a workload asks of it, without a `source` for assumed."""
    if source is not None and not asked:
        found = no_verdict("leave", f"{source} asks nothing of it", Criteria(bar=bar))
        return replace(found, readers="workload")
    now_ms = table.opened.clock.now_ms()
    criteria = Criteria(workload=asked, workload_source=source, bar=bar, now_ms=now_ms)
    return judge(table.opened, table.snapshot(), criteria).verdict


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
        local.make_directory(request.pages.directory)
    options = StorageOptions.of(request.storage_options)
    found = find_tables(request.prefixes, (), options, below=True)
    addresses = [one.address for one in found if one.problem is None]
    readers = Readers(request.workload, addresses, options)
    on_found(len(addresses))
    _log.info("looking at %d tables", len(addresses))
    tables = [
        _not_surveyed(one.address, LiquidlogError(one.problem))
        for one in found
        if one.problem is not None
    ]
    for one in _all(request, [(address, readers.queries_of(address)) for address in addresses]):
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


def _all(
    request: FleetRequest, asked: Sequence[tuple[str, tuple[Query, ...]]]
) -> Iterator[Surveyed]:
    """Yield results as they come, from other processes if there are many tables."""
    processes = request.processes
    if processes == 1 or (processes is None and len(asked) <= _SOON_LOOKED_AT):
        yield from (surveyed(request, *one) for one in asked)
        return
    usual = max(_FEWEST_PROCESSES, min(core_count(), MOST_PROCESSES))
    workers = Workers(min(usual if processes is None else processes, max(1, len(asked))))
    try:
        running = {workers.submit(surveyed, request, *one, attempt=0): one[0] for one in asked}
        for future in as_completed(running):
            try:
                yield future.result()
            except TaskFailedError as error:
                yield _not_surveyed(running[future], LiquidlogError(str(error)))
    finally:
        workers.close()


def surveyed(request: FleetRequest, address: str, queries: tuple[Query, ...]) -> Surveyed:
    """Look at one table and its queries in the workload; any error becomes its result."""
    started = time.monotonic()
    try:
        found = _surveyed(request, address, queries)
    except UnsupportedFeatureError as error:
        found = Surveyed(table=address, action=Decision.LEAVE, reason=error.message)
    except Exception as error:  # noqa: BLE001  one table's failure stops no other
        found = _not_surveyed(address, as_known(error))
    return replace(found, seconds=time.monotonic() - started)


def _not_surveyed(address: str, error: LiquidlogError) -> Surveyed:
    return Surveyed(table=address, action=Decision.FAIL, reason=error.message, error=error)


def _surveyed(request: FleetRequest, address: str, queries: tuple[Query, ...]) -> Surveyed:
    table = Table.open(address, storage_options=own_options(address, request.storage_options))
    snapshot, opened = table.snapshot(), table.opened
    source, bar, pages = request.workload, request.bar, request.pages
    asked = predicates_of(queries, table.uri, opened.store.storage)
    page, problem, verdict = None, None, None
    if pages is not None and (asked or source is None):
        overview = table.overview(
            workload=asked,
            workload_source=source,
            payback_days=bar.payback_days,
            queries_per_day=bar.queries_per_day,
            past=False,
        )
        ratio = None if overview.health is None else overview.health.depth_ratio
        content = pages.render(overview, source or "W")
        page = save(pages.directory, table.uri, ".html", content.encode()).name
        verdict, problem = overview.verdict, overview.problem or "it is not judged"
    else:
        ratio = depth_ratio(snapshot, opened.bounds_of(snapshot))
        verdict = judged(table, asked, source, bar)
    best = None if verdict is None else verdict.best
    idle = Decision.FAIL if verdict is None else Decision.LEAVE
    return Surveyed(
        table=table.uri,
        action=idle if best is None else Decision.REWRITE,
        reason=problem or "" if verdict is None else verdict.sentence,
        version=snapshot.version,
        files=snapshot.files.num_rows,
        size_bytes=snapshot.size_bytes,
        columns=tuple(column.name for column in clustering_state(snapshot).columns),
        depth_ratio=ratio,
        verdict=None if verdict is None else verdict.document(),
        rank=0.0 if best is None else rank(best),
        page=page,
    )


def as_known(error: Exception) -> LiquidlogError:
    """Return an error as one of ours; a foreign one is named by its class."""
    if isinstance(error, LiquidlogError):
        return error
    return LiquidlogError(f"{type(error).__name__}: {error}")


def save(directory: str, address: str, suffix: str, content: bytes) -> Path:
    """Save a file about a table, replacing an older one; no other table has its plain name."""
    last = address.rstrip("/").rpartition("/")[2]
    name = _ODD.sub("-", last)[:_LONGEST].lstrip(".-") or "table"
    digest = hashlib.sha256(address.encode(errors="surrogatepass")).hexdigest()[:12]
    path = Path(directory, f"{name}-{digest}{suffix}")
    local.replace(str(path), content)
    return path
