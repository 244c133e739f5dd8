"""The predicates of DELETE, UPDATE and MERGE that a Delta table's own log has."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from liquidlog.workload.asked import Asked, Found, NotUnderstood
from liquidlog.workload.merges import of_target
from liquidlog.workload.scans import TooHardError, statement_conditions
from liquidlog.workload.tables import KnownTable

SOURCE: Final = "delta-log"
_OPERATIONS: Final = frozenset({"DELETE", "UPDATE", "MERGE"})


def statements_asked(
    infos: Iterator[Mapping[str, Any]], table: KnownTable, *, only: str | None = None
) -> Iterator[Found]:
    """Yield what the commits of a table ask of it, from their commitInfo; `only` one operation.

    A MERGE names its source's columns too: only what its condition says of the table alone counts.
    """
    for info in infos:
        operation = info.get("operation")
        parameters = info.get("operationParameters")
        if operation not in _OPERATIONS or (only is not None and operation != only):
            continue
        predicate = parameters.get("predicate") if isinstance(parameters, dict) else None
        yield from _asked(info, predicates(predicate), table)


def predicates(found: object) -> tuple[str, ...]:
    """Return the conditions in a parameter: one text, or a list of them as JSON."""
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


def _asked(info: Mapping[str, Any], texts: tuple[str, ...], table: KnownTable) -> Iterator[Found]:
    time = info.get("inCommitTimestamp") or info.get("timestamp")
    time_ms = time if isinstance(time, int) and not isinstance(time, bool) else None
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
            yield NotUnderstood(reason=str(error), example=text[:200])
            return
        if found.unread and not found.conjuncts:
            yield NotUnderstood(
                reason="the only condition is none that SQL has", example=text[:200]
            )
            return
        conjuncts += found.conjuncts
        ambiguous = ambiguous or found.ambiguous or (bool(found.conjuncts) and not certain)
    yield Asked(
        table=table.address,
        conjuncts=tuple(dict.fromkeys(conjuncts)),
        source=SOURCE,
        ambiguous=ambiguous,
        first_ms=time_ms,
        last_ms=time_ms,
    )
