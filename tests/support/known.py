"""Numbers that are known where a test needs them."""


def known(number: float | None) -> float:
    """Return a number that was measured.

    Raises:
        AssertionError: If it was not.
    """
    assert number is not None
    return number
