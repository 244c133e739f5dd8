from collections.abc import Iterator

import pytest

from support.html_pages import Browser, browser, chromium


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    """A Chromium; tests that need one are skipped where there is none."""
    program = chromium()
    if program is None:
        pytest.skip("there is no Chromium")
    with browser(program) as found:
        yield found
