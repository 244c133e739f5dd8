"""Conditions of MERGE: which of their columns are the target's, since both tables may have them.

The ids of a table's columns follow each other in a plan, in the order of its schema. So the columns
of a condition fall into two runs; what an INSERT puts in is of the source.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

OF_SOURCE: Final = "__source_"
"""Put before the names of the source's columns."""

_ATTRIBUTE: Final = re.compile(r"([A-Za-z_][\w-]*)#(\d+)(L?)")
_TARGET: Final = re.compile(r"Delta\[version=[^,\]]*, ([^\]]+)\], ")
_FIELD: Final = re.compile(r"StructField\(([^,]+),")
_INSERT: Final = re.compile(r"Insert \[actions: \[(.*?)\]\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Merge:
    """The target's place and the condition of a MERGE, the source's columns renamed."""

    location: str
    condition: str
    certain: bool


def printed_merge(description: str) -> Merge | None:
    """Return the MERGE that a plan describes, None if it is printed in an unknown way."""
    target = _TARGET.search(description)
    if target is None:
        return None
    condition = _balanced(description, target.end())
    rest = description[target.end() + len(condition) :]
    order = _FIELD.findall(rest.partition("StructType(")[2])
    inserted = {found[1] for text in _INSERT.findall(rest) for found in _ATTRIBUTE.findall(text)}
    marked, certain = of_target(condition, order, frozenset(inserted))
    return Merge(target[1], marked, certain)


def _balanced(text: str, start: int) -> str:
    """Return the text up to the `, [` that ends a condition."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth <= 0 and text.startswith(", [", place):
            return text[start:place]
    return text[start:]


def of_target(condition: str, order: Sequence[str], inserted: frozenset[str]) -> tuple[str, bool]:
    """Return a condition with the source's columns renamed, and whether it is certain which.

    `order` has the target's columns; `inserted` the ids of columns that are surely the source's.
    """
    places = {name: place for place, name in enumerate(order)}
    starts: dict[int, int] = {}
    for name, number, _ in _ATTRIBUTE.findall(condition):
        if name in places and number not in inserted:
            start = int(number) - places[name]
            starts[start] = starts.get(start, 0) + 1
    if not starts:
        return _renamed(condition, places, None), True
    # Of several runs, the target's is the one that is named most, then the one named first.
    chosen = max(starts, key=lambda start: starts[start])
    return _renamed(condition, places, chosen), len(starts) == 1


def _renamed(condition: str, places: dict[str, int], chosen: int | None) -> str:
    def rename(found: re.Match[str]) -> str:
        name = found[1]
        own = chosen is not None and name in places and int(found[2]) - places[name] == chosen
        return f"{'' if own else OF_SOURCE}{name}#1{found[3]}"

    return _ATTRIBUTE.sub(rename, condition)
