"""Conditions of SQL: text to tree, its faults, and the columns in it."""

import datetime as dt
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, TypeVar

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from liquidlog.errors import UsageError
from liquidlog.predicates.folding import asks_for_time, is_now
from liquidlog.predicates.literals import BITS, INTEGER_BITS
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import (
    ArrayType,
    Leaf,
    MapType,
    Path,
    PrimitiveType,
    StructType,
    find_column,
    leaves,
    quote_path,
    resolve_path,
)
from liquidlog.spec.text import unknown_columns

T = TypeVar("T")

_MOST_SHOWN: Final = 30


def sql_problem(error: SqlglotError, text: str) -> str:
    """Return why and where a text cannot be parsed, as the end of a sentence."""
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


# SQL conditions as trees, parsed as Spark SQL, and their columns

_ESCAPED: Final = re.compile(r"(?<!\\)\\[%_]")

_KEPT: Final = 2048
"""The number of cached trees: a workload is judged again for each candidate plan."""

_KEPT_CHARACTERS: Final = 1000

_BY_CHANCE: Final = frozenset(
    {
        *("rand", "random", "randn", "randstr", "uniform", "uuid", "shuffle"),
        *("monotonically_increasing_id", "spark_partition_id", "input_file_name"),
        *("input_file_block_start", "input_file_block_length"),
        *("java_method", "reflect", "try_reflect"),
    }
)
"""Spark's nondeterministic functions."""

_SHOWN: Final = 60


def parse_condition(predicate: str) -> exp.Expression:
    r"""Return the tree of one SQL condition; it may be cached, so do not change it.

    If the condition has a backslash (except `\%` and `\_`), its texts become placeholders, because
    the meaning of a backslash depends on a setting of the session.
    """
    if not isinstance(predicate, str):
        raise UsageError(f"a predicate must be text, found {type(predicate).__name__}")
    return (_kept if len(predicate) <= _KEPT_CHARACTERS else _parsed)(predicate)


def _parsed(predicate: str) -> exp.Expression:
    try:
        statements = sqlglot.parse(predicate, dialect="spark")
    except SqlglotError as error:
        problem = sql_problem(error, predicate)
        raise UsageError(
            f"{predicate!r} is not a SQL condition: {problem}", predicate=predicate
        ) from error
    except RecursionError as error:
        raise UsageError(too_deep(predicate), predicate=predicate) from error
    except (ArithmeticError, ValueError) as error:
        raise UsageError(
            f"{predicate!r} is not a SQL condition: it has a number that no type can hold",
            predicate=predicate,
        ) from error
    parsed = statements[0] if len(statements) == 1 else None
    if isinstance(parsed, exp.Expression) and isinstance(parsed, exp.Condition):
        return _without_escapes(parsed) if "\\" in _ESCAPED.sub("", predicate) else parsed
    raise UsageError(
        f"{predicate!r} is not a SQL condition: {_instead(statements)}", predicate=predicate
    )


_kept = lru_cache(_KEPT)(_parsed)


def at_time(predicate: str, now_us: int, *, in_session: bool = False) -> str:
    """Return a predicate with the current time (microseconds since 1970) as a constant.

    Date and local time are in UTC, or in the session's zone with `in_session`.
    """
    try:
        condition = parse_condition(predicate)
    except UsageError:
        return predicate
    if not asks_for_time(condition):
        return predicate
    return condition.transform(lambda node: _stated(node, now_us, in_session)).sql("spark")


def _stated(node: exp.Expr, now_us: int, in_session: bool) -> exp.Expr:  # noqa: FBT001  as above
    now = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=now_us)  # noqa: DTZ001  as written
    text = now.isoformat(sep=" ", timespec="microseconds")
    instant = exp.cast(exp.Literal.string(f"{text}+00:00"), "timestamptz")
    if isinstance(node, exp.CurrentDate):
        day = exp.Literal.string(now.date().isoformat())
        return exp.cast(instant if in_session else day, "date")
    if isinstance(node, exp.Localtimestamp):
        return exp.cast(instant if in_session else exp.Literal.string(text), "timestampntz")
    if isinstance(node, exp.CurrentTimestamp) or is_now(node):
        return instant
    return node


def require_repeatable(predicate: str) -> None:
    """Refuse a condition whose value for a row can change from query to query."""
    condition = parse_condition(predicate)
    functions = (
        node.name if isinstance(node, exp.Anonymous) else node.sql_name()
        for node in condition.find_all(exp.Func)
    )
    found = sorted({f"{name.lower()}()" for name in functions if name.lower() in _BY_CHANCE})
    if condition.find(exp.Query) is not None:
        found.append("a sub-query")
    if found:
        raise UsageError(
            f"where must say the same of a row each time it is asked, found {', '.join(found)};"
            " compare columns with constants",
            where=predicate,
        )


def _instead(statements: Sequence[object]) -> str:
    if len(statements) > 1:
        return f"it is {len(statements)} statements; join conditions with AND or OR"
    if not statements:
        return "it is a word that stands only inside of one"
    if statements[0] is None:
        return "it is empty"
    return "it is a statement; give only the condition behind its WHERE"


def too_deep(predicate: str) -> str:
    """Return the message for a condition whose nesting is too deep for recursion."""
    shown = predicate if len(predicate) <= _SHOWN else f"{predicate[:_SHOWN]}..."
    return f"{shown!r} is nested too deeply: write it with fewer parentheses"


def referenced_columns(condition: exp.Expression, schema: StructType) -> dict[Path, Path]:
    """Return the columns of a condition, as written, with their paths in the schema.

    Parts of arrays, maps and variants, and columns inside sub-queries, are left out.
    """
    found: dict[Path, Path] = {}
    unknown: list[str] = []
    for column in condition.find_all(exp.Column):
        if column.find_ancestor(exp.Query) is not None:
            continue
        path = column_path(_outermost(column)) or column_path(column) or ()
        if find_column(schema, path) is not None:
            found[path] = resolve_path(schema, path)[0]
        elif not _enters_collection(schema, path):
            unknown.append(quote_path(path))
    if unknown:
        raise UsageError("; ".join(unknown_columns(unknown, schema)), columns=unknown)
    return found


def column_path(column: exp.Expression) -> Path | None:
    """Return the path of a column as written, None for other expressions."""
    match column:
        case exp.Column():
            return tuple(part.name for part in column.parts)
        case exp.Dot() if isinstance(column.expression, exp.Identifier):
            inner = column_path(column.this)
            return None if inner is None else (*inner, column.expression.name)
        case _:
            return None


def column_in(node: exp.Expression, leaf_of: Callable[[Path | None], Leaf | None]) -> Leaf | None:
    """Return the column that an expression is, also inside casts that preserve all integers."""
    if isinstance(node, exp.Paren):
        return column_in(node.this, leaf_of)
    if not isinstance(node, exp.Cast) or node.to.this not in INTEGER_BITS:
        return leaf_of(column_path(node))
    leaf = column_in(node.this, leaf_of)
    bits = None if leaf is None else BITS.get(str(leaf.data_type))
    return leaf if bits is not None and bits <= INTEGER_BITS[node.to.this] else None


def _without_escapes(condition: exp.Expression) -> exp.Expression:
    for literal in list(condition.find_all(exp.Literal)):
        if literal.is_string:
            literal.replace(exp.Placeholder())
    return condition


def _outermost(column: exp.Expression) -> exp.Expression:
    # sqlglot nests parts after the fourth in Dots around the column.
    while isinstance(column.parent, exp.Dot) and column.arg_key == "this":
        column = column.parent
    return column


def _enters_collection(schema: StructType, path: Path) -> bool:
    found = (find_column(schema, path[:length]) for length in range(1, len(path)))
    types = [field.data_type for field in found if field is not None]
    return any(
        isinstance(found, ArrayType | MapType) or found == PrimitiveType("variant")
        for found in types
    )


def condition_on(
    predicate: str, snapshot: Snapshot
) -> tuple[exp.Expression, dict[Path, Path]] | UsageError:
    """Return a condition's tree and `referenced_columns`, or why it is none on the table."""
    try:
        condition = parse_condition(predicate)
        return condition, referenced_columns(condition, snapshot.schema)
    except UsageError as error:
        return error


def unrefused(found: T | UsageError) -> T:
    """Return what was found, or raise the refusal."""
    if isinstance(found, UsageError):
        raise found
    return found


def referenced_paths_each(
    schema: StructType, predicates: Sequence[str]
) -> tuple[tuple[Path, ...], ...]:
    """Return the columns of each condition, in the schema's spelling."""
    return tuple(
        tuple(referenced_columns(parse_condition(one), schema).values()) for one in predicates
    )


def referenced_leaves(snapshot: Snapshot, predicates: Sequence[str]) -> tuple[Leaf, ...]:
    """Return the leaves whose statistics the predicates need, without repetition."""
    each = map(unrefused, referenced_leaves_each(snapshot, predicates))
    return tuple(dict.fromkeys(leaf for found in each for leaf in found))


def referenced_leaves_each(
    snapshot: Snapshot, predicates: Sequence[str]
) -> tuple[tuple[Leaf, ...] | UsageError, ...]:
    """Return the leaves whose statistics each predicate needs, or why it is invalid."""
    partitions = {(name,) for name in snapshot.metadata.partition_columns}
    known = {leaf.logical: leaf for leaf in leaves(snapshot.schema)}
    conditions = [condition_on(predicate, snapshot) for predicate in predicates]
    return tuple(
        found
        if isinstance(found, UsageError)
        else tuple(
            known[path]
            for path in dict.fromkeys(found[1].values())
            if path in known and path not in partitions
        )
        for found in conditions
    )
