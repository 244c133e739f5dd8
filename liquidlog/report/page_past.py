"""The past on the report's page: the trend, and what the last OPTIMIZE did."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from liquidlog.clustering.health.measure import Health
from liquidlog.operations.overview import LastRewrite
from liquidlog.report import shapes
from liquidlog.report.jsonable import jsonable
from liquidlog.report.page_parts import (
    framed,
    hint,
    moment,
    more,
    number,
    scrolled,
    section,
    size,
    top,
    upwards,
)
from liquidlog.spec.text import escaped, html_table

_TREND_PX: Final = 110
_COURSES: Final = (
    ("depth ratio", "depth_ratio"),
    ("average depth", "average_depth"),
    ("files", "total_file_count"),
)
_COMPARED: Final = (
    "total_file_count",
    "total_bytes",
    "unclustered_file_count",
    "depth_ratio",
    "read_ratio",
    "average_depth",
    "average_depth_by_bytes",
    "average_overlaps",
    "average_box_overlaps",
    "max_depth",
    "stable_cube_count",
    "partial_cube_count",
)


def trend(found: Sequence[Health]) -> Iterator[str]:
    """Yield the section of earlier versions, unless there are none."""
    if not found:
        return
    parts = [
        hint("One point per version that was measured, at equal distances, by today's columns.")
    ]
    for name, field in _COURSES:
        measured = [health for health in found if getattr(health, field) is not None]
        if len(measured) > 1:
            parts += _course(name, measured, [float(getattr(one, field)) for one in measured])
    yield section("Trend", *parts)


def _course(name: str, measured: Sequence[Health], values: Sequence[float]) -> Iterator[str]:
    most = top(max(values))
    labels = [(0.0, "0"), (0.5, number(most / 2)), (1.0, number(most))]
    yield f"<h3>{escaped(name)}: {number(values[0])} to {number(values[-1])}</h3>"
    yield (
        f'<div class="plot">{upwards(labels, height_px=_TREND_PX)}<div>'
        f"{framed(shapes.line(values, most, height_px=_TREND_PX))}{_dates(measured)}</div></div>"
    )


def _dates(measured: Sequence[Health]) -> str:
    chosen = [measured[0], measured[-1]]
    if len(measured) % 2 and len(measured) > len(chosen):
        chosen.insert(1, measured[len(measured) // 2])
    shown = "".join(
        f"<span>version {health.version}<br>{escaped(moment(health.committed_at))}</span>"
        for health in chosen
    )
    return f'<div class="ends">{shown}</div>'


def last_rewrite(rewrite: LastRewrite | None) -> Iterator[str]:
    """Yield the section of the last OPTIMIZE, unless there was none."""
    if rewrite is None:
        return
    versions = sorted({rewrite.first_version, rewrite.last_version})
    parts = [hint(f"version {' to '.join(map(str, versions))}, {moment(rewrite.timestamp)} UTC")]
    if rewrite.before is not None and rewrite.after is not None:
        rows = [
            (name.replace("_", " "), *(_told(name, side) for side in sides))
            for sides in [(rewrite.before, rewrite.after)]
            for name in _COMPARED
        ]
        parts.append(scrolled(html_table(("", "before", "after"), rows)))
    if rewrite.metrics:
        parts.append(more("metrics", html_table(("metric", "value"), _flat(rewrite.metrics))))
    yield section("The last OPTIMIZE", *parts)


def _told(name: str, health: Health) -> str:
    value = getattr(health, name)
    return size(value) if name == "total_bytes" else number(value)


def _flat(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(str(key), str(jsonable(value))) for key, value in values.items()]
