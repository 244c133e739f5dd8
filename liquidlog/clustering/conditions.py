"""SQL conditions as trees: their text parsed as Spark SQL, their columns found in the schema."""

from collections.abc import Sequence

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from liquidlog.clustering.columns import no_columns
from liquidlog.clustering.sql_errors import sql_problem
from liquidlog.errors import UsageError
from liquidlog.spec.schema import Path, StructType, find_column, quote_path, resolve_path


def parse_condition(predicate: str) -> exp.Expression:
    """Return the tree of one SQL condition.

    Raises:
        UsageError: If the text is not that.
    """
    if not isinstance(predicate, str):
        raise UsageError(f"a predicate must be text, found {type(predicate).__name__}")
    try:
        statements = sqlglot.parse(predicate, dialect="spark")
    except SqlglotError as error:
        problem = sql_problem(error, predicate)
        raise UsageError(
            f"{predicate!r} is not a SQL condition: {problem}", predicate=predicate
        ) from error
    parsed = statements[0] if len(statements) == 1 else None
    if isinstance(parsed, exp.Expression) and isinstance(parsed, exp.Condition):
        return parsed
    raise UsageError(
        f"{predicate!r} is not a SQL condition: {_instead(statements)}", predicate=predicate
    )


def _instead(statements: Sequence[object]) -> str:
    if len(statements) > 1:
        return f"it is {len(statements)} statements; join conditions with AND or OR"
    if statements[0] is None:
        return "it is empty"
    return "it is a statement; give what stands behind its WHERE"


def referenced_columns(condition: exp.Expression, schema: StructType) -> dict[Path, Path]:
    """Return the columns a condition names, as written, with their path in the schema.

    Raises:
        UsageError: If the schema lacks one; names all of them.
    """
    found: dict[Path, Path] = {}
    unknown: list[str] = []
    for column in condition.find_all(exp.Column):
        path = column_path(_outermost(column))
        if find_column(schema, path) is None:
            unknown.append(quote_path(path))
        else:
            found[path] = resolve_path(schema, path)[0]
    if unknown:
        raise UsageError("; ".join(no_columns(unknown, schema)), columns=unknown)
    return found


def _outermost(column: exp.Expression) -> exp.Expression:
    # More than four parts: sqlglot nests what is left in Dots around the column.
    while isinstance(column.parent, exp.Dot):
        column = column.parent
    return column


def column_path(column: exp.Expression) -> Path:
    """Return the path that a column of a condition names, as it is written."""
    if isinstance(column, exp.Dot):
        return tuple(part.name for part in column.parts)
    assert isinstance(column, exp.Column)  # noqa: S101  found as one
    return tuple(part.name for part in column.parts)
