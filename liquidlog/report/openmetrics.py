"""Health and runs of upkeep as OpenMetrics text, as for Prometheus' textfile collector.

It has only gauges, so that it is also valid in Prometheus' older format.

Source: OpenMetrics 1.0, "Text format".
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from liquidlog.clustering.health import ColumnHealth, Health, numeric_fields
from liquidlog.fleet.upkeep import Ticked
from liquidlog.spec.text import visible_lines

_HEALTH: Final = "liquidlog_health"
_TICK: Final = "liquidlog_tick"
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Labels = Mapping[str, str]


def openmetrics(health: Health) -> str:
    """Return every measured number of the health as a gauge, labelled with the table's address.

    A bucket's label is the largest depth that it counts. Cubes are left out, as their ids change.
    """
    table = {"table": health.table_uri}
    lines: list[str] = []
    for name in numeric_fields(Health):
        lines += _gauge(f"{_HEALTH}_{name}", [(table, getattr(health, name))])
    for name in numeric_fields(ColumnHealth):
        lines += _gauge(
            f"{_HEALTH}_column_{name}",
            [({**table, "column": c.name}, getattr(c, name)) for c in health.columns],
        )
    lines += _gauge(
        f"{_HEALTH}_files_by_depth",
        [
            ({**table, "depth": str(int(depth))}, files)
            for depth, files in health.depth_histogram.items()
        ],
    )
    return "\n".join([*lines, "# EOF\n"])


def tick_openmetrics(ticked: Ticked) -> str:
    """Return the numbers of a run of upkeep as gauges, labelled with the tables' addresses."""
    tables = [({"table": one.table}, one) for one in ticked.tables]
    numbers: Mapping[str, Sequence[tuple[Labels, float | None]]] = {
        "decision": [({**of, "decision": one.decision.value}, 1) for of, one in tables],
        "failed": [(of, int(bool(one.errors))) for of, one in tables],
        "bytes_rewritten": [(of, one.bytes_rewritten) for of, one in tables],
        "seconds": [(of, round(one.seconds, 3)) for of, one in tables],
        "budget_bytes": [({}, ticked.budget_bytes)],
        "spent_bytes": [({}, ticked.spent_bytes)],
    }
    lines = [line for name, found in numbers.items() for line in _gauge(f"{_TICK}_{name}", found)]
    return "\n".join([*lines, "# EOF\n"])


def _gauge(name: str, found: Sequence[tuple[Labels, float | None]]) -> Iterator[str]:
    samples = [(labels, value) for labels, value in found if value is not None]
    if not samples:
        return
    yield f"# TYPE {name} gauge"
    for labels, value in samples:
        safe = {key: visible_lines(text, indent="") for key, text in labels.items()}
        shown = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in safe.items())
        yield f"{name}{{{shown}}} {value}" if shown else f"{name} {value}"
