import pytest

from liquidlog.data.statistics import truncate_max, truncate_min

TOP = "\U0010ffff"
BALLOON = "\U0001f388"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("abcd", "abcd"),
        ("abcde", "abcd"),
        ("abc" + BALLOON + "x", "abc" + BALLOON),
        (BALLOON * 3, BALLOON * 2),
    ],
)
def test_minimum_is_the_prefix_with_whole_code_points(text: str, expected: str) -> None:
    assert truncate_min(text, 4) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("abcd", "abcd"),
        ("abcde", "abcd\x7f"),
        ("abcd\x7e", "abcd\x7f"),
        ("abcd\x7f", "abcd" + TOP),
        ("abcdé", "abcd" + TOP),
        ("abcd" + BALLOON, "abcd" + TOP),
        ("abc" + BALLOON + "x", "abc" + BALLOON + "\x7f"),
        ("abcd" + TOP + "x", "abcd" + TOP + "\x7f"),
        ("abcd" + TOP * 2, "abcd" + TOP * 2),
        ("abcd" + TOP * 2 + "x", "abcd" + TOP * 2 + "\x7f"),
        ("abcd" + TOP * 3, None),
        (TOP * 2, TOP * 2),
        ("\uffff" * 9, "\uffff" * 4 + TOP),
    ],
)
def test_maximum_is_the_prefix_and_a_larger_character(text: str, expected: str | None) -> None:
    assert truncate_max(text, 4) == expected


def test_prefix_of_no_characters_gives_no_bound() -> None:
    assert truncate_min("a", 0) is None
    assert truncate_max("a", 0) is None
