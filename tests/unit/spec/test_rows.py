import pytest

from liquidlog.spec.text import Rows, iso_time


def test_rows_become_a_table_with_a_null_where_a_key_is_missing() -> None:
    rows = Rows([{"version": 1, "metrics": {"a": "1"}}, {"version": 0, "note": "x"}])
    table = rows.to_arrow()
    assert table.to_pylist() == [
        {"version": 1, "metrics": [("a", "1")], "note": None},
        {"version": 0, "metrics": None, "note": "x"},
    ]
    assert list(rows.to_pandas()["version"]) == [1, 0]


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1795227519918, "2026-11-21T02:18:39.918Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (10**18, "1000000000000000000"),
    ],
)
def test_iso_time(time_ms: int, text: str) -> None:
    assert iso_time(time_ms) == text
