"""Health as OpenMetrics text, for collectors such as Prometheus' textfile collector.

The text has only gauges, so that it is also valid in Prometheus' older text format.

Source: OpenMetrics 1.0, "Text format".
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from liquidlog.clustering.health.measure import ColumnHealth, Health, numeric_fields
from liquidlog.spec.visible import visible_lines

_PREFIX: Final = "liquidlog_health"
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Labels = Mapping[str, str]


def openmetrics(health: Health) -> str:
    """Return every measured number of the health as a gauge, labelled with the table's address.

    Numbers of a column also have the column as label, buckets of the histogram the largest depth
    that they count. Cubes are left out, because their ids come and go.
    """
    table = {"table": health.table_uri}
    lines: list[str] = []
    for name in numeric_fields(Health):
        lines += _gauge(name, [(table, getattr(health, name))])
    for name in numeric_fields(ColumnHealth):
        lines += _gauge(
            f"column_{name}",
            [({**table, "column": c.name}, getattr(c, name)) for c in health.columns],
        )
    lines += _gauge(
        "files_by_depth",
        [
            ({**table, "depth": str(int(depth))}, files)
            for depth, files in health.depth_histogram.items()
        ],
    )
    return "\n".join([*lines, "# EOF\n"])


def _gauge(name: str, found: Sequence[tuple[Labels, float | None]]) -> Iterator[str]:
    samples = [(labels, value) for labels, value in found if value is not None]
    if not samples:
        return
    yield f"# TYPE {_PREFIX}_{name} gauge"
    for labels, value in samples:
        shown = ",".join(f'{key}="{_label(text)}"' for key, text in labels.items())
        yield f"{_PREFIX}_{name}{{{shown}}} {value}"


def _label(text: str) -> str:
    """Return a label's value, with line ends escaped and hidden characters made visible."""
    return visible_lines(text, indent="").translate(_ESCAPES)
