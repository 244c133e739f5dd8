"""Spark's event log: the scans of each query, their conditions, and what they read."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Final

import msgspec

from liquidlog.spec.schema import Path
from liquidlog.workload.catalyst import (
    ScanConditions,
    ScanText,
    TooHardError,
    conditions,
    printed_merge,
    statement_conditions,
)
from liquidlog.workload.form import (
    Found,
    NotUnderstood,
    OfOther,
    Query,
    Tables,
    Tally,
    asked_once,
    normal,
    read_types,
)

BEGINNING: Final = b'{"Event":"'
"""The beginning of every line of an event log."""
_SQL: Final = b'{"Event":"org.apache.spark.sql.'
_ENVIRONMENT: Final = b'{"Event":"SparkListenerEnvironmentUpdate"'


class Metric(msgspec.Struct, rename="camel"):
    """A counter of a plan's node, and its accumulator."""

    name: str
    accumulator_id: int


class PlanNode(msgspec.Struct, rename="camel"):
    """A node of a plan."""

    node_name: str
    simple_string: str = ""
    children: list["PlanNode"] = []
    metadata: dict[str, str] = {}
    metrics: list[Metric] = []


class Event(msgspec.Struct, rename="camel"):
    """The fields of events about a query; `event` is the name of the class."""

    event: str = msgspec.field(name="Event")
    execution_id: int | None = None
    root_execution_id: int | None = None
    time: int | None = None
    spark_plan_info: PlanNode | None = None
    physical_plan_description: msgspec.Raw = msgspec.Raw(b'""')
    modified_configs: dict[str, str] = {}
    accum_updates: list[list[int]] = []


class _Environment(msgspec.Struct):
    spark: dict[str, str] = msgspec.field(name="Spark Properties", default={})
    system: dict[str, str] = msgspec.field(name="System Properties", default={})


_EVENT: Final = msgspec.json.Decoder(Event)
_SETTINGS: Final = msgspec.json.Decoder(_Environment)
_UNDECODED: Final = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
SESSION_ZONE: Final = "spark.sql.session.timeZone"


def _zone_of(line: bytes) -> str:
    try:
        found = _SETTINGS.decode(line)
    except _UNDECODED:
        return ""
    return found.spark.get(SESSION_ZONE) or found.system.get("user.timezone", "")


_PASSING: Final = ("ColumnarToRow", "InputAdapter", "WholeStageCodegen")
"""Nodes that pass rows on unchanged."""


def nodes(plan: PlanNode) -> Iterator[tuple[PlanNode, PlanNode | None]]:
    """Yield the nodes of a plan, each with the filter directly above it, if there is one."""
    pending: list[tuple[PlanNode, PlanNode | None]] = [(plan, None)]
    while pending:
        node, above = pending.pop()
        yield node, above
        if node.node_name == "Filter":
            above = node
        elif not node.node_name.startswith(_PASSING):
            above = None
        pending.extend((child, above) for child in node.children)


# A log may have a query's plan several times, since Spark adapts plans: a scan counts once, by the
# accumulators of its counters. Memory holds only the distinct scans, and the queries that run at
# the same time.

_LOCATION: Final = re.compile(r"(\w+)(?:\(\d+ paths\))? ?\[(.*?)(?:, \.\.\.)?\]?$", re.DOTALL)
_OF_FILES: Final = frozenset({"InMemoryFileIndex", "CatalogFileIndex", "MetadataLogFileIndex"})
"""Indexes of plain files, which are no Delta table."""
_LOG: Final = "_delta_log"
_LOG_OF_TABLE: Final = re.compile(r" - (\S.*?)/_delta_log")
_ATTRIBUTE: Final = re.compile(r"([A-Za-z_][\w-]*)(#\d+L?)")
_ID: Final = re.compile(r"#\d+(L?)")
_EXECUTE: Final = re.compile(r"Execute (\w+)")
_STATEMENT: Final = re.compile(
    r"\(\d+\) (?:Delete|Update)Command\w*\nArguments: .*?DeltaLog@\w+, "
    r"(?:`[^`]*`(?:\.`[^`]*`)*, )?(.+?)\n\n",
    re.DOTALL,
)
_OF_PATH: Final = re.compile(r"Arguments: \S*?delta\.`([^`]+)`")
_STATEMENTS: Final = frozenset({"DeleteCommand", "UpdateCommand"})
_MERGES: Final = "MergeIntoCommand"
_MAINTENANCE: Final = ("Optimize", "Vacuum", "Reorg", "Restore", "Convert", "Generate", "Zorder")
"""Commands that read tables, but are no queries."""
_COUNTS_ROWS: Final = "_extract_numRecords"

SOURCE: Final = "spark-event-log"


@dataclass(frozen=True, slots=True)
class Asks:
    """A distinct query in a log: the text of a scan, or the printed condition of a statement.

    `schema` is the printed type of the columns read. `kind` is scan, files (no table), statement,
    doubtful (a statement whose columns may belong to another table) or count (the log answers it).
    """

    kind: str
    text: ScanText
    schema: str = ""


@dataclass(slots=True)
class _Scan:
    asks: Asks
    files_id: int
    bytes_id: int
    of_statement: bool


@dataclass(slots=True)
class _Execution:
    time_ms: int | None = None
    zone: str = ""
    plan: PlanNode | None = None
    scans: dict[int, _Scan] = field(default_factory=dict)
    last: frozenset[int] = frozenset()
    values: dict[int, int] = field(default_factory=dict)
    command: str = ""
    description: str = ""
    counters: dict[str, int] = field(default_factory=dict)
    logs: list[str] = field(default_factory=list)
    counted: str = ""
    below: list["_Execution"] = field(default_factory=list)
    is_local: bool = False

    def own_scans(self) -> list[tuple["_Execution", _Scan]]:
        """Return the scans of a statement's own table, each with its execution."""
        return [
            (below, scan)
            for below in self.below
            for scan in below.scans.values()
            if scan.of_statement
        ]

    def own_reads(self) -> tuple[int | None, int | None]:
        """Return the files and bytes of the first own scan, None if not counted."""
        for below, scan in self.own_scans():
            return below.values.get(scan.files_id), below.values.get(scan.bytes_id)
        return None, None


class EventLog:
    """The distinct queries in an application's log: how often, when, and what they read."""

    def __init__(self) -> None:
        self.tallies: dict[Asks, Tally] = {}
        self.unread: dict[str, NotUnderstood] = {}
        self._running: dict[int, _Execution] = {}
        self._waiting: dict[int, list[_Execution]] = {}
        self._zone = ""
        self._counted: set[int] = set()

    def read(self, lines: Iterable[bytes | None]) -> None:
        """Add the lines of a part of the log."""
        for line in lines:
            if line is None:
                self.not_understood("a line is longer than 64 MiB", "")
            elif line.startswith(_SQL):
                try:
                    event = _EVENT.decode(line)
                except _UNDECODED:
                    self.not_understood("an event of a query cannot be decoded", line)
                    continue
                if event.execution_id is not None:
                    self._happened(event, event.execution_id)
            elif line.startswith(_ENVIRONMENT):
                self._zone = _zone_of(line) or self._zone
            elif not line.startswith(BEGINNING) and line.strip():
                self.not_understood("a line is no event", line)

    def finish(self) -> None:
        """Count the queries that still run at the end of the log."""
        for execution_id in sorted(self._running, reverse=True):
            self._ended(execution_id)

    def not_understood(self, reason: str, line: bytes | str) -> None:
        """Count a line, a query or a file that cannot be used."""
        shown = line[:200].decode(errors="replace") if isinstance(line, bytes) else line
        known = self.unread.get(reason, NotUnderstood(reason=reason, example=shown, times=0))
        self.unread[reason] = replace(known, times=known.times + 1)

    def _happened(self, event: Event, execution_id: int) -> None:
        running = self._running.get(execution_id)
        match event.event.rpartition(".")[2]:
            case "SparkListenerSQLExecutionStart":
                self._started(event, execution_id)
            case "SparkListenerSQLAdaptiveExecutionUpdate" if running and event.spark_plan_info:
                self._planned(running, event.spark_plan_info)
            case "SparkListenerDriverAccumUpdates" if running:
                pairs = (pair for pair in event.accum_updates if len(pair) == 2)  # noqa: PLR2004
                running.values.update((pair[0], pair[1]) for pair in pairs)
            case "SparkListenerSQLExecutionEnd":
                self._ended(execution_id)
            case _:
                return

    def _started(self, event: Event, execution_id: int) -> None:
        zone = event.modified_configs.get(SESSION_ZONE) or self._zone
        execution = _Execution(time_ms=event.time, zone=zone)
        self._running[execution_id] = execution
        root = event.root_execution_id
        if root is not None and root != execution_id:
            self._waiting.setdefault(root, []).append(execution)
        plan = event.spark_plan_info
        if plan is None:
            return
        command = _EXECUTE.match(plan.node_name)
        if command is not None:
            execution.command = command[1]
            if command[1] in _STATEMENTS or command[1] == _MERGES:
                execution.description = str(msgspec.json.decode(event.physical_plan_description))
            execution.counters = {one.name: one.accumulator_id for one in plan.metrics}
        execution.is_local = plan.node_name == "LocalTableScan"
        self._planned(execution, plan)

    def _planned(self, execution: _Execution, plan: PlanNode) -> None:
        joined: set[str] = set()
        scans: list[tuple[PlanNode, PlanNode | None]] = []
        for node, above in nodes(plan):
            if "Join" in node.node_name:
                joined.update(f"{one[0]}{one[1]}" for one in _ATTRIBUTE.findall(node.simple_string))
            elif "Location" in node.metadata and "DataFilters" in node.metadata:
                scans.append((node, above))
            elif _LOG in node.node_name:
                self._log_read(execution, node, plan)
        found = {}
        for node, above in scans:
            scan = _scan(node, above, joined, execution.zone)
            if scan is not None:
                found[scan.files_id] = scan
        execution.scans.update(found)
        execution.last = frozenset(found)

    def _log_read(self, execution: _Execution, node: PlanNode, plan: PlanNode) -> None:
        place = _LOG_OF_TABLE.search(node.node_name)
        if place is None:
            return
        execution.logs.append(place[1])
        names = [(one.node_name, one.simple_string) for one, _ in nodes(plan)]
        if any(_COUNTS_ROWS in text for _, text in names):
            filtered = any(name == "Filter" for name, _ in names)
            execution.counted = "" if filtered else place[1]

    def _ended(self, execution_id: int) -> None:
        execution = self._running.pop(execution_id, None)
        if execution is None:
            return
        execution.below = self._waiting.pop(execution_id, [])
        if execution.command in _STATEMENTS:
            self._statement(execution)
        elif execution.command == _MERGES:
            self._merge(execution)
        elif not execution.command.startswith(_MAINTENANCE):
            self._query(execution)

    def _query(self, execution: _Execution) -> None:
        for files_id, scan in execution.scans.items():
            files = execution.values.get(files_id)
            if scan.of_statement and self._is_of_command(execution):
                continue
            if files_id in self._counted or (files is None and files_id not in execution.last):
                continue
            if files_id >= 0:
                self._counted.add(files_id)
            size_bytes = execution.values.get(scan.bytes_id)
            self._add(scan.asks, execution.time_ms, files, size_bytes)
        for below in execution.below if execution.is_local else ():
            if below.counted:
                asks = Asks("count", ScanText(location=below.counted))
                self._add(asks, execution.time_ms, 0, 0)

    def _is_of_command(self, execution: _Execution) -> bool:
        for root, below in self._waiting.items():
            if any(one is execution for one in below):
                running = self._running.get(root)
                return running is None or bool(running.command)
        return False

    def _statement(self, execution: _Execution) -> None:
        scans = execution.own_scans()
        printed = _STATEMENT.search(execution.description)
        location = _table_of(execution, [scan for _, scan in scans])
        files, size_bytes = (
            execution.values.get(execution.counters.get(f"number of {what} after skipping", -1))
            for what in ("files", "bytes")
        )
        schema = scans[0][1].asks.schema if scans else ""
        if printed is not None and location:
            text = ScanText(
                location=location, data=_ID.sub(r"#1\1", printed[1]), zone=execution.zone
            )
            self._add(Asks("statement", text, schema), execution.time_ms, files, size_bytes)
        elif scans:
            self._add(scans[0][1].asks, execution.time_ms, *execution.own_reads())
        else:
            self.not_understood("a DELETE or UPDATE names no table", execution.description[:200])

    def _merge(self, execution: _Execution) -> None:
        merge = printed_merge(execution.description)
        if merge is None:
            self.not_understood("a MERGE is printed in an unknown way", execution.description)
            return
        location, condition, is_certain = merge
        text = ScanText(location=location, data=condition, zone=execution.zone)
        kind = "statement" if is_certain else "doubtful"
        self._add(Asks(kind, text), execution.time_ms, *execution.own_reads())

    def _add(
        self, asks: Asks, time_ms: int | None, files: int | None, size_bytes: int | None
    ) -> None:
        one = asked_once(time_ms, files, size_bytes)
        self.tallies[asks] = self.tallies[asks] + one if asks in self.tallies else one


def _scan(node: PlanNode, above: PlanNode | None, joined: set[str], zone: str) -> _Scan | None:
    metadata = node.metadata
    place = _LOCATION.match(metadata["Location"])
    if place is None or f"/{_LOG}" in metadata["Location"] or place[1] == "DeltaLogFileIndex":
        return None
    data = metadata["DataFilters"]
    attributes = {f"{one[0]}{one[1]}": one[0] for one in _ATTRIBUTE.findall(data)}
    text = ScanText(
        location=place[2],
        data=_ID.sub(r"#1\1", data),
        partition=_ID.sub(r"#1\1", metadata.get("PartitionFilters", "[]")),
        pushed=metadata.get("PushedFilters", "[]"),
        above="" if above is None else _ID.sub(r"#1\1", above.simple_string.partition(" ")[2]),
        joined=tuple(sorted({name for mark, name in attributes.items() if mark in joined})),
        zone=zone,
    )
    ids = {metric.name: metric.accumulator_id for metric in node.metrics}
    kind = "files" if place[1] in _OF_FILES else "scan"
    return _Scan(
        asks=Asks(kind, text, metadata.get("ReadSchema", "")),
        files_id=ids.get("number of files read", -1),
        bytes_id=ids.get("size of files read", -1),
        of_statement=place[1] == "TahoeBatchFileIndex",
    )


def _table_of(execution: _Execution, scans: list[_Scan]) -> str:
    if scans:
        return scans[0].asks.text.location
    logs = [log for below in execution.below for log in below.logs]
    if logs:
        return logs[0]
    named = _OF_PATH.search(execution.description)
    return "" if named is None else named[1]


# An event log, as queries of tables: each distinct scan is parsed once


def questions(log: EventLog, tables: Tables) -> Iterator[Found]:
    """Yield the queries in an event log, in the order of their first runs."""
    yield from log.unread.values()
    types: dict[str, dict[Path, str]] = {}
    for asks in log.tallies:
        types.setdefault(normal(asks.text.location), {}).update(read_types(asks.schema))
    at = tables.at(
        {
            place: frozenset(path[0] for path in found if not path[0].startswith("_"))
            for place, found in types.items()
        }
    )
    for asks, tally in log.tallies.items():
        place = normal(asks.text.location)
        table = at.get(place)
        if asks.kind == "files" and table is None:
            yield OfOther(table=f"{place} (plain files)", times=tally.times)
        elif tables.known and table is None:
            yield OfOther(table=place, times=tally.times)
        else:
            known = {**types[place], **({} if table is None else table.types)}
            name = place if table is None else table.address
            yield _of_table(asks, tally, name, known)


def _of_table(asks: Asks, tally: Tally, name: str, types: Mapping[Path, str]) -> Found:
    try:
        found = _conditions(asks, types)
    except TooHardError as error:
        return NotUnderstood(reason=str(error), example=asks.text.data[:200], times=tally.times)
    if found.unread and not found.conjuncts:
        reason = "the only condition is none that SQL has"
        return NotUnderstood(reason=reason, example=found.unread[0][:200], times=tally.times)
    return Query(
        table=name,
        conjuncts=found.conjuncts,
        source=SOURCE,
        ambiguous=found.ambiguous,
        **asdict(tally),
    )


def _conditions(asks: Asks, types: Mapping[Path, str]) -> ScanConditions:
    if asks.kind == "count":
        return ScanConditions((), ambiguous=False, unread=())
    if asks.kind in {"statement", "doubtful"}:
        found = statement_conditions(asks.text.data, types, asks.text.zone)
        doubt = found.ambiguous or (asks.kind == "doubtful" and bool(found.conjuncts))
        return replace(found, ambiguous=doubt)
    read = frozenset(path[0] for path in read_types(asks.schema))
    return conditions(asks.text, types, read)
