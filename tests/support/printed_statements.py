"""The statements that docs/reference/sql.md lists, and what comes of each."""

from collections.abc import Iterator

from support.repository import text

_REFUSED = "refused: "


def printed_statements() -> Iterator[tuple[str, str | None]]:
    """Yield (statement, the reason why it is refused, None if it runs), in the order to run."""
    _, _, table = text("docs/reference/sql.md").partition("<!-- statements -->\n")
    for line in table.strip().split("\n\n")[0].splitlines()[2:]:
        printed, _, outcome = line.strip("| ").rpartition(" | ")
        assert outcome == "runs" or outcome.startswith(_REFUSED), line
        reason = None if outcome == "runs" else outcome.removeprefix(_REFUSED)
        yield printed.partition(" | ")[2].strip("`").replace("\\n", "\n"), reason
