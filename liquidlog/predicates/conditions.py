"""SQL conditions: their trees, faults and columns, and the bounds of files that decide them."""

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from liquidlog.errors import UsageError
from liquidlog.predicates.folding import asks_for_time, constant_value, is_now
from liquidlog.predicates.literals import BITS, INTEGER_BITS, NEGATED, Comparable, SqlValue
from liquidlog.predicates.workload import Session
from liquidlog.snapshot import Snapshot, partition_values
from liquidlog.spec.arrow import CHAR_VARCHAR
from liquidlog.spec.bounds import (
    BoundsOf,
    ColumnBounds,
    Mask,
    can_be_nan,
    cast_where_possible,
    has_bounds,
    is_like_element,
    skipping_bounds,
)
from liquidlog.spec.features import earlier_types
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
    """Return the reason and the place of a parse error, as the end of a sentence."""
    found = error.errors[0] if isinstance(error, ParseError) and error.errors else None
    if found is None:
        return "a quote or a comment is not closed"
    place = f"character {found.get('col') or 0}"
    if "\n" in text.strip():
        place = f"line {found.get('line')}, {place}"
    text = str(found.get("highlight") or "")
    word = repr(text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "...")
    description = str(found.get("description"))
    if description.startswith("Required keyword"):
        return f"something is missing after {word} ({place})"
    if description.startswith("Expecting "):
        return f"{description.removeprefix('Expecting ')} is missing after {word} ({place})"
    return f"{word} is not expected there ({place})"


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
    """Return the tree of one SQL condition; it may be cached, so do not change it."""
    if not isinstance(predicate, str):
        raise UsageError(f"a predicate must be text, found {type(predicate).__name__}")
    return (_kept if len(predicate) <= _KEPT_CHARACTERS else _parsed)(predicate)


def _parsed(predicate: str) -> exp.Expression:
    cause: Exception | None = None
    try:
        statements = sqlglot.parse(predicate, dialect="spark")
        parsed = statements[0] if len(statements) == 1 else None
        problem = _instead(statements)
    except RecursionError as error:
        raise UsageError(too_deep(predicate), predicate=predicate) from error
    except SqlglotError as error:
        parsed, cause, problem = None, error, sql_problem(error, predicate)
    except (ArithmeticError, ValueError) as error:
        parsed, cause, problem = None, error, "it has a number that no type can hold"
    if not isinstance(parsed, exp.Expression) or not isinstance(parsed, exp.Condition):
        text = f"{predicate!r} is not a SQL condition: {problem}"
        raise UsageError(text, predicate=predicate) from cause
    # The meaning of other backslashes depends on a setting of the session.
    if "\\" in _ESCAPED.sub("", predicate):
        for literal in list(parsed.find_all(exp.Literal)):
            if literal.is_string:
                literal.replace(exp.Placeholder())
    return parsed


_kept = lru_cache(_KEPT)(_parsed)


def condition_or_problem(predicate: str) -> exp.Expression | UsageError:
    """Return the tree of `parse_condition`, or its error."""
    try:
        return parse_condition(predicate)
    except UsageError as error:
        return error


def at_time(predicate: str, now_us: int, *, in_session: bool = False) -> str:
    """Return a predicate with the current time as a constant, in UTC or in the session's zone."""
    condition = condition_or_problem(predicate)
    if isinstance(condition, UsageError) or not asks_for_time(condition):
        return predicate
    now = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=now_us)  # noqa: DTZ001  as written
    text = now.isoformat(sep=" ", timespec="microseconds")
    instant = exp.cast(exp.Literal.string(f"{text}+00:00"), "timestamptz")

    def stated(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.CurrentDate):
            day = exp.Literal.string(now.date().isoformat())
            return exp.cast(instant if in_session else day, "date")
        if isinstance(node, exp.Localtimestamp):
            return exp.cast(instant if in_session else exp.Literal.string(text), "timestampntz")
        return instant if isinstance(node, exp.CurrentTimestamp) or is_now(node) else node

    return condition.transform(stated).sql("spark")


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
        problem = f"where must give the same answer for a row each time, found {', '.join(found)}"
        raise UsageError(f"{problem}; compare columns with constants", where=predicate)


def _instead(statements: Sequence[object]) -> str:
    if len(statements) > 1:
        return f"it is {len(statements)} statements; join conditions with AND or OR"
    if not statements:
        return "it is a word that only occurs inside of a condition"
    if statements[0] is None:
        return "it is empty"
    return "it is a statement; give only the condition behind its WHERE"


def too_deep(predicate: str) -> str:
    """Return the message for a condition whose nesting is too deep for recursion."""
    shown = predicate if len(predicate) <= _SHOWN else f"{predicate[:_SHOWN]}..."
    return f"{shown!r} is nested too deeply: write it with fewer parentheses"


def referenced_columns(condition: exp.Expression, schema: StructType) -> dict[Path, Path]:
    """Return the columns of a condition outside of sub-queries, with their paths in the schema."""
    found: dict[Path, Path] = {}
    unknown: list[str] = []
    for column in condition.find_all(exp.Column):
        if column.find_ancestor(exp.Query) is not None:
            continue
        outer: exp.Expression = column
        # sqlglot nests parts after the fourth in Dots around the column.
        while isinstance(outer.parent, exp.Dot) and outer.arg_key == "this":
            outer = outer.parent
        path = column_path(outer) or column_path(column) or ()
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


def column_in(node: exp.Expression, schema: StructType, known: Mapping[Path, Leaf]) -> Leaf | None:
    """Return the known column that an expression, or a cast of it to wider integers, names."""
    if isinstance(node, exp.Paren):
        return column_in(node.this, schema, known)
    if not isinstance(node, exp.Cast) or node.to.this not in INTEGER_BITS:
        path = column_path(node)
        is_there = path is not None and find_column(schema, path) is not None
        return known.get(resolve_path(schema, path)[0]) if path and is_there else None
    leaf = column_in(node.this, schema, known)
    bits = None if leaf is None else BITS.get(str(leaf.data_type))
    return leaf if bits is not None and bits <= INTEGER_BITS[node.to.this] else None


def _enters_collection(schema: StructType, path: Path) -> bool:
    found = (find_column(schema, path[:length]) for length in range(1, len(path)))
    types = [field.data_type for field in found if field is not None]
    return PrimitiveType("variant") in types or any(
        isinstance(one, ArrayType | MapType) for one in types
    )


def condition_on(
    predicate: str, snapshot: Snapshot
) -> tuple[exp.Expression, dict[Path, Path]] | UsageError:
    """Return a condition's tree and `referenced_columns`, or why the table cannot have it."""
    try:
        condition = parse_condition(predicate)
        return condition, referenced_columns(condition, snapshot.schema)
    except UsageError as error:
        return error


def unrefused(found: T | UsageError) -> T:
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
    known = {
        leaf.logical: leaf for leaf in leaves(snapshot.schema) if leaf.logical not in partitions
    }
    each: list[tuple[Leaf, ...] | UsageError] = []
    for predicate in predicates:
        found = condition_on(predicate, snapshot)
        if isinstance(found, UsageError):
            each.append(found)
        else:
            paths = dict.fromkeys(found[1].values())
            each.append(tuple(known[path] for path in paths if path in known))
    return tuple(each)


# Verdicts on the files of a table, from their bounds in the log

_DECIMAL_ERROR: Final = 1e-14
"""More than the relative error of a decimal as a double."""

Limits = tuple[pa.Array, pa.Array]


def converted(values: pa.Array, wanted: pa.DataType, *, end: float) -> pa.Array:
    """Return lower or upper bounds as `wanted`; decimals as doubles are moved towards `end`."""
    if pa.types.is_floating(values.type):
        # NaN is Spark's largest number; comparisons here would be false.
        largest = pa.scalar(float("inf"), values.type)
        values = pc.if_else(pc.is_nan(values), largest, values)
    if pa.types.is_decimal(values.type) and pa.types.is_floating(wanted):
        doubles = pc.cast(values, wanted)
        error = pc.multiply(pc.abs(doubles), _DECIMAL_ERROR)
        return pc.add(doubles, error) if end > 0 else pc.subtract(doubles, error)
    if pa.types.is_decimal(values.type):
        return cast_where_possible(values, wanted)
    # Spark, too, converts an integer to the nearest double, which keeps the order.
    return pc.cast(values, wanted, safe=not pa.types.is_floating(wanted))


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """Masks with one bool per file: some row may make the condition true; some row, false."""

    can_be_true: Mask
    can_be_false: Mask

    def __and__(self, other: "Verdict") -> "Verdict":
        return Verdict(self.can_be_true & other.can_be_true, self.can_be_false | other.can_be_false)

    def __or__(self, other: "Verdict") -> "Verdict":
        return Verdict(self.can_be_true | other.can_be_true, self.can_be_false & other.can_be_false)

    def negated(self) -> "Verdict":
        return Verdict(self.can_be_false, self.can_be_true)


def compared(kind: type[exp.Expr], limits: Limits, wanted: Comparable) -> Verdict:
    """Return the verdict on comparing values within limits with a value within `wanted`."""
    low, high = limits
    if kind in (exp.NEQ, exp.GT, exp.GTE):
        return compared(NEGATED[kind], limits, wanted).negated()
    if kind is exp.EQ:
        begins = true_or_unknown(pc.less_equal(low, wanted.high))
        reaches = begins & true_or_unknown(pc.greater_equal(high, wanted.low))
        # All rows have the same known value, equal to the other side.
        only = pc.and_kleene(pc.equal(low, wanted.high), pc.equal(high, wanted.low))
        return Verdict(reaches, true_or_unknown(pc.invert(only)))
    is_less = kind is exp.LT
    below = (pc.less if is_less else pc.less_equal)(low, wanted.high)
    not_below = (pc.greater_equal if is_less else pc.greater)(high, wanted.low)
    return Verdict(true_or_unknown(below), true_or_unknown(not_below))


def true_or_unknown(values: pa.BooleanArray | pa.ChunkedArray) -> Mask:
    """Return where a comparison is true, or null because a bound is missing."""
    filled = pc.fill_null(values, fill_value=True)
    return np.asarray(filled, np.bool_)


_CHAR: Final = re.compile(r"(?<!var)char", re.IGNORECASE)
_TIMES: Final = ("current_date", "current_timestamp", "localtimestamp")
_COLLATIONS: Final = "__COLLATIONS"


class FileBounds:
    """Bounds and counts of the leaves in a condition, one entry per file.

    Both bounds of a partition column are the file's value. A file without a statistic that the
    condition needs is kept. Source: Delta Spark, DataSkippingReader.verifyStatsForFilter.
    """

    one_half_decides: ClassVar[bool] = True
    """Whether BETWEEN is understood if one of its halves is."""

    def __init__(
        self, snapshot: Snapshot, columns: Sequence[Path], bounds_of: BoundsOf, session: Session
    ) -> None:
        known = {leaf.logical: leaf for leaf in leaves(snapshot.schema)}
        partitions = {(name,) for name in snapshot.metadata.partition_columns}
        named = [known[path] for path in columns if path in known]
        self._values = {
            leaf.logical: partition_values(snapshot.files, leaf)
            for leaf in named
            if leaf.logical in partitions
        }
        measured = [leaf for leaf in named if leaf.logical not in self._values]
        self.schema = snapshot.schema
        # A column with such a name hides the time.
        hides_time = any(field.name.lower() in _TIMES for field in snapshot.schema.fields)
        self.session = replace(session, now_ms=None) if hides_time else session
        self.count = snapshot.files.num_rows
        self.everything: Mask = np.ones(self.count, np.bool_)
        self._leaves = {leaf.logical: leaf for leaf in named}
        self._earlier = earlier_types(snapshot.schema)
        self._numbers = {leaf.logical: number for number, leaf in enumerate(measured)}
        self._bounds = bounds_of(measured)
        self._stated: dict[Path, ColumnBounds] = {}
        self._nan: Leaf | None = None
        self._lacking = np.zeros(self.count, np.bool_)
        self.misses = 0
        self.not_pruning: list[exp.Expression] = []

    def unknown(self) -> Verdict:
        """Return the verdict on a condition that is not understood, and count it."""
        self.misses += 1
        return Verdict(self.everything, self.everything)

    def noting(self, node: exp.Expression, judge: Callable[["FileBounds"], Verdict]) -> Verdict:
        """Return the verdict on a condition; record the condition if it is not understood."""
        before = self.misses
        verdict = judge(self)
        if self.misses > before:
            self.not_pruning.append(node)
        return verdict

    def value(self, node: exp.Expression) -> SqlValue | None:
        """Return the value of a constant expression, None for other expressions."""
        return constant_value(node, self.session)

    def constant(self, *, value: bool | None) -> Verdict:
        """Return the verdict on TRUE, FALSE or NULL."""
        return Verdict(np.full(self.count, value is True), np.full(self.count, value is False))

    def leaf(self, node: exp.Expression) -> Leaf | None:
        return column_in(node, self.schema, self._leaves)

    def verdict(self, judge: Callable[["FileBounds"], Verdict]) -> Mask:
        """Return the files in which the condition may be true or a statistic is missing."""
        self._lacking = np.zeros(self.count, np.bool_)
        self.misses, self.not_pruning = 0, []
        kept = judge(self).can_be_true
        if self.session.for_rows:
            for leaf in self._leaves.values():
                if can_be_nan(leaf.data_type):
                    self._nan = leaf
                    kept = kept | judge(self).can_be_true
            self._nan = None
        return kept | self._lacking

    def is_exact(self, leaf: Leaf) -> bool:
        """Return whether all rows of a file have one value, so that bounds are exact."""
        return leaf.logical in self._values

    def limits(self, leaf: Leaf, wanted: pa.DataType) -> Limits:
        """Return the bounds of a leaf as `wanted`, null where unknown."""
        if leaf.logical in self._values:
            low = high = self._values[leaf.logical].values
        else:
            found = self._mended(leaf)
            no_end = pc.and_(found.low.is_null(), found.high.is_null())
            self._lacking |= np.asarray(no_end, np.bool_) & self.may_have_value(leaf)
            low, high = found.low, found.high
            if self._nan is not None and can_be_nan(leaf.data_type):
                # While `verdict` tries NaN, bounds include it or are it, as an infinity, since
                # comparisons with NaN are false here: bounds from Parquet footers (delta-rs,
                # polars, kernel-rs) ignore it.
                # Source: delta-io/delta#7101; parquet.thrift, ColumnOrder.
                high = pa.repeat(pa.scalar(np.inf, high.type), self.count)
                low = high if leaf is self._nan else low
        return converted(low, wanted, end=-np.inf), converted(high, wanted, end=np.inf)

    def _mended(self, leaf: Leaf) -> ColumnBounds:
        if leaf.logical not in self._stated:
            stated = self._bounds.columns[self._numbers[leaf.logical]]
            earlier = self._earlier.get(leaf.physical, frozenset())
            self._stated[leaf.logical] = skipping_bounds(
                stated,
                leaf.data_type,
                was_float=PrimitiveType("float") in earlier,
                is_like_element=is_like_element(leaf, self.schema),
            )
        return self._stated[leaf.logical]

    def may_have_null(self, leaf: Leaf) -> Mask:
        if leaf.logical in self._values:
            return self._values[leaf.logical].is_null
        return true_or_unknown(pc.greater(self._nulls(leaf), 0))

    def may_have_value(self, leaf: Leaf) -> Mask:
        """Return in which files some row may be non-null."""
        if leaf.logical in self._values:
            return ~self._values[leaf.logical].is_null
        return true_or_unknown(pc.less(self._nulls(leaf), self._bounds.num_records))

    def _nulls(self, leaf: Leaf) -> pa.Array:
        nulls = self._mended(leaf).null_count
        self._lacking |= np.asarray(nulls.is_null(), np.bool_)
        return nulls


class ProvingBounds(FileBounds):
    """Bounds that prove a condition for every row of a file without deleted rows, nulls or NaN."""

    one_half_decides = False

    def __init__(
        self, snapshot: Snapshot, columns: Sequence[Path], bounds_of: BoundsOf, session: Session
    ) -> None:
        super().__init__(snapshot, columns, bounds_of, session)
        # A constant is the same for every row; columns are known in files without deleted rows.
        has_all_rows = np.asarray(snapshot.files["deletion_vector"].is_null(), np.bool_)
        self._whole = has_all_rows if columns else self.everything
        for path in columns:
            leaf = self._leaves.get(path)
            # Some writers do not count nulls of fields inside null structs.
            is_counted = leaf is not None and len(path) == 1
            no_null = ~self.may_have_null(leaf) if leaf and is_counted else False
            self._whole = self._whole & no_null
        self._whole = self._whole & ~self._lacking

    def constant(self, *, value: bool | None) -> Verdict:
        return self.unknown() if value is None else super().constant(value=value)

    def limits(self, leaf: Leaf, wanted: pa.DataType) -> Limits:
        """Return the bounds of a leaf as `wanted`, null where unknown or unreliable."""
        if can_be_nan(leaf.data_type):
            unknown = pa.nulls(self.count, wanted)
            return unknown, unknown
        return super().limits(leaf, wanted)

    def verdict(self, judge: Callable[[FileBounds], Verdict]) -> Mask:
        """Return in which files every row satisfies the condition."""
        found = judge(self)
        # A part that is not understood may fail, and then no row may be replaced.
        is_understood = self.misses == 0
        return self._whole & ~found.can_be_false & ~self._lacking & is_understood


def has_plain_order(leaf: Leaf, schema: StructType) -> bool:
    """Return whether Spark compares stored values: it pads CHAR, and collations change order."""
    paths = (leaf.logical[:length] for length in range(1, len(leaf.logical) + 1))
    metadata = [field.metadata for path in paths if (field := find_column(schema, path))]
    is_char = any(_CHAR.search(str(found.get(CHAR_VARCHAR, ""))) for found in metadata)
    has_collation = any(_COLLATIONS in found for found in metadata)
    return has_bounds(leaf.data_type) and not is_char and not has_collation
