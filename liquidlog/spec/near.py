"""Suggestions for misspelled names: at most a handful, and only near ones."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from liquidlog.spec.schema import StructType, leaves, quote_path

_NEAR: Final = 0.7
_MOST_NEAR: Final = 3
_MOST_LISTED: Final = 8
_SHORTEST_PART: Final = 4


def near_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return up to three of the known names that `name` may stand for, the nearest first.

    A known name is near if, ignoring case, it is spelled almost the same, has the same letters,
    contains the name, or is another field of the same struct.
    """
    names = tuple(known)
    same = tuple(candidate for candidate in names if candidate.lower() == name.lower())
    if same:
        return same[:_MOST_NEAR]
    scores = {candidate: _score(name.lower(), candidate.lower()) for candidate in names}
    near = [candidate for candidate, score in scores.items() if score >= _NEAR]
    return tuple(sorted(near, key=lambda candidate: -scores[candidate])[:_MOST_NEAR])


def suggestion(name: str, known: Sequence[str], *, what: str) -> str:
    """Return the end of a sentence about an unknown name: the near names, or all that exist.

    Args:
        name: What was given.
        known: The names that exist.
        what: The plural noun for them, used where none is near.
    """
    near = near_names(name, known)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    if not known:
        return f"; there are no {what}"
    left = len(known) - _MOST_LISTED
    more = f" and {left} more" if left > 0 else ""
    return f"; the {what} are {', '.join(known[:_MOST_LISTED])}{more}"


def unknown_columns(unknown: Sequence[str], schema: StructType) -> Iterator[str]:
    """Yield a sentence per name that no column has, with suggestions.

    The list of columns appears at most once, and only where no name is near.
    """
    names = [quote_path(leaf.logical) for leaf in leaves(schema)]
    listed = False
    for name in dict.fromkeys(unknown):
        near = suggestion(name, names, what="columns")
        is_list = near.startswith("; the columns are")
        yield f"there is no column {name}{'' if is_list and listed else near}"
        listed = listed or is_list


def _score(name: str, candidate: str) -> float:
    alike = SequenceMatcher(None, name, candidate, autojunk=False).ratio()
    parent, dot, _ = name.rpartition(".")
    if (
        sorted(name) == sorted(candidate)
        or (len(name) >= _SHORTEST_PART and name in candidate)
        or (dot and candidate.startswith(f"{parent}."))
    ):
        return max(alike, _NEAR)
    return alike
