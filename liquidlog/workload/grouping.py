"""Questions put together: one line per table and distinct conditions, and what was left out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from liquidlog.workload.asked import Asked, Found, NotUnderstood, OfOther, Tally
from liquidlog.workload.form import Observed, Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The queries of sources; how many scans they had, and why which of them are not used.

    `other_tables` has the number of scans by the table that was not asked for.
    """

    queries: tuple[Query, ...]
    scans: int
    used: int
    other_tables: dict[str, int]
    not_understood: tuple[NotUnderstood, ...]

    def document(self) -> dict[str, object]:
        """Return the numbers as plain JSON values."""
        return {
            "scans": self.scans,
            "used": self.used,
            "other_tables": sum(self.other_tables.values()),
            "not_understood": [
                {"reason": one.reason, "count": one.times, "example": one.example}
                for one in self.not_understood
            ],
            "queries": len(self.queries),
        }


@dataclass(slots=True)
class _Groups:
    asked: dict[tuple[str, frozenset[str], bool, str], Asked] = field(default_factory=dict)
    tallies: dict[tuple[str, frozenset[str], bool, str], Tally] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)
    unread: dict[str, NotUnderstood] = field(default_factory=dict)


def grouped(found: Iterable[Found], *, since_ms: int | None = None) -> Imported:
    """Return questions put together, in the order in which they were first found.

    Those whose last time is before `since_ms` do not count; without a time they do.
    """
    groups = _Groups()
    for one in found:
        match one:
            case OfOther(table=table, times=times):
                groups.others[table] = groups.others.get(table, 0) + times
            case NotUnderstood():
                known = groups.unread.get(one.reason)
                both = one if known is None else replace(known, times=known.times + one.times)
                groups.unread[one.reason] = both
            case Asked():
                if since_ms is None or one.last_ms is None or one.last_ms >= since_ms:
                    _add(groups, one)
    used = sum(tally.times for tally in groups.tallies.values())
    others = sum(groups.others.values()) + sum(one.times for one in groups.unread.values())
    return Imported(
        queries=tuple(_query(groups.asked[key], tally) for key, tally in groups.tallies.items()),
        scans=used + others,
        used=used,
        other_tables=groups.others,
        not_understood=tuple(groups.unread.values()),
    )


def _add(groups: _Groups, one: Asked) -> None:
    key = (one.table, frozenset(one.conjuncts), one.ambiguous, one.source)
    groups.asked.setdefault(key, one)
    tally = groups.tallies.setdefault(key, Tally())
    tally.times += one.times
    tally.span(one.first_ms, one.last_ms)
    tally.measured += one.measured
    tally.files += one.files
    tally.bytes += one.bytes


def _query(asked: Asked, tally: Tally) -> Query:
    observed = None
    if tally.measured:
        observed = Observed(
            round(tally.files / tally.measured), round(tally.bytes / tally.measured)
        )
    return Query(
        table=asked.table,
        conjuncts=asked.conjuncts,
        weight=float(tally.times),
        first_ms=tally.first_ms,
        last_ms=tally.last_ms,
        observed=observed,
        ambiguous=asked.ambiguous,
        source=asked.source,
    )


def redacted(
    imported: Imported, redact: Callable[[tuple[Query, ...]], tuple[Query, ...]]
) -> Imported:
    """Return what was imported without any constant that readers wrote."""
    return replace(
        imported,
        queries=redact(imported.queries),
        not_understood=tuple(replace(one, example="") for one in imported.not_understood),
    )
