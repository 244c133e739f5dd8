"""Survey many tables, or act on them, ranked by their verdicts.

`survey` looks at all tables in a few processes, and writes nothing but pages. `tick` acts on the
tables that are due, the best rewrite first: it claims a table, looks at it again, rewrites it
within the budget, and tidies up. One workload has the queries of all tables. A run keeps nothing
for the next one: the tables' logs are enough.
"""

import hashlib
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.planner import affordable
from liquidlog.clustering.settings import OVERLAP
from liquidlog.commit import Clock, system_clock
from liquidlog.errors import (
    EXIT_ERROR,
    EXIT_OK,
    LiquidlogError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.fleet.finding import find_tables, own_options
from liquidlog.fleet.policy import (
    Answer,
    Decision,
    PastWork,
    Spending,
    UpkeepPolicy,
    answer,
    depth_ratio,
    past_work,
    rank,
    seen_of,
)
from liquidlog.foresee.verdict import Bar, Criteria, Verdict, no_verdict
from liquidlog.local import TaskFailedError, Workers, core_count
from liquidlog.logs import Log
from liquidlog.operations.advise import predicates_of
from liquidlog.operations.doctor import Overview
from liquidlog.operations.executors import ExecutorOf
from liquidlog.operations.optimize import require_rewritable, rewritten
from liquidlog.operations.planning import judge, judge_plan
from liquidlog.operations.vacuum import at_work, claimed
from liquidlog.plan import ClusteringPlan, encode_plan
from liquidlog.predicates.workload import Workload
from liquidlog.spec.text import render_size
from liquidlog.storage.addresses import OptionsSource, StorageOptions
from liquidlog.storage.files import make_directory, replace_file
from liquidlog.table import Table
from liquidlog.workload.queries import KnownTable, Query, Tables, grouped, normal
from liquidlog.workload.sources import found_in, open_table

_log: Final = Log(__name__)

_SOON_LOOKED_AT: Final = 3
"""This process looks at so few tables before others would have started."""

_ORDER: Final = (Decision.REWRITE, Decision.FAIL, Decision.LEAVE)
_TOGETHER: Final = 4
"""Tables that are opened together: few are in memory, and they wait together for storage."""


class Readers:
    """The queries of a workload by table."""

    def __init__(
        self, source: str | None, addresses: Sequence[str], options: StorageOptions
    ) -> None:
        """Read the workload from `source`, if any, for the tables that can be opened."""
        self.source = source
        self._options = options
        self._queries: dict[str, list[Query]] = {}
        if source is None:
            return
        with ThreadPoolExecutor(_TOGETHER) as pool:
            opened = pool.map(self._opened, addresses)
            known = tuple(table for table in opened if table is not None)
        for query in grouped(found_in([source], Tables(known), options)).queries:
            self._queries.setdefault(normal(query.table), []).append(query)

    def _opened(self, address: str) -> KnownTable | None:
        with suppress(LiquidlogError):
            return open_table(address, self._options)
        return None

    def queries_of(self, address: str) -> tuple[Query, ...]:
        return tuple(self._queries.get(normal(address), ()))

    def of(self, address: str) -> Workload:
        """Return the predicates on a table, none without a workload."""
        return predicates_of(self.queries_of(address), address, self._options)


def judged(table: Table, asked: Workload, source: str | None, bar: Bar) -> Verdict:
    """Judge a table for the queries of a workload; without a `source`, queries are assumed."""
    if source is not None and not asked:
        found = no_verdict("leave", f"{source} has no query of it", Criteria(bar=bar))
        return replace(found, readers="workload")
    now_ms = table.opened.clock.now_ms()
    criteria = Criteria(workload=asked, workload_source=source, bar=bar, now_ms=now_ms)
    return judge(table.opened, table.snapshot(), criteria).verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The decision about a table, with the reason; REWRITE, LEAVE or FAIL after a mere look."""

    table: str
    decision: Decision = Decision.FAIL
    reason: str = ""
    version: int | None = None
    seconds: float = 0.0
    error: LiquidlogError | None = None

    def failed(self, error: Exception) -> Self:
        """Return the outcome after an error; the class names an error that is not ours."""
        known = error
        if not isinstance(known, LiquidlogError):
            known = LiquidlogError(f"{type(error).__name__}: {error}")
        return replace(self, decision=Decision.FAIL, reason=known.message, error=known)


OutcomeT = TypeVar("OutcomeT", bound=Outcome)


def timed(before: OutcomeT, work: Callable[[], OutcomeT]) -> OutcomeT:
    """Return the outcome of `work` and its duration; an error becomes the outcome."""
    started = time.monotonic()
    try:
        found = work()
    except Exception as error:  # noqa: BLE001  one table's failure stops no other
        found = before.failed(error)
    return replace(found, seconds=before.seconds + time.monotonic() - started)


def looked_at(empty: OutcomeT, look: Callable[[], OutcomeT]) -> OutcomeT:
    """Return the outcome of a first look; a table with unknown features is left alone."""
    found = timed(empty, look)
    if isinstance(found.error, UnsupportedFeatureError):
        return replace(found, decision=Decision.LEAVE, error=None)
    return found


def _say_looked(found: Outcome) -> None:
    asked = found.table, found.seconds, found.decision, found.reason
    _log.info("looked at %s in %.2f s: %s, %s", *asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed(Outcome):
    """What a survey found; `verdict` is a document, `page` the name of a file."""

    files: int | None = None
    size_bytes: int | None = None
    columns: tuple[str, ...] = ()
    depth_ratio: float | None = None
    verdict: Mapping[str, Any] | None = None
    rank: float = 0.0
    page: str | None = None

    @property
    def answer(self) -> str:
        """The answer of the verdict; without one, the decision."""
        return self.decision.value if self.verdict is None else str(self.verdict["answer"])

    @property
    def worth(self) -> Mapping[str, Any] | None:
        """The verdict if a rewrite is worth it, else None."""
        return self.verdict if self.decision is Decision.REWRITE else None

    def document(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "files": self.files,
            "bytes": self.size_bytes,
            "depth_ratio": self.depth_ratio,
            "action": self.decision.value,
            "reason": self.reason,
            "version": self.version,
            "cluster_by_keys": list(self.columns),
            "verdict": self.verdict,
            "page": self.page,
            "seconds": round(self.seconds, 3),
            "error": self.error,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRequest:
    """The arguments of a survey.

    `prefixes` are addresses of tables, directories above tables, and globs. Without a `workload`
    (an address), queries are assumed. `render` makes the page of a table from an overview and the
    workload's name, for the directory `pages`; other processes must be able to import it. One
    process is this one; None is about one per core.
    """

    prefixes: tuple[str, ...]
    workload: str | None = None
    bar: Bar = field(default_factory=Bar)
    storage_options: Mapping[str, str] | None = None
    pages: str | None = None
    render: Callable[[Overview, str], str] | None = None
    processes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The tables of a survey: those to rewrite, the soonest payback first; then failed tables.

    The tables to leave alone are last, the largest first.
    """

    tables: tuple[Surveyed, ...]
    bar: Bar
    workload: str | None
    seconds: float

    def document(self) -> dict[str, Any]:
        return {
            "tables": self.tables,
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
        raise UsageError("there is nothing to look at: name tables, or directories above them")
    started = time.monotonic()
    if request.pages is not None:
        make_directory(request.pages)
    options = StorageOptions.of(request.storage_options)
    found = find_tables(request.prefixes, (), options, below=True)
    addresses = [one.address for one in found if one.problem is None]
    readers = Readers(request.workload, addresses, options)
    on_found(len(addresses))
    _log.info("looking at %d tables", len(addresses))
    tables = [
        Surveyed(table=one.address).failed(LiquidlogError(one.problem))
        for one in found
        if one.problem is not None
    ]
    for one in _all(request, [(address, readers.queries_of(address)) for address in addresses]):
        _say_looked(one)
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
        return _ORDER.index(one.decision), one.rank, -(one.size_bytes or 0), one.table

    return tuple(sorted(tables, key=place))


def _all(
    request: FleetRequest, asked: Sequence[tuple[str, tuple[Query, ...]]]
) -> Iterator[Surveyed]:
    processes = request.processes
    if processes == 1 or (processes is None and len(asked) <= _SOON_LOOKED_AT):
        yield from (surveyed(request, *one) for one in asked)
        return
    # At least two, even on one core: a process may wait for storage.
    usual = max(2, min(core_count(), 8))
    workers = Workers(min(usual if processes is None else processes, max(1, len(asked))))
    try:
        running = {workers.submit(surveyed, request, *one, attempt=0): one[0] for one in asked}
        for future in as_completed(running):
            try:
                yield future.result()
            except TaskFailedError as error:
                yield Surveyed(table=running[future]).failed(LiquidlogError(str(error)))
    finally:
        workers.close()


def surveyed(request: FleetRequest, address: str, queries: tuple[Query, ...]) -> Surveyed:
    """Look at one table and its queries in the workload; an error becomes the result."""
    return looked_at(Surveyed(table=address), partial(_surveyed, request, address, queries))


def _surveyed(request: FleetRequest, address: str, queries: tuple[Query, ...]) -> Surveyed:
    table = Table.open(address, storage_options=own_options(address, request.storage_options))
    snapshot, opened = table.snapshot(), table.opened
    source, bar, pages, render = request.workload, request.bar, request.pages, request.render
    asked = predicates_of(queries, table.uri, opened.store.storage)
    page, problem, verdict = None, None, None
    if pages is not None and render is not None and (asked or source is None):
        overview = table.overview(
            workload=asked,
            workload_source=source,
            payback_days=bar.payback_days,
            queries_per_day=bar.queries_per_day,
            past=False,
        )
        ratio = None if overview.health is None else overview.health.depth_ratio
        content = render(overview, source or "W")
        page = save(pages, table.uri, ".html", content.encode()).name
        verdict, problem = overview.verdict, overview.problem or "it is not judged"
    else:
        ratio = depth_ratio(snapshot, opened.bounds_of(snapshot))
        verdict = judged(table, asked, source, bar)
    best = None if verdict is None else verdict.best
    idle = Decision.FAIL if verdict is None else Decision.LEAVE
    return Surveyed(
        table=table.uri,
        decision=idle if best is None else Decision.REWRITE,
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


def save(directory: str, address: str, suffix: str, content: bytes) -> Path:
    """Save a file about a table and return its path, which no other table has."""
    last = address.rstrip("/").rpartition("/")[2]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", last)[:60].lstrip(".-") or "table"
    digest = hashlib.sha256(address.encode(errors="surrogatepass")).hexdigest()[:12]
    path = Path(directory, f"{name}-{digest}{suffix}")
    replace_file(str(path), content)
    return path


# One run of upkeep


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """A checkpoint or a vacuum: the reason, and the result or error."""

    reason: str
    done: Mapping[str, Any] | None = None
    error: LiquidlogError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worthwhile:
    """A rewrite that reaches `bar`; its plan is made again right before the rewrite.

    `arguments` are for Table.plan; the layout is fitted to `workload`, if any.
    """

    arguments: Mapping[str, Any]
    workload: Workload | None
    size_bytes: int
    rank: float
    bar: Bar


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutcome(Outcome):
    """What the run did with one table.

    `version` is the last that the run saw or made. The inputs of the groups that were or would be
    committed, as `versions`, have `bytes_rewritten`. The first look found the rewrite `candidate`
    and the chores that are `due`, by name, with the reasons.
    """

    bytes_rewritten: int = 0
    triggers: Mapping[str, str] = field(default_factory=dict)
    versions: tuple[int, ...] = ()
    verdict: Verdict | None = None
    plan: str | None = None
    checkpoint: Chore | None = None
    vacuum: Chore | None = None
    candidate: Worthwhile | None = None
    due: Mapping[str, str] = field(default_factory=dict)

    def held(self, reason: str) -> "TableOutcome":
        return replace(self, decision=Decision.POSTPONE, reason=reason)

    @property
    def errors(self) -> tuple[LiquidlogError, ...]:
        chores = (self.checkpoint, self.vacuum)
        found = (self.error, *(chore.error for chore in chores if chore is not None))
        return tuple(error for error in found if error is not None)

    def document(self) -> dict[str, Any]:
        shown = [one.name for one in fields(self) if one.name not in {"candidate", "due"}]
        document = {name: getattr(self, name) for name in shown}
        return {**document, "seconds": round(self.seconds, 3), "triggers": list(self.triggers)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """What one run did, table by table in its order.

    `spent_bytes` counts the inputs of all rewrites that began, `left_out` the tables of other
    formats in catalogs.
    """

    tables: tuple[TableOutcome, ...]
    budget_bytes: int | None
    spent_bytes: int
    seconds: float
    left_out: int = 0

    def document(self) -> dict[str, Any]:
        return {
            "tables": self.tables,
            "budget": {"bytes": self.budget_bytes, "spent": self.spent_bytes},
            "seconds": round(self.seconds, 3),
            "left_out": self.left_out,
        }

    @property
    def exit_status(self) -> int:
        """EXIT_ERROR if anything failed, else EXIT_OK."""
        return EXIT_ERROR if any(table.errors for table in self.tables) else EXIT_OK


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Looks at tables and acts on them, for one workload, within one budget."""

    policy: UpkeepPolicy
    storage_options: OptionsSource | None
    dry_run: bool
    plans: str | None
    readers: Readers
    clock: Clock
    executor: ExecutorOf
    spending: Spending

    def _open(self, address: str) -> Table:
        return Table.open(address, storage_options=own_options(address, self.storage_options))

    def look(self, address: str) -> TableOutcome:
        """Return what a table needs; an error becomes the outcome."""
        found = looked_at(TableOutcome(table=address), partial(self._looked, address))
        _say_looked(found)
        return found

    def _looked(self, address: str) -> TableOutcome:
        table, vacuum_age_ms = self._open(address), self.policy.vacuum_age_ms
        version = table.snapshot().version
        past = past_work(
            table.opened.store,
            enough=lambda past: (
                past.last_rewrite is not None
                and (vacuum_age_ms is None or past.last_vacuum_ms is not None)
            ),
        )
        found = self._answer(table, past)
        candidate = None
        if found.rewrite is not None and found.bar is not None:
            plan = found.rewrite.plan
            candidate = Worthwhile(
                arguments=found.rewrite.arguments,
                workload=None if plan.readers is None else self.readers.of(table.uri),
                size_bytes=plan.size_bytes,
                rank=rank(found.rewrite),
                bar=found.bar,
            )
        idle = Decision.POSTPONE if found.is_early else Decision.LEAVE
        return TableOutcome(
            table=table.uri,
            decision=idle if candidate is None else Decision.REWRITE,
            reason=found.reason,
            version=version,
            triggers=found.triggers,
            verdict=found.verdict,
            candidate=candidate,
            due=self._due(past),
        )

    def _answer(self, table: Table, past: PastWork) -> Answer:
        policy, readers, snapshot = self.policy.rewrite, self.readers, table.snapshot()
        if policy is None:
            return Answer(reason="the policy asks for no rewrites")
        bounds_of, now_ms = table.opened.bounds_of(snapshot), self.clock.now_ms()
        seen = seen_of(snapshot, past, policy.when, bounds_of, now_ms)
        uri, source = table.uri, readers.source
        return answer(policy, seen, lambda bar: judged(table, readers.of(uri), source, bar))

    def _due(self, past: PastWork) -> Mapping[str, str]:
        commits, vacuum_age_ms = self.policy.checkpoint_commits, self.policy.vacuum_age_ms
        due: dict[str, str] = {}
        if self.plans is not None:
            return due
        if commits is not None and past.commits_since_checkpoint >= commits:
            due["checkpoint"] = (
                f"{past.commits_since_checkpoint} commits since the newest checkpoint"
            )
        if vacuum_age_ms is not None and past.last_vacuum_ms is None:
            due["vacuum"] = "no vacuum in the commits that were read"
        elif vacuum_age_ms is not None:
            age_ms = self.clock.now_ms() - (past.last_vacuum_ms or 0)
            if age_ms >= vacuum_age_ms:
                due["vacuum"] = f"the last vacuum was {age_ms / 86_400_000:.1f} days ago"
        return due

    def act(self, found: TableOutcome) -> TableOutcome:
        """Do what is due for a table, or postpone it; an error becomes the outcome."""
        if found.candidate is None and not found.due:
            return found
        done = timed(found, partial(self._acted, found))
        _log.info("%s: %s after %.2f s, %s", done.table, done.decision, done.seconds, done.reason)
        return done

    def _acted(self, found: TableOutcome) -> TableOutcome:
        over = self.spending.is_over(self.clock.now_ms())
        if over is not None:
            return found.held(over)
        spent = self.spending.is_spent()
        if found.candidate is not None and spent is not None:
            found = replace(found.held(spent), candidate=None)
            if not found.due:
                return found
        table = self._open(found.table)
        store, writes = table.opened.store, not self.dry_run and self.plans is None
        claim = claimed(store, self.clock) if writes else nullcontext(at_work(store, self.clock))
        with claim as others:
            if others:
                orphans = "if it was killed, `liquidlog orphans` lists the files that it left"
                return found.held(f"{others[0]} may be at work on it; {orphans}")
            return self._done(table, found)

    def _done(self, table: Table, found: TableOutcome) -> TableOutcome:
        """Look again if the table has changed, then do what is due."""
        if found.candidate is not None and table.snapshot().version != found.version:
            found = self.look(found.table)
            if found.error is not None:
                raise found.error
        if found.candidate is not None:
            found = self._rewritten(table, found, found.candidate)
        return found if found.error is not None else self._tidied(table, found)

    def _rewritten(self, table: Table, found: TableOutcome, candidate: Worthwhile) -> TableOutcome:
        plan = self._affordable(table, candidate)
        if plan is None:
            left = self.spending.left_bytes or 0
            return found.held(
                f"its rewrite takes {render_size(candidate.size_bytes)}, the budget has"
                f" {render_size(left)} left, and no part of that size is worth it; {found.reason}"
            )
        require_rewritable(table.opened, plan)
        self.spending.spent_bytes += plan.size_bytes
        found = replace(found, bytes_rewritten=plan.size_bytes)
        if plan.size_bytes < candidate.size_bytes:
            part = f"{render_size(plan.size_bytes)} of {render_size(candidate.size_bytes)}"
            found = replace(found, reason=f"{part}, as the budget allows; {found.reason}")
        if self.plans is not None:
            make_directory(self.plans)
            where = save(self.plans, plan.table_uri, ".json", encode_plan(plan))
            return replace(found, decision=Decision.PLAN, plan=str(where))
        return found if self.dry_run else self._committed(table, plan, found)

    def _affordable(self, table: Table, candidate: Worthwhile) -> ClusteringPlan | None:
        """Return the plan; or a part within the budget, if the part is worth it; or None.

        The part has the files of a clustered table that gain most, or the plan's first groups.
        """
        plan = table.plan(**candidate.arguments, workload=candidate.workload)
        left = self.spending.left_bytes
        if left is None or plan.size_bytes <= left:
            return plan
        parts: list[Callable[[], ClusteringPlan]] = [lambda: affordable(plan, left)]
        if plan.columns and candidate.arguments.get("strategy"):
            most: Mapping[str, Any] = {"max_file_size": candidate.arguments.get("max_file_size")}
            most = {**most, "strategy": OVERLAP, "budget": left, "workload": candidate.workload}
            parts.insert(0, partial(table.plan, **most))
        asked, now_ms = self.readers.of(table.uri), self.clock.now_ms()
        criteria = Criteria(workload=asked, bar=candidate.bar, now_ms=now_ms)
        for made in (part() for part in parts):
            if made.groups and judge_plan(table.opened, made, criteria).best is not None:
                return made
        return None

    def _committed(self, table: Table, plan: ClusteringPlan, found: TableOutcome) -> TableOutcome:
        report = rewritten(table.opened, plan, executor=self.executor, commits={})
        sizes = {group.group_id: group.size_bytes for group in plan.groups}
        done = replace(
            found,
            version=max(report.versions, default=found.version),
            versions=report.versions,
            bytes_rewritten=sum(sizes[group_id] for group_id in report.committed_groups),
        )
        try:
            report.require_success()
        except LiquidlogError as error:
            return done.failed(error)
        return done

    def _tidied(self, table: Table, found: TableOutcome) -> TableOutcome:
        """Do the chores; the error of one does not undo earlier work."""
        for name, reason in found.due.items():
            try:
                chore = Chore(reason=reason, done=self._chore(name, table))
            except LiquidlogError as error:
                chore = Chore(reason=reason, error=error)
            done: Mapping[str, Any] = {name: chore}
            found = replace(found, **done)
        return found if self.dry_run else replace(found, version=table.snapshot().version)

    def _chore(self, name: str, table: Table) -> Mapping[str, Any]:
        if name == "checkpoint":
            made = table.checkpoint(dry_run=self.dry_run)
            return {"version": made.version, "created": made.created}
        done = table.vacuum(retain=self.policy.vacuum_retain, dry_run=self.dry_run)
        return {
            "versions": list(done.versions),
            "deleted_files": done.deleted_files,
            "deleted_bytes": done.deleted_bytes,
        }


def tick(
    policy: UpkeepPolicy,
    tables: Sequence[str],
    executor: ExecutorOf,
    *,
    storage_options: OptionsSource | None = None,
    dry_run: bool = False,
    plans: str | None = None,
    clock: Clock | None = None,
) -> Ticked:
    """Look at each table, decide and act; the failure of one stops no other.

    `tables` adds addresses and globs to those of the policy. `dry_run` writes nothing, `plans` (a
    directory) only plans. Two runs may work at once: each claims a table before it works on it.
    """
    now, wanted = clock or system_clock(), (*policy.tables, *tables)
    if not wanted:
        raise UsageError("there is no table to look at: name some, or set tables in the policy")
    begun_ms = now.now_ms()
    options = StorageOptions.of(storage_options)
    found = find_tables(wanted, policy.exclude, options)
    addresses = [one.address for one in found if one.problem is None]
    outcomes = [
        TableOutcome(table=one.address).failed(LiquidlogError(one.problem))
        for one in found
        if one.problem is not None
    ]
    source = None if policy.rewrite is None else policy.rewrite.workload
    run = _Run(
        policy=policy,
        storage_options=storage_options,
        dry_run=dry_run,
        plans=plans,
        readers=Readers(source, addresses, options),
        clock=now,
        executor=executor,
        spending=Spending(
            begun_ms=begun_ms, bytes=policy.budget_bytes, minutes=policy.budget_minutes
        ),
    )
    _log.info("looking at %d tables", len(addresses))
    with ThreadPoolExecutor(_TOGETHER) as pool:
        looked = [*pool.map(run.look, addresses)]
    # The soonest payback first; tables without a rewrite last.
    looked.sort(key=lambda one: math.inf if one.candidate is None else one.candidate.rank)
    outcomes += map(run.act, looked)
    return Ticked(
        tables=tuple(outcomes),
        budget_bytes=policy.budget_bytes,
        spent_bytes=run.spending.spent_bytes,
        seconds=(now.now_ms() - begun_ms) / 1000,
        left_out=sum(one.others for one in found),
    )
