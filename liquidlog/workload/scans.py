"""Conditions of scans and statements as Spark prints them; of MERGE, those on the target.

The ids of a table's columns follow each other in a plan, in the order of its schema. So the columns
of a condition form two runs; an INSERT takes its values from the source.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from liquidlog.spec.schema import Path
from liquidlog.workload.catalyst import (
    Binary,
    Call,
    Column,
    Constant,
    Members,
    Names,
    Node,
    Opaque,
    Reading,
    pushed,
    readings,
    sql,
    sql_text,
    walk,
)

OF_SOURCE: Final = "__source_"
"""The prefix of the source's columns."""

_ATTRIBUTE: Final = re.compile(r"([A-Za-z_][\w-]*)#(\d+)(L?)")
_TARGET: Final = re.compile(r"Delta\[version=[^,\]]*, ([^\]]+)\], ")
_FIELD: Final = re.compile(r"StructField\(([^,]+),")
_INSERT: Final = re.compile(r"Insert \[actions: \[(.*?)\]\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Merge:
    """The target's place and the condition of a MERGE, with the source's columns renamed."""

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
    """Return a condition with the source's columns renamed, and whether these are certain.

    `order` has the target's columns; `inserted` has ids of columns that surely are the source's.
    """
    places = {name: place for place, name in enumerate(order)}
    starts: dict[int, int] = {}
    for name, number, _ in _ATTRIBUTE.findall(condition):
        if name in places and number not in inserted:
            start = int(number) - places[name]
            starts[start] = starts.get(start, 0) + 1
    if not starts:
        return _renamed(condition, places, None), True
    # The target's run is the one that is named most, of several the first.
    chosen = max(starts, key=lambda start: starts[start])
    return _renamed(condition, places, chosen), len(starts) == 1


def _renamed(condition: str, places: dict[str, int], chosen: int | None) -> str:
    def rename(found: re.Match[str]) -> str:
        name = found[1]
        own = chosen is not None and name in places and int(found[2]) - places[name] == chosen
        return f"{'' if own else OF_SOURCE}{name}#1{found[3]}"

    return _ATTRIBUTE.sub(rename, condition)


# Scans in plans, to the SQL conditions of their readers

_NAMED: Final = re.compile(r"([A-Za-z_][\w-]*)#\d+(L?)")
_RUNTIME: Final = ("dynamicpruning", "might_contain", "bloomfilter")
"""Filters that Spark adds for joins at run time; no plan has their values."""
_INTERNAL: Final = "__delta_internal"
"""The prefix of columns that no table has: a DELETE or UPDATE reads them too."""
_ODD: Final = frozenset(",()[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanText:
    """The printed text of a scan, without what differs between its repetitions.

    `above` is the condition of the filter above it, and `joined` names the columns that joins
    compare. `zone` is the session's time zone, in which times are printed.
    """

    location: str
    data: str = "[]"
    partition: str = "[]"
    pushed: str = "[]"
    above: str = ""
    joined: tuple[str, ...] = ()
    zone: str = ""


@dataclass(frozen=True, slots=True)
class ScanConditions:
    """The SQL conditions of a scan; `unread` are printed conditions that are not understood."""

    conjuncts: tuple[str, ...]
    ambiguous: bool
    unread: tuple[str, ...]


def conditions(scan: ScanText, types: Mapping[Path, str], read: frozenset[str]) -> ScanConditions:
    """Return the conditions of a scan.

    `types` has the known columns; `read` names the top-level columns in files, without partition
    columns.
    """
    zone = _Zone(scan.zone)
    names = Names({**_named(scan), **types}, zone)
    data, doubt = _chosen(readings(scan.data, names), scan.pushed)
    partition, doubt_too = _chosen(readings(scan.partition, names), None)
    nodes = (*data, *partition, *_mixed(scan.above, names, read))
    asked = [node for node in nodes if not _is_runtime(node)]
    kept = [node for node in _recombined(asked) if not _is_inferred(node, asked, scan.joined)]
    return _as_sql(kept, doubtful=doubt or doubt_too or zone.doubtful)


def statement_conditions(printed: str, types: Mapping[Path, str], zone: str) -> ScanConditions:
    """Return the conditions of a DELETE or UPDATE, which prints them as one expression."""
    clock = _Zone(zone)
    named = _named(ScanText(location="", data=printed))
    found = readings(printed, Names({**named, **types}, clock), bracketed=False)
    chosen, doubt = _chosen(found, None)
    nodes = [
        one
        for node in chosen
        for one in _split(node)
        if not any(name.startswith(OF_SOURCE) for name in _columns(one))
    ]
    return _as_sql(nodes, doubtful=doubt or clock.doubtful)


def _as_sql(nodes: Sequence[Node], *, doubtful: bool) -> ScanConditions:
    return ScanConditions(
        conjuncts=tuple(dict.fromkeys(sql(node) for node in nodes if not _unread(node))),
        ambiguous=doubtful,
        unread=tuple(_shown(node) for node in nodes if _unread(node)),
    )


def _columns(node: Node) -> set[str]:
    return {one.path[0] for one in walk(node) if isinstance(one, Column)}


def _named(scan: ScanText) -> dict[Path, str]:
    texts = (scan.data, scan.partition, scan.above)
    return {
        (name,): "long" if mark else "" for text in texts for name, mark in _NAMED.findall(text)
    }


def _chosen(found: tuple[Reading, ...], pushed_text: str | None) -> tuple[Reading, bool]:
    """Return the certain or plain part of a text's meaning, and whether there is doubt."""
    if pushed_text is not None and len(found) > 1:
        texts = [", ".join(text for node in one if (text := pushed(node))) for one in found]
        same = [one for one, text in zip(found, texts, strict=True) if f"[{text}]" == pushed_text]
        found = tuple(same) or found
    if len(found) == 1:
        return found[0], False
    plain = next((one for one in found if all(_is_plain(node) for node in one)), None)
    if plain is not None:
        return plain, True
    return tuple(node for node in found[0] if all(node in other for other in found)), True


def _is_plain(node: Node) -> bool:
    if isinstance(node, Opaque):
        return False
    members = (
        one.members if isinstance(one, Members) else (one,) if isinstance(one, Constant) else ()
        for one in walk(node)
    )
    printed = [constant.printed for group in members for constant in group]
    return all(not _ODD & set(text) and text == text.strip() for text in printed)


def _mixed(above: str, names: Names, read: frozenset[str]) -> Iterator[Node]:
    """Yield conditions on columns of files and of partitions at once, which a scan never lists."""
    if not above or not read:
        return
    found = readings(above, names, bracketed=False)
    if len(found) != 1:
        return
    for node in (one for whole in found[0] for one in _split(whole)):
        columns = _columns(node)
        if columns & read and columns - read:
            yield node


def _split(node: Node) -> Iterator[Node]:
    if isinstance(node, Binary) and node.operator == "AND":
        yield from _split(node.left)
        yield from _split(node.right)
    else:
        yield node


def _is_runtime(node: Node) -> bool:
    shown = _shown(node).lower()
    if any(word in shown for word in _RUNTIME):
        return True
    return any(name.startswith(_INTERNAL) for name in _columns(node))


def _is_inferred(node: Node, asked: Sequence[Node], joined: tuple[str, ...]) -> bool:
    """Return whether other conditions imply `c IS NOT NULL`."""
    match node:
        case Call("isnotnull", (Column(path),)):
            others = [one for one in asked if one is not node]
            return path[0] in joined or any(_needs(one, path) for one in others)
        case Call("isnotnull", _):
            return True
        case _:
            return False


def _needs(node: Node, path: Path) -> bool:
    if isinstance(node, Call) and node.name in {"isnull", "isnotnull"}:
        return False
    if any(isinstance(one, Column) and one.path[: len(path)] == path for one in walk(node)):
        return True
    return any(isinstance(one, Opaque) and f"{path[0]}#" in one.printed for one in walk(node))


def _recombined(asked: Sequence[Node]) -> list[Node]:
    """Return conditions with the parts of `LIKE 'a%b'`, which Spark splits, joined again."""
    kept = list(asked)
    for node in asked:
        match node:
            case Binary(">=", Call("length", (Column() as column,)), Constant(size)):
                first = _text_of(asked, "startswith", column)
                last = _text_of(asked, "endswith", column)
                if first is None or last is None or size != str(len(first[1]) + len(last[1])):
                    continue
                if set(first[1] + last[1]) & set("%_\\"):
                    continue
                whole = f"{first[1]}%{last[1]}"
                place = kept.index(node)
                kept = [one for one in kept if one not in (node, first[0], last[0])]
                kept.insert(place, Call("like", (column, Constant(whole, sql_text(whole)))))
            case _:
                continue
    return kept


def _text_of(asked: Sequence[Node], name: str, column: Column) -> tuple[Node, str] | None:
    for node in asked:
        match node:
            case Call(called, (Column() as found, Constant(printed))) if (
                called == name and found == column
            ):
                return node, printed
            case _:
                continue
    return None


def _unread(node: Node) -> bool:
    return any(isinstance(one, Opaque) for one in walk(node))


def _shown(node: Node) -> str:
    return next((one.printed for one in walk(node) if isinstance(one, Opaque)), "")


class _Zone:
    """Renders a session's times in UTC as SQL literals; a time that occurs twice is doubtful."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._zone: ZoneInfo | None = None
        self.doubtful = False
        with suppress(ZoneInfoNotFoundError, ValueError, OSError):
            self._zone = ZoneInfo(name) if name else None

    def __call__(self, literal: str) -> str:
        text = literal[len("TIMESTAMP '") : -1]
        if text.endswith(" UTC"):
            return literal
        if self._zone is None:
            return f"TIMESTAMP '{text} {self._name or 'UTC'}'"
        try:
            local = datetime.fromisoformat(text[:19]).replace(tzinfo=self._zone)
        except ValueError:
            return f"TIMESTAMP '{text} {self._name}'"
        if local.utcoffset() != local.replace(fold=1).utcoffset():
            self.doubtful = True
            return f"TIMESTAMP '{text} {self._name}'"
        moment = local.astimezone(UTC).replace(tzinfo=None)
        return f"TIMESTAMP '{moment.isoformat(sep=' ', timespec='seconds')}{text[19:]} UTC'"
