"""Statements: the text of one, to its value.

Source: Delta Lake, "Table utility commands" and "Use liquid clustering"; Databend, "ALTER TABLE
RECLUSTER" and "CLUSTERING_INFORMATION"; Snowflake, "SYSTEM$CLUSTERING_INFORMATION".
"""

from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import Token, TokenType

from liquidlog.errors import UsageError
from liquidlog.spec.schema import Path, StructField, StructType
from liquidlog.sql import statements as ask
from liquidlog.sql.columns import added, column_list
from liquidlog.sql.creation import create
from liquidlog.sql.parts import A_TABLE, NO_AUTO, condition, properties, property_name, table_name
from liquidlog.sql.words import Words, refuse_at

_SNOWFLAKE: Final = "SYSTEM$CLUSTERING_INFORMATION"
_DATABEND: Final = "CLUSTERING_INFORMATION"

_ELSEWHERE: Final[Mapping[str, str]] = {
    "INSERT": "rows are appended with `append`, or by an engine",
    "COPY": "rows are appended with `append`, or by an engine",
    "SELECT": "rows are read by an engine",
    "DELETE": "rows are changed by an engine",
    "UPDATE": "rows are changed by an engine",
    "MERGE": "rows are changed by an engine",
    "REPLACE": "a table is not replaced here, since its rows would go",
    "DROP": "a table is not dropped here",
    "TRUNCATE": "a table is not emptied here",
    "RESTORE": "a table is not restored here",
    "REORG": "deletion vectors go when OPTIMIZE rewrites a file",
    "CONVERT": "a directory of Parquet files is converted by Delta Spark",
}
"""Why there is no such statement, by its first word."""


def parse_statement(text: str) -> ask.Statement:
    """Return the statement that a text is."""
    words = Words(text)
    try:
        return _statement(words)
    except RecursionError:
        refuse_at(text, 0, "the statement is nested too deeply")


def _statement(words: Words) -> ask.Statement:
    token = words.token
    for word, parse in _STATEMENTS.items():
        if words.take(word):
            statement = parse(words)
            words.finish()
            return statement
    for word, reason in _ELSEWHERE.items():
        if words.sees(word):
            words.fail(f"there is no statement {word}: {reason}", at=token)
    return words.refuse(*_STATEMENTS)


# ALTER


def _alter(words: Words) -> ask.Statement:
    words.expect("TABLE")
    token = words.token
    if_exists = words.take("IF", "EXISTS")
    table = table_name(words)
    if words.take("RECLUSTER"):
        return _recluster(words, table, if_exists=if_exists)
    if if_exists:
        words.fail("IF EXISTS stands before RECLUSTER only", at=token)
    for clause, parse in _CHANGES.items():
        if words.take(*clause):
            return parse(words, table)
    return words.refuse(*(" ".join(clause) for clause in _CHANGES), "RECLUSTER")


def _cluster_by(words: Words, table: ask.TableName) -> ask.ClusterBy:
    if words.sees("AUTO"):
        words.fail(NO_AUTO)
    if words.take("NONE"):
        return ask.ClusterBy(table, None)
    if not words.sees_kind(TokenType.L_PAREN):
        words.refuse("( and the names of columns", "NONE")
    return ask.ClusterBy(table, column_list(words))


def _rename(words: Words, table: ask.TableName) -> ask.RenameColumn:
    old = words.path("a column's name")
    words.expect("TO")
    return ask.RenameColumn(table, old, words.name("the new name"))


def _drop(words: Words, table: ask.TableName) -> ask.DropColumn:
    if_exists = words.take("IF", "EXISTS")
    if not words.sees_kind(TokenType.L_PAREN):
        return ask.DropColumn(table, words.path("a column's name"), if_exists)
    columns = column_list(words)
    if len(columns) > 1:
        words.fail("columns are dropped one by one: a statement each")
    return ask.DropColumn(table, columns[0], if_exists)


def _drop_feature(words: Words, table: ask.TableName) -> ask.DropFeature:
    quoted = words.sees_kind(TokenType.STRING)
    name = words.string("a feature") if quoted else words.name("the name of a feature")
    return ask.DropFeature(table, name, words.take("TRUNCATE", "HISTORY"))


def _add(words: Words, table: ask.TableName) -> ask.AddColumns:
    if not words.take_kind(TokenType.L_PAREN):
        path, field = added(words)
        return ask.AddColumns(table, StructType((field,)), path[:-1])
    fields: list[StructField] = []
    into: Path = ()
    while not fields or words.take_kind(TokenType.COMMA):
        token = words.token
        path, field = added(words)
        if fields and path[:-1] != into:
            words.fail("columns of one struct are added at a time: a statement each", at=token)
        fields, into = [*fields, field], path[:-1]
    words.expect_kind(TokenType.R_PAREN, ", or )")
    return ask.AddColumns(table, StructType(tuple(fields)), into)


def _set(words: Words, table: ask.TableName) -> ask.SetProperties:
    return ask.SetProperties(table, properties(words))


def _unset(words: Words, table: ask.TableName) -> ask.UnsetProperties:
    if_exists = words.take("IF", "EXISTS")
    words.expect_kind(TokenType.L_PAREN, "( and names of properties")
    names = [property_name(words)]
    while words.take_kind(TokenType.COMMA):
        names.append(property_name(words))
    words.expect_kind(TokenType.R_PAREN, ", or )")
    return ask.UnsetProperties(table, tuple(names), if_exists)


def _recluster(words: Words, table: ask.TableName, *, if_exists: bool) -> ask.Recluster:
    final = words.take("FINAL")
    where = condition(words, "LIMIT")
    if words.sees("LIMIT"):
        words.fail(
            "LIMIT counts segments, which Delta tables do not have; bound the bytes with `optimize"
            " --strategy overlap --budget`"
        )
    return ask.Recluster(table=table, final=final, where=where, if_exists=if_exists)


_CHANGES: Final[Mapping[tuple[str, ...], Callable[[Words, ask.TableName], ask.Statement]]] = {
    ("CLUSTER", "BY"): _cluster_by,
    ("RENAME", "COLUMN"): _rename,
    ("DROP", "COLUMNS"): _drop,
    ("DROP", "COLUMN"): _drop,
    ("DROP", "FEATURE"): _drop_feature,
    ("ADD", "COLUMNS"): _add,
    ("ADD", "COLUMN"): _add,
    ("SET", "TBLPROPERTIES"): _set,
    ("UNSET", "TBLPROPERTIES"): _unset,
}


# The others


def _optimize(words: Words) -> ask.Optimize:
    table = table_name(words)
    full = words.take("FULL")
    where = condition(words, "ZORDER")
    zorder_by: tuple[Path, ...] = ()
    if words.take("ZORDER"):
        words.expect("BY")
        zorder_by = _zorder_columns(words)
    if not zorder_by:
        more = ["ZORDER BY"] if where else ["WHERE", "ZORDER BY"]
        words.finish(*([] if full or where else ["FULL"]), *more)
    return ask.Optimize(table=table, full=full, where=where, zorder_by=zorder_by)


def _zorder_columns(words: Words) -> tuple[Path, ...]:
    if words.sees_kind(TokenType.L_PAREN):
        return column_list(words)
    found = [words.path("a column's name")]
    while words.take_kind(TokenType.COMMA):
        found.append(words.path("a column's name"))
    return tuple(found)


def _explain(words: Words) -> ask.Optimize:
    words.expect("OPTIMIZE")
    found = _optimize(words)
    return ask.Optimize(
        table=found.table,
        full=found.full,
        where=found.where,
        zorder_by=found.zorder_by,
        explain=True,
    )


def _vacuum(words: Words) -> ask.Vacuum:
    table = table_name(words)
    if words.sees("LITE"):
        words.fail("LITE vacuums what the log names only; leave it out: the directory is listed")
    if words.sees("USING"):
        words.fail("files are listed here, not taken from an inventory; leave USING INVENTORY out")
    words.take("FULL")
    hours = None
    if words.take("RETAIN"):
        hours = words.number("a whole number of hours")
        words.expect("HOURS")
    dry_run = words.take("DRY", "RUN")
    words.finish(*([] if dry_run else ["DRY RUN"] if hours is not None else ["RETAIN", "DRY RUN"]))
    return ask.Vacuum(table=table, retain_hours=hours, dry_run=dry_run)


def _describe(words: Words) -> ask.Statement:
    if words.take("DETAIL"):
        return ask.DescribeDetail(table_name(words))
    if words.take("HISTORY"):
        table = table_name(words)
        if not words.take("LIMIT"):
            return ask.DescribeHistory(table)
        token = words.token
        limit = words.number("a whole number")
        if not limit:
            words.fail("a limit must be at least 1", at=token)
        return ask.DescribeHistory(table, limit)
    return words.refuse("DETAIL", "HISTORY")


def _select(words: Words) -> ask.ClusteringInformation:
    function = words.token
    if words.take_kind(TokenType.STAR):
        words.expect("FROM")
        if words.take(_DATABEND):
            return _databend(words)
    elif words.take(_SNOWFLAKE):
        return _snowflake(words)
    return words.fail(
        "there is no statement SELECT: rows are read by an engine; the two functions"
        f" that can be asked are {_SNOWFLAKE} and, after * FROM, {_DATABEND}",
        at=function,
    )


def _databend(words: Words) -> ask.ClusteringInformation:
    words.expect_kind(TokenType.L_PAREN, "(")
    first = words.token
    parts = [words.string("a table in quotes")]
    while words.take_kind(TokenType.COMMA):
        parts.append(words.string("a table in quotes"))
    words.expect_kind(TokenType.R_PAREN, ")")
    if len(parts) > 1:
        return ask.ClusteringInformation(ask.table_of(tuple(parts)))
    return ask.ClusteringInformation(_quoted_table(words, first))


def _snowflake(words: Words) -> ask.ClusteringInformation:
    words.expect_kind(TokenType.L_PAREN, "(")
    first = words.token
    words.string("a table in quotes")
    table = _quoted_table(words, first)
    columns = None
    if words.take_kind(TokenType.COMMA):
        second = words.token
        columns = _quoted_columns(words, words.string("columns, as '(a, b)'"), second)
    words.expect_kind(TokenType.R_PAREN, ")")
    return ask.ClusteringInformation(table, columns)


def _quoted_table(words: Words, token: Token | None) -> ask.TableName:
    text = "" if token is None else str(token.text)
    if "/" in text and "`" not in text:
        return ask.TableAt(text)
    try:
        inner = Words(text)
        table = table_name(inner)
        inner.finish()
    except UsageError:
        words.fail(f"expected {A_TABLE}, in these quotes", at=token)
    return table


def _quoted_columns(words: Words, text: str, token: Token | None) -> tuple[Path, ...]:
    try:
        inner = Words(text if text.lstrip().startswith("(") else f"({text})")
        columns = column_list(inner)
        inner.finish()
    except UsageError:
        words.fail("expected names of columns, as '(a, b)'", at=token)
    return columns


def _advise(words: Words) -> ask.Advise:
    table = table_name(words)
    sources: list[str] = []
    if words.take("FROM"):
        while not sources or words.take_kind(TokenType.COMMA):
            sources.append(words.string("where queries are recorded, in quotes"))
    words.finish("FROM")
    return ask.Advise(table, tuple(sources))


_STATEMENTS: Final[Mapping[str, Callable[[Words], ask.Statement]]] = {
    "CREATE": create,
    "ALTER": _alter,
    "OPTIMIZE": _optimize,
    "EXPLAIN": _explain,
    "VACUUM": _vacuum,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "SELECT": _select,
    "ADVISE": _advise,
}
