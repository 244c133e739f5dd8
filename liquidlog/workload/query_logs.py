"""Query logs as rows: DuckDB's, Databricks' system.query.history and Trino's.

A row has a statement, when it began, and perhaps what it read.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time
from typing import Any, Final

from liquidlog.errors import UsageError
from liquidlog.spec.text import parse_time
from liquidlog.workload.catalyst import TooHardError
from liquidlog.workload.form import (
    Found,
    KnownTable,
    NotUnderstood,
    OfOther,
    Query,
    Tables,
    asked_once,
)
from liquidlog.workload.scans import of_target, statement_conditions
from liquidlog.workload.statements import (
    NotAQueryError,
    parse_statements,
    table_reads,
    weighted_statements,
)

Row = Mapping[str, Any]

SQL: Final = "sql"
"""The source of statements that no log recorded."""


@dataclass(frozen=True, slots=True)
class LogForm:
    """The columns of a log, nested ones as a.b; a row counts if it has the values in `kept`."""

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
"""A log that fits several forms has the first of them."""


def form_of(names: Iterable[str]) -> LogForm | None:
    """Return the form of a log with these columns, None if it has none."""
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

    Counts of files and bytes are those of a statement, so they serve only if it reads one table.
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
    """Yield what one or several statements ask of each table that they read.

    The error of a file of SQL names its place; errors in texts of a log are counted together.
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

SOURCE: Final = "delta-log"
_OPERATIONS: Final = frozenset({"DELETE", "UPDATE", "MERGE"})


def statements_asked(infos: Iterator[Mapping[str, Any]], table: KnownTable) -> Iterator[Found]:
    """Yield what the commits of a table ask of it, from their commitInfo.

    A MERGE names its source's columns too: only conditions on the table alone count.
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
        source=SOURCE,
        ambiguous=ambiguous,
        first_ms=time_ms,
        last_ms=time_ms,
    )
