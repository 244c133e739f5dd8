import math
from datetime import UTC, datetime

import pytest

from liquidlog.spec.text import json_scalar


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (1.5, 1.5),
        ("text", "text"),
        (None, None),
        (datetime(2024, 1, 31, 12, 0, 0, 123456, tzinfo=UTC), "2024-01-31T12:00:00.123Z"),
        (datetime(2024, 1, 31, 12, 0, 0, 123456), "2024-01-31T12:00:00.123"),  # noqa: DTZ001
    ],
    ids=str,
)
def test_scalars_without_a_form_in_json_become_texts(value: object, expected: object) -> None:
    assert json_scalar(value, timespec="milliseconds") == expected


def test_times_have_the_precision_asked_for() -> None:
    moment = datetime(2024, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
    assert json_scalar(moment, timespec="microseconds") == "2024-01-31T12:00:00.123456Z"
