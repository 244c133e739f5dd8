"""Looking at many tables, and acting on them, ranked by their verdicts.

`survey` looks at all in a few processes; only pages are written. `tick` claims each table that is
due, looks at it again, rewrites it within the budget, from the top, and tidies up. One workload has
the queries of all tables. Between two runs, nothing is kept but the tables' own logs.
"""

import hashlib
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.planner import affordable
from liquidlog.clustering.settings import OVERLAP
from liquidlog.commit.transaction import Clock, system_clock
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
    Trigger,
    UpkeepPolicy,
    answer,
    depth_ratio,
    past_work,
    rank,
    seen_of,
)
from liquidlog.foresee.verdict import Bar, Criteria, Verdict, no_verdict
from liquidlog.local.workers import TaskFailedError, Workers, core_count
from liquidlog.logs import Log
from liquidlog.operations.doctor import Overview
from liquidlog.operations.executors import Executor, ExecutorWhenNeeded
from liquidlog.operations.judge import judge, judge_plan
from liquidlog.operations.optimize import rewritten
from liquidlog.operations.outputs import at_work, claimed
from liquidlog.operations.rewrite import require_rewritable
from liquidlog.operations.workloads import predicates_of
from liquidlog.plan import ClusteringPlan, encode_plan
from liquidlog.predicates.workload import Workload
from liquidlog.spec.text import render_size
from liquidlog.storage.files import make_directory, replace_file
from liquidlog.storage.options import OptionsSource, StorageOptions
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
        make_directory(request.pages.directory)
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
    replace_file(str(path), content)
    return path


# One run of upkeep

_SEE_ORPHANS = "if that was killed, `liquidlog orphans` lists what it left"

_LOOKING: Final = 4
"""Tables that are looked at together: few are in memory, but they wait together for storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """A checkpoint or a vacuum: why it was due, and its result or error."""

    reason: str
    done: Mapping[str, Any] | None = None
    error: LiquidlogError | None = None

    def document(self) -> dict[str, Any]:
        """Return the JSON document of the chore."""
        error = None if self.error is None else self.error.document()
        return {"reason": self.reason, "done": self.done, "error": error}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOutcome:
    """What the run did with one table.

    `version` is the last that the run saw or made. `bytes_rewritten` are those of the inputs of
    groups that were or would be committed, as `versions`.
    """

    table: str
    decision: Decision
    reason: str
    version: int | None = None
    bytes_rewritten: int = 0
    seconds: float = 0.0
    triggers: tuple[Trigger, ...] = ()
    versions: tuple[int, ...] = ()
    verdict: Verdict | None = None
    plan: str | None = None
    checkpoint: Chore | None = None
    vacuum: Chore | None = None
    error: LiquidlogError | None = None

    @property
    def errors(self) -> tuple[LiquidlogError, ...]:
        """The errors of the rewrite and of chores."""
        chores = (self.checkpoint, self.vacuum)
        found = (self.error, *(chore.error for chore in chores if chore is not None))
        return tuple(error for error in found if error is not None)

    def document(self) -> dict[str, Any]:
        """Return the JSON document of the outcome."""
        return {
            "table": self.table,
            "decision": self.decision.value,
            "reason": self.reason,
            "version": self.version,
            "bytes_rewritten": self.bytes_rewritten,
            "seconds": round(self.seconds, 3),
            "triggers": [trigger.name for trigger in self.triggers],
            "versions": list(self.versions),
            "verdict": None if self.verdict is None else self.verdict.document(),
            "plan": self.plan,
            "checkpoint": None if self.checkpoint is None else self.checkpoint.document(),
            "vacuum": None if self.vacuum is None else self.vacuum.document(),
            "error": None if self.error is None else self.error.document(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """What one run did, with the tables in the order of its decisions.

    `spent_bytes` counts the inputs of all rewrites that began, `left_out` the tables of other
    formats in catalogs.
    """

    tables: tuple[TableOutcome, ...]
    budget_bytes: int | None
    spent_bytes: int
    seconds: float
    left_out: int = 0

    def document(self) -> dict[str, Any]:
        """Return the JSON document of the run."""
        return {
            "tables": [table.document() for table in self.tables],
            "budget": {"bytes": self.budget_bytes, "spent": self.spent_bytes},
            "seconds": round(self.seconds, 3),
            "left_out": self.left_out,
        }

    @property
    def exit_status(self) -> int:
        """EXIT_ERROR if anything failed, else EXIT_OK."""
        return EXIT_ERROR if any(table.errors for table in self.tables) else EXIT_OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Worthwhile:
    """A rewrite that is worth it by `bar`; its plan is made again when it is its turn.

    `arguments` are for Table.plan, and the layout is fitted to `workload`, if to any.
    """

    arguments: Mapping[str, Any]
    workload: Workload | None
    size_bytes: int
    rank: float
    bar: Bar


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A table's outcome if nothing is done, and what is due; `chores` say why by their names."""

    outcome: TableOutcome
    candidate: Worthwhile | None = None
    chores: Mapping[str, str] = field(default_factory=dict)

    def held(self, reason: str) -> TableOutcome:
        """Return the outcome if the rewrite is postponed."""
        return replace(self.outcome, decision=Decision.POSTPONE, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class TickRequest:
    """The arguments of a run; `tables` adds addresses and globs to those of the policy.

    `choose_executor` names the executor of a plan, `open_executor` starts it for its first rewrite.
    With `dry_run` nothing is written, with `plans` (a directory) only plans.
    """

    policy: UpkeepPolicy
    tables: tuple[str, ...] = ()
    storage_options: OptionsSource | None = None
    choose_executor: Callable[[ClusteringPlan], str]
    open_executor: Callable[[str], AbstractContextManager[Executor]]
    dry_run: bool = False
    plans: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Looks at tables and acts on them, for the same readers, within one budget."""

    request: TickRequest
    readers: Readers
    clock: Clock
    executor: ExecutorWhenNeeded
    spending: Spending

    def _open(self, address: str) -> Table:
        options = own_options(address, self.request.storage_options)
        return Table.open(address, storage_options=options)

    def look(self, address: str) -> Looked:
        """Return what a table needs; any error becomes its outcome."""
        started_ms = self.clock.now_ms()
        try:
            looked = self._looked(address)
        except UnsupportedFeatureError as error:
            left = TableOutcome(table=address, decision=Decision.LEAVE, reason=error.message)
            looked = Looked(outcome=left)
        except Exception as error:  # noqa: BLE001  one table's failure stops no other
            looked = Looked(outcome=_not_looked_at(address, error))
        seconds = (self.clock.now_ms() - started_ms) / 1000
        outcome = replace(looked.outcome, seconds=seconds)
        _log.info(
            "looked at %s in %.2f s: %s, %s", address, seconds, outcome.decision, outcome.reason
        )
        return replace(looked, outcome=outcome)

    def _looked(self, address: str) -> Looked:
        table, vacuum = self._open(address), self.request.policy.vacuum
        version = table.snapshot().version
        past = past_work(
            table.opened.store,
            enough=lambda past: (
                past.last_rewrite is not None
                and (vacuum is None or past.last_vacuum_ms is not None)
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
        outcome = TableOutcome(
            table=table.uri,
            decision=idle if candidate is None else Decision.REWRITE,
            reason=found.reason,
            version=version,
            triggers=found.triggers,
            verdict=found.verdict,
        )
        return Looked(outcome=outcome, candidate=candidate, chores=self._chores(past))

    def _answer(self, table: Table, past: PastWork) -> Answer:
        policy, source = self.request.policy.rewrite, self.readers.source
        if policy is None:
            return Answer(reason="the policy asks for no rewrites")
        snapshot = table.snapshot()
        bounds_of, now_ms = table.opened.bounds_of(snapshot), self.clock.now_ms()
        seen = seen_of(snapshot, past, policy.when, bounds_of, now_ms)
        return answer(
            policy, seen, lambda bar: judged(table, self.readers.of(table.uri), source, bar)
        )

    def _chores(self, past: PastWork) -> Mapping[str, str]:
        checkpoint, vacuum = self.request.policy.checkpoint, self.request.policy.vacuum
        due: dict[str, str] = {}
        if checkpoint is not None and past.commits_since_checkpoint >= checkpoint.commits:
            due["checkpoint"] = (
                f"{past.commits_since_checkpoint} commits since the newest checkpoint"
            )
        if vacuum is not None and past.last_vacuum_ms is None:
            due["vacuum"] = "no vacuum in the commits that were read"
        elif vacuum is not None:
            age_ms = self.clock.now_ms() - (past.last_vacuum_ms or 0)
            if age_ms >= vacuum.age_ms:
                due["vacuum"] = f"the last vacuum was {age_ms / 86_400_000:.1f} days ago"
        return due

    def act(self, looked: Looked) -> TableOutcome:
        """Do what is due for a table, or postpone it; any error becomes its outcome."""
        if looked.candidate is None and self._skips_chores(looked):
            return looked.outcome
        started_ms = self.clock.now_ms()
        try:
            outcome = self._acted(looked)
        except Exception as error:  # noqa: BLE001  one table's failure stops no other
            outcome = _failed(looked.outcome, error)
        seconds = looked.outcome.seconds + (self.clock.now_ms() - started_ms) / 1000
        _log.info(
            "%s: %s after %.2f s, %s", outcome.table, outcome.decision, seconds, outcome.reason
        )
        return replace(outcome, seconds=seconds)

    def _skips_chores(self, looked: Looked) -> bool:
        return self.request.plans is not None or not looked.chores

    def _acted(self, looked: Looked) -> TableOutcome:
        over = self.spending.is_over(self.clock.now_ms())
        if over is not None:
            return looked.held(over)
        spent = self.spending.is_spent()
        if looked.candidate is not None and spent is not None:
            looked = replace(looked, candidate=None, outcome=looked.held(spent))
            if self._skips_chores(looked):
                return looked.outcome
        table = self._open(looked.outcome.table)
        store, writes = table.opened.store, not self.request.dry_run and self.request.plans is None
        claim = claimed(store, self.clock) if writes else nullcontext(at_work(store, self.clock))
        with claim as others:
            if others:
                return looked.held(f"{others[0]} may be at work on it; {_SEE_ORPHANS}")
            return self._done(table, looked)

    def _done(self, table: Table, looked: Looked) -> TableOutcome:
        """Look again if the table has changed, then do what is due."""
        if looked.candidate is not None and table.snapshot().version != looked.outcome.version:
            looked = self.look(looked.outcome.table)
            if looked.outcome.error is not None:
                raise looked.outcome.error
        outcome = looked.outcome
        if looked.candidate is not None:
            outcome = self._rewritten(table, looked, looked.candidate)
        if self.request.plans is not None or outcome.error is not None:
            return outcome
        return self._tidied(table, looked, outcome)

    def _rewritten(self, table: Table, looked: Looked, candidate: Worthwhile) -> TableOutcome:
        plan = self._affordable(table, candidate)
        if plan is None:
            left = self.spending.left_bytes or 0
            reason = (
                f"its rewrite takes {render_size(candidate.size_bytes)}, and no part of it that is"
                f" worth it fits into the {render_size(left)} that are left of the budget"
            )
            return looked.held(f"{reason}; {looked.outcome.reason}")
        require_rewritable(table.opened, plan)
        self.spending.spent_bytes += plan.size_bytes
        outcome = replace(looked.outcome, bytes_rewritten=plan.size_bytes)
        if plan.size_bytes < candidate.size_bytes:
            part = (
                f"{render_size(plan.size_bytes)} of {render_size(candidate.size_bytes)}, as the"
                " budget allows"
            )
            outcome = replace(outcome, reason=f"{part}; {outcome.reason}")
        if (plans := self.request.plans) is not None:
            make_directory(plans)
            where = save(plans, plan.table_uri, ".json", encode_plan(plan))
            return replace(outcome, decision=Decision.PLAN, plan=str(where))
        return outcome if self.request.dry_run else self._committed(table, plan, outcome)

    def _affordable(self, table: Table, candidate: Worthwhile) -> ClusteringPlan | None:
        """Return the plan, or a part within the budget that is worth it by itself, or None.

        Of clustered tables, that is the files that gain most; else the plan's first groups.
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

    def _committed(self, table: Table, plan: ClusteringPlan, outcome: TableOutcome) -> TableOutcome:
        report = rewritten(table.opened, plan, executor=self.executor, commits={})
        sizes = {group.group_id: group.size_bytes for group in plan.groups}
        done = replace(
            outcome,
            version=max(report.versions, default=outcome.version),
            versions=report.versions,
            bytes_rewritten=sum(sizes[group_id] for group_id in report.committed_groups),
        )
        try:
            report.require_success()
        except LiquidlogError as error:
            return _failed(done, error)
        return done

    def _tidied(self, table: Table, looked: Looked, outcome: TableOutcome) -> TableOutcome:
        """Do the chores; the error of one does not undo earlier work."""
        does = {"checkpoint": self._checkpoint, "vacuum": self._vacuum}
        for name, reason in looked.chores.items():
            try:
                chore = Chore(reason=reason, done=does[name](table))
            except LiquidlogError as error:
                chore = Chore(reason=reason, error=error)
            done: Mapping[str, Any] = {name: chore}
            outcome = replace(outcome, **done)
        if self.request.dry_run:
            return outcome
        return replace(outcome, version=table.snapshot().version)

    def _checkpoint(self, table: Table) -> Mapping[str, Any]:
        made = table.checkpoint(dry_run=self.request.dry_run)
        return {"version": made.version, "created": made.created}

    def _vacuum(self, table: Table) -> Mapping[str, Any]:
        vacuum = self.request.policy.vacuum
        retain = None if vacuum is None else vacuum.retain
        done = table.vacuum(retain=retain, dry_run=self.request.dry_run)
        return {
            "versions": list(done.versions),
            "deleted_files": done.deleted_files,
            "deleted_bytes": done.deleted_bytes,
        }


def _failed(outcome: TableOutcome, error: Exception) -> TableOutcome:
    known = as_known(error)
    return replace(outcome, decision=Decision.FAIL, reason=known.message, error=known)


def _not_looked_at(address: str, error: Exception) -> TableOutcome:
    return _failed(TableOutcome(table=address, decision=Decision.FAIL, reason=""), error)


def tick(request: TickRequest, *, clock: Clock | None = None) -> Ticked:
    """Look at each table, decide and act; the failure of one stops no other.

    Two runs may work at once, since each claims a table before it works on it.
    """
    policy, now = request.policy, clock or system_clock()
    wanted = (*policy.tables, *request.tables)
    if not wanted:
        raise UsageError("there is no table to look at: name some, or set tables in the policy")
    begun_ms = now.now_ms()
    options = StorageOptions.of(request.storage_options)
    found = find_tables(wanted, policy.exclude, options)
    addresses = [one.address for one in found if one.problem is None]
    source = None if policy.rewrite is None else policy.rewrite.workload
    outcomes = [
        _not_looked_at(one.address, LiquidlogError(one.problem))
        for one in found
        if one.problem is not None
    ]
    with ExecutorWhenNeeded(request.choose_executor, request.open_executor) as executor:
        run = _Run(
            request=request,
            readers=Readers(source, addresses, options),
            clock=now,
            executor=executor,
            spending=Spending(budget=policy.budget, begun_ms=begun_ms),
        )
        _log.info("looking at %d tables", len(addresses))
        with ThreadPoolExecutor(_LOOKING) as pool:
            looked = [*pool.map(run.look, addresses)]
        # In the order in which rewrites pay back, others last.
        looked.sort(key=lambda one: math.inf if one.candidate is None else one.candidate.rank)
        outcomes += map(run.act, looked)
    return Ticked(
        tables=tuple(outcomes),
        budget_bytes=policy.budget.bytes,
        spent_bytes=run.spending.spent_bytes,
        seconds=(now.now_ms() - begun_ms) / 1000,
        left_out=sum(one.others for one in found),
    )
