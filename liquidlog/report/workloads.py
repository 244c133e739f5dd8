"""Reports of imported workloads: what was used, what was not, and why."""

from collections.abc import Iterator
from typing import Final

from liquidlog.report.layout import Line, Report, listing
from liquidlog.workload.form import Imported

_SHOWN: Final = 60


def imported(found: Imported) -> Report:
    """Show how many scans are used, how many are of which other tables, and why others are not."""
    others = sum(found.other_tables.values())
    unread = sum(one.times for one in found.not_understood)
    parts = [f"{found.used} of {found.scans} scans used"]
    left = [f"{others} of other tables"] if others else []
    left += [f"{unread} not understood"] if unread else []
    head = "; ".join((*parts, ", ".join(left))) if left else parts[0]
    counted: dict[str, list[int]] = {}
    for query in found.queries:
        own = counted.setdefault(query.table, [0, 0, 0])
        own[0] += 1
        own[1] += int(query.weight)
        own[2] += query.ambiguous
    tables = ((table, *(str(one) for one in own)) for table, own in counted.items())
    return (
        Line(f"{head}; {len(found.queries)} queries written"),
        *listing(("table", "queries", "scans", "ambiguous"), tables),
        *listing(("other table", "scans"), _most(found.other_tables)),
        *listing(
            ("not understood because", "scans", "example"),
            ((one.reason, str(one.times), _short(one.example)) for one in found.not_understood),
        ),
    )


def _most(counted: dict[str, int]) -> Iterator[tuple[str, str]]:
    for name in sorted(counted, key=lambda name: -counted[name]):
        yield name, str(counted[name])


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."
