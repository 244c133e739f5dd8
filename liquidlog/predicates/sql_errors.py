"""Messages about SQL that cannot be parsed: the problem, and the word where it is."""

from typing import Final

from sqlglot.errors import ParseError, SqlglotError

_MOST_SHOWN: Final = 30


def sql_problem(error: SqlglotError, text: str) -> str:
    """Return the reason why a text cannot be parsed, as the end of a sentence.

    It names the word and the character (and the line, if there are several) where parsing stopped.
    """
    found = error.errors[0] if isinstance(error, ParseError) and error.errors else None
    if found is None:
        return "a quote or a comment is not closed"
    column = found.get("col") or 0
    place = f"character {column}"
    if "\n" in text.strip():
        place = f"line {found.get('line')}, {place}"
    word = _shown(str(found.get("highlight") or ""))
    description = str(found.get("description"))
    if description.startswith("Required keyword"):
        return f"something is missing after {word} ({place})"
    if description.startswith("Expecting "):
        return f"{description.removeprefix('Expecting ')} is missing after {word} ({place})"
    return f"{word} is not expected there ({place})"


def _shown(word: str) -> str:
    return repr(word if len(word) <= _MOST_SHOWN else word[:_MOST_SHOWN] + "...")
