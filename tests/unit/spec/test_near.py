import pytest

from liquidlog.spec.text import near_names, suggestion

COLUMNS = ("order_id", "customer", "day", "l_shipdate", "ship.city", "ship.zip")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("custmer", ("customer",)),
        ("CUSTOMER", ("customer",)),
        ("dya", ("day",)),
        ("shipdate", ("l_shipdate",)),
        ("ship.town", ("ship.city", "ship.zip")),
        ("price", ()),
        ("id", ()),
        ("", ()),
    ],
)
def test_only_near_names_are_named(name: str, near: tuple[str, ...]) -> None:
    assert near_names(name, COLUMNS) == near


def test_at_most_a_handful_is_listed() -> None:
    many = [f"c{number}" for number in range(1_000)]
    text = suggestion("price", many, what="columns")
    assert text == "; the columns are c0, c1, c2, c3, c4, c5, c6, c7 and 992 more"
    assert suggestion("price", [], what="columns") == "; there are no columns"
    assert len(near_names("c12", many)) <= 3
