"""The statements, options and methods that docs/reference/sql.md lists, and what comes of each."""

from collections.abc import Iterator

from support.repository import text

_REFUSED = "refused: "


def printed_statements() -> Iterator[tuple[str, str | None]]:
    """Yield (statement, the reason why it is refused, None if it runs), in the order to run."""
    for statement, reason in _rows("statements", "runs"):
        yield statement.replace("\\n", "\n"), reason


def printed_options() -> Iterator[tuple[str, str | None]]:
    """Yield (option or method, the reason why it is refused, None if it works)."""
    yield from _rows("options and methods", "works")


def _rows(mark: str, done: str) -> Iterator[tuple[str, str | None]]:
    _, _, table = text("docs/reference/sql.md").partition(f"<!-- {mark} -->\n")
    for line in table.strip().split("\n\n")[0].splitlines()[2:]:
        printed, _, outcome = line.strip("| ").rpartition(" | ")
        assert outcome == done or outcome.startswith(_REFUSED), line
        reason = None if outcome == done else outcome.removeprefix(_REFUSED)
        yield printed.partition(" | ")[2].strip("`"), reason
