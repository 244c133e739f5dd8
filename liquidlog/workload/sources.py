"""Recognise sources of workloads by their content, decompress and read them.

Spark's event log: the scans of each query, their conditions, and what they read.

Spark's Java libraries frame LZ4 and Snappy in blocks with their own headers, which other libraries
do not read. Everything is a stream, in bounded memory.
"""

import csv
import io
import json
import re
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime, time
from typing import Any, BinaryIO, Final, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from liquidlog.errors import LiquidlogError, StorageError, UsageError
from liquidlog.log.loader import list_log, load_snapshot, open_store, read_infos
from liquidlog.spec.schema import Path
from liquidlog.spec.text import parse_time
from liquidlog.storage.addresses import NO_OPTIONS, StorageOptions, is_local
from liquidlog.storage.files import TableStore, entries, open_input
from liquidlog.workload.catalyst import (
    ScanConditions,
    ScanText,
    TooHardError,
    conditions,
    of_target,
    printed_merge,
    statement_conditions,
)
from liquidlog.workload.queries import (
    Found,
    KnownTable,
    NotUnderstood,
    OfOther,
    Query,
    Tables,
    Tally,
    asked_once,
    decode_query,
    normal,
    read_types,
)
from liquidlog.workload.statements import (
    NotAQueryError,
    parse_statements,
    table_reads,
    weighted_statements,
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


_CHUNK_BYTES: Final = 4 << 20
_PIECE_BYTES: Final = 64 << 10
"""A damaged stream loses at most one piece."""
_LARGEST_BLOCK_BYTES: Final = 64 << 20
"""Spark's blocks have 32 KiB; much larger blocks are not Spark's."""

_LZ4_BLOCK: Final = b"LZ4Block"
_LZ4_HEADER: Final = struct.Struct("<8sBiii")
_LZ4_RAW: Final = 0x10
_LZ4_COMPRESSED: Final = 0x20
_SNAPPY: Final = b"\x82SNAPPY\x00"
_SNAPPY_VERSIONS_BYTES: Final = 8
_ARROW: Final = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip", b"\x04\x22\x4d\x18": "lz4"}


class DamagedStreamError(OSError):
    """The rest of a file cannot be decompressed."""


def chunks(file: Any) -> Generator[bytes, None, None]:  # noqa: ANN401  a file of any storage
    """Yield the content of a file, decompressed if it is compressed, and close it."""
    with io.BufferedReader(file, _CHUNK_BYTES) as whole:
        start = whole.peek(len(_LZ4_BLOCK))
        codec = next((name for magic, name in _ARROW.items() if start.startswith(magic)), None)
        if codec is not None:
            yield from _arrow_chunks(whole, codec)
        elif start.startswith(_LZ4_BLOCK):
            yield from _lz4_chunks(whole)
        elif start.startswith(_SNAPPY):
            yield from _snappy_chunks(whole)
        elif start.startswith(b"ZV"):
            raise DamagedStreamError("it is compressed by LZF, which is not supported; use zstd")
        else:
            while piece := whole.read(_CHUNK_BYTES):
                yield piece


def _arrow_chunks(file: BinaryIO, codec: str) -> Iterator[bytes]:
    stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec)
    while True:
        try:
            piece = stream.read(_PIECE_BYTES)
        except (OSError, pa.ArrowException) as error:
            raise DamagedStreamError(f"it ends within a block, or is damaged: {error}") from None
        if not piece:
            return
        yield piece


def _lz4_chunks(file: BinaryIO) -> Iterator[bytes]:
    codec = pa.Codec("lz4_raw")
    while header := _block(file, _LZ4_HEADER.size, may_end=True):
        magic, token, size, full_size, _ = _LZ4_HEADER.unpack(header)
        if magic != _LZ4_BLOCK or not 0 <= size <= _LARGEST_BLOCK_BYTES >= full_size >= 0:
            raise DamagedStreamError("a block of LZ4 has no header")
        if full_size == 0:
            continue  # the end of one stream; a file may have several
        block = _block(file, size)
        if token & 0xF0 == _LZ4_RAW:
            yield block
        elif token & 0xF0 == _LZ4_COMPRESSED:
            yield _decompressed(codec, block, full_size)
        else:
            raise DamagedStreamError("a block of LZ4 is of an unknown kind")


def _snappy_chunks(file: BinaryIO) -> Iterator[bytes]:
    codec = pa.Codec("snappy")
    _block(file, len(_SNAPPY) + _SNAPPY_VERSIONS_BYTES)
    while size_bytes := _block(file, 4, may_end=True):
        if size_bytes == _SNAPPY[:4]:
            _block(file, len(_SNAPPY) - 4 + _SNAPPY_VERSIONS_BYTES)  # another stream begins
            continue
        size = int.from_bytes(size_bytes, "big", signed=True)
        if not 0 <= size <= _LARGEST_BLOCK_BYTES:
            raise DamagedStreamError("a block of Snappy has no size")
        block = _block(file, size)
        yield _decompressed(codec, block, _snappy_size(block))


def _block(file: BinaryIO, size: int, *, may_end: bool = False) -> bytes:
    """Return the next bytes; no bytes if the file ends here and `may_end`."""
    block = file.read(size)
    if len(block) < size and (block or not may_end):
        raise DamagedStreamError("it ends within a block")
    return block


def _snappy_size(block: bytes) -> int:
    size = 0
    for place, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # noqa: PLR2004  the bit that says that more follows
            break
    if size > _LARGEST_BLOCK_BYTES:
        raise DamagedStreamError("a block of Snappy is too large")
    return size


def _decompressed(codec: pa.Codec, block: bytes, full_size: int) -> bytes:
    try:
        return bytes(codec.decompress(block, full_size, asbytes=True))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DamagedStreamError(f"a block is damaged: {error}") from None


# Lines of a stream of chunks, each of bounded length

MAX_LINE_BYTES: Final = 64 << 20
"""Longer lines are skipped; Spark's longest lines have some MiB."""


def lines(chunks: Iterable[bytes]) -> Iterator[bytes | None]:
    """Yield lines without their ends; None for a line that is too long."""
    pending: list[bytes] = []
    pending_bytes = 0
    for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        pending_bytes += len(first)
        if pending_bytes <= MAX_LINE_BYTES:
            pending.append(first)
        if not rest:
            continue
        yield b"".join(pending) if pending_bytes <= MAX_LINE_BYTES else None
        *whole, last = rest
        yield from whole
        pending, pending_bytes = [last], len(last)
    if pending_bytes:
        yield b"".join(pending) if pending_bytes <= MAX_LINE_BYTES else None


_MAX_TEXT_BYTES: Final = 256 << 20
"""A file of SQL, or of JSON that is one list, is read into memory up to this size."""
_SNIFFED_BYTES: Final = 64 << 10
_EVENTS: Final = "events_"
_BATCH_ROWS: Final = 10_000

_EXPECTED: Final = (
    "expected a Spark event log, SQL (*.sql), a query log of DuckDB, Databricks or Trino as CSV,"
    " JSON or Parquet, an imported workload, or a Delta table"
)


def open_table(address: str, options: StorageOptions = NO_OPTIONS) -> KnownTable:
    """Return a wanted table at its newest version."""
    store = _store(address, options)
    snapshot = load_snapshot(store)
    return KnownTable(store.uri, snapshot.schema, snapshot.metadata.name or "")


def _store(address: str, options: StorageOptions) -> TableStore:
    return open_store(address, None if is_local(address) else dict(options.items))


def found_in(
    addresses: Sequence[str], tables: Tables, options: StorageOptions = NO_OPTIONS
) -> Iterator[Found]:
    """Yield the queries in sources: files, directories of files, and Delta tables."""
    for address in addresses:
        yield from _found(address.rstrip("/") or address, tables, options, named=True)


def _found(
    address: str, tables: Tables, options: StorageOptions, *, named: bool
) -> Iterator[Found]:
    inside = entries(address, options)
    if inside is None:
        yield from _in_file(address, tables, options, named=named)
    elif "_delta_log/" in inside:
        yield from _in_table(address, tables, options)
    elif any(name.startswith(_EVENTS) for name in inside):
        parts = sorted((name for name in inside if name.startswith(_EVENTS)), key=_part_number)
        yield from _events([f"{address}/{name}" for name in parts], tables, options)
    else:
        kept = [name for name in sorted(inside) if not name.startswith((".", "_", "appstatus_"))]
        if not kept and named:
            raise UsageError(f"{address} is an empty directory; {_EXPECTED}", source=address)
        for name in kept:
            below = f"{address}/{name.rstrip('/')}"
            if not name.endswith("/") or name.startswith("eventlog_v2_"):
                yield from _found(below, tables, options, named=False)


def _in_table(address: str, tables: Tables, options: StorageOptions) -> Iterator[Found]:
    store = _store(address, options)
    opened = open_table(address, options)
    of_other = not tables.want(opened.address)
    infos = read_infos(store, sorted(list_log(store).commits))
    for found in statements_asked(infos, opened):
        is_query = isinstance(found, Query)
        yield OfOther(table=opened.address) if of_other and is_query else found


def _part_number(name: str) -> tuple[int, str]:
    number = name.removeprefix(_EVENTS).partition("_")[0]
    return int(number) if number.isdecimal() else 0, name


def _events(addresses: Sequence[str], tables: Tables, options: StorageOptions) -> Iterator[Found]:
    """Yield the queries in an application's event log, given its parts."""
    log = EventLog()
    for address in addresses:
        pieces = _pieces(address, options)
        try:
            log.read(lines(pieces))
        except DamagedStreamError as error:
            log.not_understood(f"a file cannot be read to its end: {error}", address)
        except OSError as error:
            raise StorageError(address, f"cannot be read: {error}") from error
    log.finish()
    yield from questions(log, tables)


def _pieces(address: str, options: StorageOptions) -> Iterator[bytes]:
    return chunks(_opened(address, options))


def _opened(address: str, options: StorageOptions, *, named: bool = False) -> Any:  # noqa: ANN401  a file of any storage
    try:
        return open_input(address, options)
    except FileNotFoundError:
        detail = "cannot be read: No such file or directory"
        if named:
            raise UsageError(f"{address}: {detail}", source=address) from None
        raise StorageError(address, detail) from None
    except OSError as error:
        raise StorageError(address, f"cannot be read: {error}") from error


def _in_file(
    address: str, tables: Tables, options: StorageOptions, *, named: bool
) -> Iterator[Found]:
    with closing(chunks(_opened(address, options, named=named))) as pieces:
        start = _sniffed(pieces, address)
    read = _reader(address, start)
    if read is None:
        if named:
            raise UsageError(
                f"{address} is not a source of a workload; {_EXPECTED}", source=address
            )
        yield NotUnderstood(reason="a file is not a source of a workload", example=address)
        return
    try:
        yield from read(address, tables, options)
    except DamagedStreamError as error:
        reason = f"a file cannot be read to its end: {error}"
        yield NotUnderstood(reason=reason, example=address)
    except (OSError, pa.ArrowException, csv.Error) as error:
        if isinstance(error, LiquidlogError):
            raise
        raise StorageError(address, f"cannot be read: {error}") from error


def _sniffed(pieces: Iterable[bytes], address: str) -> bytes:
    found = b""
    try:
        for piece in pieces:
            found += piece[:_SNIFFED_BYTES]
            if len(found) >= _SNIFFED_BYTES:
                break
    except DamagedStreamError as error:
        if not found:
            raise StorageError(address, f"cannot be read: {error}") from None
    return found


Reader = Callable[[str, Tables, StorageOptions], Iterator[Found]]


def _reader(address: str, start: bytes) -> Reader | None:
    if start.startswith(BEGINNING):
        return lambda one, tables, options: _events([one], tables, options)
    if start.startswith(b"PAR1"):
        return _parquet
    if address.lower().endswith(".sql"):
        return _sql
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith((b"{", b"[")):
        return _json
    first = text.partition(b"\n")[0].decode(errors="replace")
    names = [name.strip().strip('"') for name in first.rstrip("\r").split(_separator(first))]
    return _csv if form_of(names) is not None else None


def _separator(line: str) -> str:
    return max((",", "\t", ";", "|"), key=line.count)


def _sql(address: str, tables: Tables, options: StorageOptions) -> Iterator[Found]:
    content = bytearray()
    for piece in _pieces(address, options):
        content += piece
        if len(content) > _MAX_TEXT_BYTES:
            raise UsageError(f"{address} has more than 256 MiB of text; split it", source=address)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{address} is not UTF-8 text", source=address) from error
    yield from statement_asked(text, tables, source=SQL, dialect="")


def _parquet(address: str, tables: Tables, options: StorageOptions) -> Iterator[Found]:
    with closing(_opened(address, options)) as file:
        opened = pq.ParquetFile(file)
        form = form_of(_nested(opened.schema_arrow))
        if form is None:
            yield NotUnderstood(reason="a Parquet file is no query log", example=address)
            return
        for batch in opened.iter_batches(_BATCH_ROWS):
            yield from rows_asked(batch.to_pylist(), form, tables)


def _nested(schema: Iterable[Any], above: str = "") -> Iterator[str]:
    for child in schema:
        yield f"{above}{child.name}"
        if pa.types.is_struct(child.type):
            yield from _nested(child.type, f"{above}{child.name}.")


def _csv(address: str, tables: Tables, options: StorageOptions) -> Iterator[Found]:
    known = (line for line in lines(_pieces(address, options)) if line is not None)
    text = (line.decode("utf-8-sig", "replace") + "\n" for line in known)
    csv.field_size_limit(_MAX_TEXT_BYTES)
    first = next(text, "")
    names = next(csv.reader([first], delimiter=_separator(first)), [])
    form = form_of(name.strip() for name in names)
    if form is None:
        yield NotUnderstood(reason="a CSV file is no query log", example=address)
        return
    rows = csv.DictReader(text, names, delimiter=_separator(first), restkey="more")
    yield from rows_asked(cast("Iterator[Mapping[str, Any]]", rows), form, tables)


def _json(address: str, tables: Tables, options: StorageOptions) -> Iterator[Found]:
    for number, row in enumerate(_json_rows(address, options), start=1):
        if not isinstance(row, dict):
            yield NotUnderstood(reason="a line is not a JSON object", example=str(row)[:200])
        elif {"table", "conjuncts"} <= row.keys():
            query = decode_query(row, f"{address} line {number}")
            of_other = OfOther(table=query.table, times=query.times)
            yield query if tables.want(query.table) else of_other
        else:
            form = form_of(flat(row))
            if form is None:
                reason = "a line is of no known query log"
                yield NotUnderstood(reason=reason, example=json.dumps(row, default=str)[:200])
            else:
                yield from rows_asked([row], form, tables)


def _json_rows(address: str, options: StorageOptions) -> Iterator[object]:
    for line in lines(_pieces(address, options)):
        if line is None or line.strip() in {b"", b"[", b"]"}:
            continue
        try:
            found = msgspec.json.decode(line.strip().rstrip(b","))
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            yield line[:200].decode(errors="replace")
            continue
        yield from found if isinstance(found, list) else (found,)


# Query logs as rows: of DuckDB, of Trino, and Databricks' system.query.history
#
# A row has a statement, its start, and perhaps what it read.

Row = Mapping[str, Any]

SQL: Final = "sql"
"""The source of statements that no log recorded."""
_DELTA_LOG: Final = "delta-log"


@dataclass(frozen=True, slots=True)
class LogForm:
    """The columns of a log, nested ones as a.b; a row counts if it has one of the `kept` values."""

    source: str
    dialect: str
    known_by: tuple[str, ...]
    statement: str
    times: tuple[str, ...]
    files: tuple[str, ...] = ()
    bytes: tuple[str, ...] = ()
    kept: tuple[tuple[str, tuple[str, ...]], ...] = ()


FORMS: Final = (
    LogForm(
        source="databricks-history",
        dialect="databricks",
        known_by=("statement_text",),
        statement="statement_text",
        times=("start_time", "query_start_time", "query_start_time_ms"),
        files=("read_files", "metrics.read_files_count"),
        bytes=("read_bytes", "metrics.read_bytes"),
        kept=(("execution_status", ("finished",)),),
    ),
    LogForm(
        source="trino-log",
        dialect="trino",
        known_by=("metadata.query",),
        statement="metadata.query",
        times=("createtime", "context.createtime", "executionstarttime"),
        bytes=("statistics.physicalinputbytes",),
        kept=(("metadata.querystate", ("finished",)),),
    ),
    LogForm(
        source="duckdb-log",
        dialect="duckdb",
        known_by=("message", "timestamp"),
        statement="message",
        times=("timestamp",),
        kept=(("type", ("querylog",)),),
    ),
    LogForm(
        source="trino-log",
        dialect="trino",
        known_by=("query",),
        statement="query",
        times=("create_time", "created", "started", "createtime", "start_time"),
        bytes=("physical_input_bytes", "physicalinputbytes", "read_bytes"),
        kept=(("state", ("finished",)), ("query_state", ("finished",))),
    ),
)
"""The first form that fits a log counts."""


def form_of(names: Iterable[str]) -> LogForm | None:
    lower = {name.lower() for name in names}
    return next((form for form in FORMS if lower >= set(form.known_by)), None)


def flat(row: Row) -> dict[str, Any]:
    """Return a row with names in lower case, and nested values under a.b."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        lower = str(name).lower()
        found[lower] = value
        if isinstance(value, Mapping):
            found.update({f"{lower}.{inner}": one for inner, one in flat(value).items()})
    return found


def rows_asked(rows: Iterable[Row], form: LogForm, tables: Tables) -> Iterator[Found]:
    """Yield the queries in the rows of a log.

    A row's counts of files and bytes are used only if its statement reads a single table.
    """
    for row in rows:
        found = flat(row)
        kept = all(
            str(found.get(name) or values[0]).lower() in values for name, values in form.kept
        )
        text = found.get(form.statement)
        if not kept or not isinstance(text, str) or not text.strip():
            continue
        time_ms = next((_time(found[name]) for name in form.times if found.get(name)), None)
        read = _number(found, form.files), _number(found, form.bytes)
        yield from statement_asked(
            text, tables, source=form.source, dialect=form.dialect, time_ms=time_ms, read=read
        )


def statement_asked(
    text: str,
    tables: Tables,
    *,
    source: str,
    dialect: str,
    time_ms: int | None = None,
    read: tuple[int | None, int | None] = (None, None),
) -> Iterator[Found]:
    """Yield the queries in statements, one per table that a statement reads.

    An error in a file of SQL names its place; equal errors in a log are counted together.
    """
    try:
        statements = parse_statements(text, dialect)
    except NotAQueryError as error:
        reason = str(error) if source == SQL else str(error).partition(":")[0]
        yield NotUnderstood(reason=f"it {reason}", example=text[:200])
        return
    for statement, weight in weighted_statements(statements):
        try:
            reads = table_reads(statement, tables, dialect)
        except NotAQueryError as error:
            yield NotUnderstood(reason=f"it {error}", example=statement.sql("spark")[:200])
            continue
        whole = read if len(reads) == 1 and len(statements) == 1 else (None, None)
        for one in reads:
            if not tables.want(one.name):
                yield OfOther(table=one.name)
                continue
            yield Query(
                table=one.name,
                conjuncts=one.conjuncts,
                ambiguous=one.is_ambiguous,
                source=source,
                **asdict(asked_once(time_ms, *whole, weight)),
            )


def _time(value: object) -> int | None:
    if isinstance(value, date):
        at = value if isinstance(value, datetime) else datetime.combine(value, time())
        return int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        # Seconds, or milliseconds: no log is of before 1970 or after 5138.
        return int(value if value > 1e11 else value * 1000)  # noqa: PLR2004
    try:
        return parse_time(str(value).strip().replace(" UTC", "+00:00"))
    except UsageError:
        return None


def _number(found: Row, names: tuple[str, ...]) -> int | None:
    for name in names:
        value = found.get(name)
        try:
            return int(float(str(value)))
        except (ValueError, OverflowError):
            continue
    return None


# The predicates of DELETE, UPDATE and MERGE in a Delta table's own log

_OPERATIONS: Final = frozenset({"DELETE", "UPDATE", "MERGE"})


def statements_asked(infos: Iterator[Mapping[str, Any]], table: KnownTable) -> Iterator[Found]:
    """Yield the queries in the commitInfo of a table's commits.

    A MERGE also names columns of its source: only conditions on the table alone count.
    """
    for info in infos:
        operation = info.get("operation")
        parameters = info.get("operationParameters")
        if operation not in _OPERATIONS:
            continue
        predicate = parameters.get("predicate") if isinstance(parameters, dict) else None
        yield _asked(info, predicates(predicate), table)


def predicates(found: object) -> tuple[str, ...]:
    """Return the conditions in a parameter: one text, or a list of texts as JSON."""
    if isinstance(found, list):
        return tuple(str(one) for one in found)
    if not isinstance(found, str) or not found.strip():
        return ()
    if found.lstrip().startswith("["):
        try:
            decoded = json.loads(found)
        except (ValueError, RecursionError):
            return (found,)
        return tuple(str(one) for one in decoded) if isinstance(decoded, list) else (found,)
    return (found,)


def _asked(info: Mapping[str, Any], texts: tuple[str, ...], table: KnownTable) -> Found:
    at = info.get("inCommitTimestamp") or info.get("timestamp")
    time_ms = at if isinstance(at, int) and not isinstance(at, bool) else None
    conjuncts: list[str] = []
    ambiguous = False
    for text in texts:
        try:
            marked, certain = text, True
            if info.get("operation") == "MERGE":
                order = [field.name for field in table.schema.fields]
                marked, certain = of_target(text, order, frozenset())
            found = statement_conditions(marked, table.types, "")
        except TooHardError as error:
            return NotUnderstood(reason=str(error), example=text[:200])
        if found.unread and not found.conjuncts:
            return NotUnderstood(
                reason="the only condition is none that SQL has", example=text[:200]
            )
        conjuncts += found.conjuncts
        ambiguous = ambiguous or found.ambiguous or (bool(found.conjuncts) and not certain)
    return Query(
        table=table.address,
        conjuncts=tuple(dict.fromkeys(conjuncts)),
        source=_DELTA_LOG,
        ambiguous=ambiguous,
        first_ms=time_ms,
        last_ms=time_ms,
    )
