"""Numbers on the page are as people read them."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from liquidlog.report import page as figures
from liquidlog.spec.text import amount, counted


def test_numbers_and_shares() -> None:
    numbers = {None: "not measured", 0: "0", 1234567: "1,234,567", 24.0: "24", 4.2778: "4.28"}
    numbers |= {1234.5: "1,234", 0.0004: "0.0004", float("inf"): "inf"}
    assert {value: figures.number(value) for value in numbers} == numbers
    shares = {0.0: "0 %", 0.00001: "less than 0.1 %", 0.3333: "33.3 %", 0.99999: "more than 99.9 %"}
    shares |= {1.0: "100 %", 2.5: "250 %"}
    assert {part: figures.share(part) for part in shares} == shares
    assert amount(6.27) == "6.3"
    counts = {1.02: "1 file", 2.26: "2.3 files", 0: "0 files"}
    assert {count: counted(count, "file") for count in counts} == counts


def test_the_end_of_an_axis_is_round_and_holds_all() -> None:
    ends = {0: 1, 1: 1, 1.2: 2, 24: 30, 5: 5, 81: 100, 0.03: 0.03}
    assert {most: figures.top(most) for most in ends} == pytest.approx(ends)


def test_neighbours_of_one_tone_are_drawn_together() -> None:
    drawn = figures.cells(((0, 2, 2, 1), (1, 0, 0, 0)), 2)
    assert drawn == [("0.5", "M0 0h1v1h-1zM3 1h1v1h-1z"), ("1", "M1 1h2v1h-2z")]


def test_values_of_columns() -> None:
    for value, told in (
        (True, "true"),
        (50000, "50,000"),
        (0.25, "0.25"),
        (Decimal("1234.50"), "1,234.50"),
        (date(1995, 1, 1), "1995-01-01"),
        (datetime(1995, 1, 1, tzinfo=UTC), "1995-01-01"),
        (datetime(1995, 1, 1, 7, 30, tzinfo=UTC), "1995-01-01 07:30:00"),
        ("a" * 40, "a" * 27 + "…"),
    ):
        assert figures.label(value) == told


def test_labels_without_room_are_left_out_but_not_the_ends() -> None:
    labels = [(place, "1992-01-01") for place in (0.0, 0.1, 0.4, 0.45, 0.95, 1.0)]
    assert [place for place, _ in figures.roomy(labels)] == [0.0, 0.4, 1.0]
