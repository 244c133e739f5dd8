"""Sources of workloads, recognised by what is in them, and read as streams."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from liquidlog.errors import LiquidlogError, StorageError, UsageError
from liquidlog.log.loader import load_snapshot, open_store
from liquidlog.log.segment import list_log, read_infos
from liquidlog.log.store import TableStore
from liquidlog.storage.addresses import is_local
from liquidlog.storage.files import entries, open_input
from liquidlog.storage.options import NO_OPTIONS, StorageOptions
from liquidlog.workload.asked import Asked, Found, NotUnderstood, OfOther
from liquidlog.workload.compressed import DamagedStreamError, chunks
from liquidlog.workload.delta_log import statements_asked
from liquidlog.workload.event_log import EventLog
from liquidlog.workload.event_queries import questions
from liquidlog.workload.form import decode_query, is_query
from liquidlog.workload.lines import lines
from liquidlog.workload.query_logs import flat, form_of, rows_asked, statement_asked
from liquidlog.workload.spark_events import BEGINNING
from liquidlog.workload.tables import KnownTable, Tables, known_table, normal

_PARQUET: Final = b"PAR1"
_MAX_TEXT_BYTES: Final = 256 << 20
"""A file of SQL, or of JSON that is one list, is held in memory: it may have this size."""
_SNIFFED_BYTES: Final = 64 << 10
_ROLLING: Final = "eventlog_v2_"
_EVENTS: Final = "events_"
_NOT_LOGS: Final = (".", "_", "appstatus_")
_BATCH_ROWS: Final = 10_000

_EXPECTED: Final = (
    "expected a Spark event log, SQL (*.sql), a query log of DuckDB, Databricks or Trino as CSV,"
    " JSON or Parquet, an imported workload, or a Delta table"
)


def open_table(address: str, options: StorageOptions = NO_OPTIONS) -> KnownTable:
    """Return a table to ask for, at its newest version."""
    store = _store(address, options)
    snapshot = load_snapshot(store)
    return known_table(store.uri, snapshot.schema, snapshot.metadata.name or "")


def _store(address: str, options: StorageOptions) -> TableStore:
    return open_store(address, None if is_local(address) else dict(options.items))


def found_in(
    addresses: Sequence[str], tables: Tables, options: StorageOptions = NO_OPTIONS
) -> Iterator[Found]:
    """Yield what sources ask: files, directories of them, and Delta tables."""
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
        yield from _rolling(address, inside, tables, options)
    else:
        kept = [name for name in sorted(inside) if not name.startswith(_NOT_LOGS)]
        if not kept and named:
            raise UsageError(f"{address} is an empty directory; {_EXPECTED}", source=address)
        for name in kept:
            below = f"{address}/{name.rstrip('/')}"
            if not name.endswith("/") or name.startswith(_ROLLING):
                yield from _found(below, tables, options, named=False)


def _in_table(address: str, tables: Tables, options: StorageOptions) -> Iterator[Found]:
    store = _store(address, options)
    opened = open_table(address, options)
    wanted = {normal(table.address) for table in tables.known}
    infos = read_infos(store, sorted(list_log(store).commits))
    for found in statements_asked(iter(infos), opened):
        of_other = wanted and normal(opened.address) not in wanted
        yield OfOther(table=opened.address) if of_other and isinstance(found, Asked) else found


def _rolling(
    address: str, inside: Iterable[str], tables: Tables, options: StorageOptions
) -> Iterator[Found]:
    log = EventLog()
    parts = [name for name in inside if name.startswith(_EVENTS)]
    for name in sorted(parts, key=_part_number):
        _add_events(log, f"{address}/{name}", options)
    log.finish()
    yield from questions(log, tables)


def _part_number(name: str) -> tuple[int, str]:
    number = name.removeprefix(_EVENTS).partition("_")[0]
    return int(number) if number.isdecimal() else 0, name


def _add_events(log: EventLog, address: str, options: StorageOptions) -> None:
    with closing(_opened(address, options)) as file:
        try:
            log.read(lines(chunks(file)))
        except DamagedStreamError as error:
            log.damaged(str(error), address)
        except OSError as error:
            raise StorageError(address, f"cannot be read: {error}") from error


def _opened(
    address: str,
    options: StorageOptions,
    *,
    named: bool = False,
) -> Any:  # noqa: ANN401  a file of any storage
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
    with closing(_opened(address, options, named=named)) as file:
        start = _sniffed(file, address)
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


def _sniffed(file: Any, address: str) -> bytes:  # noqa: ANN401  a file of any storage
    """Return the first bytes of a file, decompressed; those that cannot be are left out."""
    found = b""
    try:
        for piece in chunks(file):
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
        return _event_file
    if start.startswith(_PARQUET):
        return _parquet
    if address.lower().endswith(".sql"):
        return _sql
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith((b"{", b"[")):
        return _json
    first = text.partition(b"\n")[0].decode(errors="replace")
    return _csv if form_of(_header(first)) is not None else None


def _header(line: str) -> list[str]:
    separator = _separator(line)
    return [name.strip().strip('"') for name in line.rstrip("\r").split(separator)]


def _separator(line: str) -> str:
    return max((",", "\t", ";", "|"), key=line.count)


def _event_file(address: str, tables: Tables, options: StorageOptions) -> Iterator[Found]:
    log = EventLog()
    _add_events(log, address, options)
    log.finish()
    yield from questions(log, tables)


def _sql(address: str, tables: Tables, options: StorageOptions) -> Iterator[Found]:
    text = _text(address, options)
    yield from statement_asked(text, tables, source="sql", dialect="")


def _text(address: str, options: StorageOptions) -> str:
    """Return the text in a file."""
    pieces = []
    size = 0
    with closing(_opened(address, options)) as file:
        for piece in chunks(file):
            size += len(piece)
            if size > _MAX_TEXT_BYTES:
                raise UsageError(
                    f"{address} has more than 256 MiB of text; split it", source=address
                )
            pieces.append(piece)
    try:
        return b"".join(pieces).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{address} is not UTF-8 text", source=address) from error


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
    for field in schema:
        yield f"{above}{field.name}"
        if pa.types.is_struct(field.type):
            yield from _nested(field.type, f"{above}{field.name}.")


def _csv(address: str, tables: Tables, options: StorageOptions) -> Iterator[Found]:
    with closing(_opened(address, options)) as file:
        text = io.TextIOWrapper(
            io.BufferedReader(_Stream(chunks(file))), "utf-8-sig", errors="replace", newline=""
        )
        csv.field_size_limit(_MAX_TEXT_BYTES)
        first = text.readline()
        names = next(csv.reader([first], delimiter=_separator(first)))
        form = form_of(name.strip() for name in names)
        if form is None:
            yield NotUnderstood(reason="a CSV file is no query log", example=address)
            return
        rows = csv.DictReader(text, names, delimiter=_separator(first), restkey="more")
        yield from rows_asked(cast("Iterator[Mapping[str, Any]]", rows), form, tables)


class _Stream(io.RawIOBase):
    """Chunks as a file, so that text is decoded as it is read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401  any writable buffer
        if not self._rest:
            self._rest = next(self._pieces, b"")
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def _json(address: str, tables: Tables, options: StorageOptions) -> Iterator[Found]:
    for number, row in enumerate(_json_rows(address, options), start=1):
        if not isinstance(row, dict):
            yield NotUnderstood(reason="a line is not a JSON object", example=str(row)[:200])
        elif is_query(row):
            yield from _again(row, f"{address} line {number}", tables)
        else:
            form = form_of(flat(row))
            if form is None:
                reason = "a line is of no query log that is known"
                yield NotUnderstood(reason=reason, example=json.dumps(row, default=str)[:200])
            else:
                yield from rows_asked([row], form, tables)


def _json_rows(address: str, options: StorageOptions) -> Iterator[object]:
    with closing(_opened(address, options)) as file:
        for line in lines(chunks(file)):
            if line is None or line.strip() in {b"[", b"]"}:
                continue
            if not line.strip():
                continue
            try:
                found = msgspec.json.decode(line.strip().rstrip(b","))
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                yield line[:200].decode(errors="replace")
                continue
            yield from found if isinstance(found, list) else (found,)


def _again(row: dict[str, Any], place: str, tables: Tables) -> Iterator[Found]:
    """Yield what was imported before, so that workloads can be put together."""
    query = decode_query(row, place)
    times = max(1, round(query.weight))
    wanted = {normal(table.address) for table in tables.known}
    if wanted and normal(query.table) not in wanted:
        yield OfOther(table=query.table, times=times)
        return
    read = query.observed
    yield Asked(
        table=query.table,
        conjuncts=query.conjuncts,
        source=query.source,
        ambiguous=query.ambiguous,
        times=times,
        first_ms=query.first_ms,
        last_ms=query.last_ms,
        measured=0 if read is None else times,
        files=0 if read is None else read.files * times,
        bytes=0 if read is None else read.bytes * times,
    )
