"""What an event log tells, as questions to tables: each distinct scan is read once."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from liquidlog.spec.schema import Path
from liquidlog.workload.asked import Asked, Found, NotUnderstood, OfOther, Tally
from liquidlog.workload.event_log import SOURCE, Asks, EventLog
from liquidlog.workload.scans import Conditions, TooHardError, conditions, statement_conditions
from liquidlog.workload.tables import Tables, normal, read_types


def questions(log: EventLog, tables: Tables) -> Iterator[Found]:
    """Yield what an event log tells, in the order in which it was first asked."""
    yield from log.unread.values()
    types = _types(log.tallies)
    read = {place: frozenset(path[0] for path in found) for place, found in types.items()}
    at = tables.at({place: _columns(read[place]) for place in read})
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
            yield from _of_table(asks, tally, name, known)


def _columns(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if not name.startswith("_"))


def _types(found: Iterable[Asks]) -> dict[str, dict[Path, str]]:
    """Return the types of all columns that scans read, by the table's location."""
    types: dict[str, dict[Path, str]] = {}
    for asks in found:
        types.setdefault(normal(asks.text.location), {}).update(read_types(asks.schema))
    return types


def _of_table(asks: Asks, tally: Tally, name: str, types: Mapping[Path, str]) -> Iterator[Found]:
    if asks.kind == "count":
        yield _asked(tally, name, Conditions((), ambiguous=False, unread=()))
        return
    try:
        found = _conditions(asks, types)
    except TooHardError as error:
        yield NotUnderstood(reason=str(error), example=asks.text.data[:200], times=tally.times)
        return
    if found.unread and not found.conjuncts:
        reason = "the only condition is none that SQL has"
        yield NotUnderstood(reason=reason, example=found.unread[0][:200], times=tally.times)
    else:
        yield _asked(tally, name, found)


def _conditions(asks: Asks, types: Mapping[Path, str]) -> Conditions:
    if asks.kind in {"statement", "doubtful"}:
        found = statement_conditions(asks.text.data, types, asks.text.zone)
        doubt = found.ambiguous or (asks.kind == "doubtful" and bool(found.conjuncts))
        return replace(found, ambiguous=doubt)
    read = frozenset(path[0] for path in read_types(asks.schema))
    return conditions(asks.text, types, read)


def _asked(tally: Tally, name: str, found: Conditions) -> Asked:
    return Asked(
        table=name,
        conjuncts=found.conjuncts,
        source=SOURCE,
        ambiguous=found.ambiguous,
        times=tally.times,
        first_ms=tally.first_ms,
        last_ms=tally.last_ms,
        measured=tally.measured,
        files=tally.files,
        bytes=tally.bytes,
    )
