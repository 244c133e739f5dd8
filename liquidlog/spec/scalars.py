"""Scalars that JSON has no form for, as statistics and documents write them."""

import math
from datetime import datetime
from typing import Any


def json_scalar(value: Any, *, timespec: str) -> Any:  # noqa: ANN401  any scalar
    """Return a value with a form in JSON for floats without one, and for times.

    Args:
        value: NaN and infinities become "NaN", "Infinity" and "-Infinity"; a datetime becomes ISO
            8601, with `Z` if it has a time zone, which must be UTC. Other values are returned as
            they are.
        timespec: The precision of times, as `datetime.isoformat` names it.
    """
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case datetime():
            zone = "" if value.tzinfo is None else "Z"
            return value.replace(tzinfo=None).isoformat(timespec=timespec) + zone
        case _:
            return value
