"""Statements: the text of one, to its value.

Source: Delta Lake, "Table utility commands" and "Use liquid clustering"; Databend, "ALTER TABLE
RECLUSTER" and "CLUSTERING_INFORMATION".
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from liquidlog.errors import UsageError
from liquidlog.spec.schema import quote_path
from liquidlog.sql import statements as ask
from liquidlog.sql.definitions import NO_AUTO, added, create, properties_of
from liquidlog.sql.words import A_TABLE, Words

_FUNCTION: Final = "CLUSTERING_INFORMATION"

_ELSEWHERE: Final[Mapping[str, tuple[str, ...]]] = {
    "rows are appended with `append`, or by an engine": ("INSERT", "COPY"),
    "rows are changed by an engine": ("DELETE", "UPDATE", "MERGE"),
    "a table is not replaced, dropped or emptied here": ("REPLACE", "DROP", "TRUNCATE", "RESTORE"),
    "deletion vectors go when OPTIMIZE rewrites a file": ("REORG",),
    "a directory of Parquet files is converted by Delta Spark": ("CONVERT",),
}
"""Why there is no such statement, and first words of those."""


def parse_statement(text: str) -> ask.Statement:
    """Return the statement that a text is."""
    words = Words(text)
    begin = words.offset
    try:
        for word, parse in _STATEMENTS.items():
            if words.take(word):
                statement = parse(words)
                words.finish()
                return statement
    except RecursionError:
        words.fail("the statement is nested too deeply", at=begin)
    for reason, others in _ELSEWHERE.items():
        for word in filter(words.sees, others):
            words.fail(f"there is no statement {word}: {reason}")
    return words.refuse(*_STATEMENTS)


def _alter(words: Words) -> ask.Statement:
    words.expect("TABLE")
    begin = words.offset
    if_exists = words.take("IF", "EXISTS")
    table = words.table()
    if words.take("RECLUSTER"):
        return _recluster(words, table, if_exists=if_exists)
    if if_exists:
        words.fail("IF EXISTS stands before RECLUSTER only", at=begin)
    for clause, parse in _CHANGES.items():
        if words.take(*clause):
            return parse(words, table)
    return words.refuse(*(" ".join(clause) for clause in _CHANGES), "RECLUSTER")


def _cluster_by(words: Words, table: ask.TableName) -> ask.Alteration:
    if words.sees("AUTO"):
        words.fail(NO_AUTO)
    columns = None
    if not words.take("NONE"):
        if not words.sees("("):
            words.refuse("( and the names of columns", "NONE")
        columns = words.columns()
    return ask.Alteration(table, "cluster_by", {"columns": columns})


def _rename(words: Words, table: ask.TableName) -> ask.Alteration:
    old = quote_path(words.path())
    words.expect("TO")
    new = quote_path((words.name("the new name"),))
    has = f"the column {new} instead of {old}"
    return ask.Alteration(table, "rename_column", {"old": old, "new": new}, has)


def _drop(words: Words, table: ask.TableName) -> ask.Alteration:
    if_exists = words.take("IF", "EXISTS")
    names = words.columns()
    has, given = f"no column {', '.join(names)}", {"if_exists": if_exists}
    return ask.Alteration(table, "drop_column", given, has, names)


def _drop_feature(words: Words, table: ask.TableName) -> ask.Alteration:
    quoted = words.sees_string()
    name = words.string("a feature") if quoted else words.name("the name of a feature")
    arguments = {"feature": name, "truncate_history": words.take("TRUNCATE", "HISTORY")}
    return ask.Alteration(table, "drop_feature", arguments)


def _add(words: Words, table: ask.TableName) -> ask.Alteration:
    into, schema = added(words)
    names = ", ".join(quote_path((*into, one.name)) for one in schema.fields)
    arguments = {"schema": schema, "into": quote_path(into) if into else None}
    has = f"the new column{'s' if len(schema.fields) > 1 else ''} {names}"
    return ask.Alteration(table, "add_columns", arguments, has)


def _set(words: Words, table: ask.TableName) -> ask.Alteration:
    begin, tree = words.offset, words.tree(closing="= and a value in quotes, a comma or )")
    given = next(iter(tree.args["actions"][0].expressions), None)
    if given is None:
        words.fail("expected properties, as ('key' = 'value')", at=begin)
    arguments = {"properties": properties_of(words, given.expressions)}
    return ask.Alteration(table, "set_properties", arguments, "these properties")


def _unset(words: Words, table: ask.TableName) -> ask.Alteration:
    words.take("IF", "EXISTS")  # what is not there is no error anyway
    words.expect("(", what="( and names of properties")
    names = words.listed(partial(_property_name, words))
    words.expect(")", what=", or )")
    arguments = {"properties": {}, "unset": names}
    return ask.Alteration(table, "set_properties", arguments, "no such properties")


def _property_name(words: Words) -> str:
    if words.sees_string():
        return words.string("a property")
    return ".".join(words.path("a property, as 'delta.checkpointInterval'"))


def _recluster(words: Words, table: ask.TableName, *, if_exists: bool) -> ask.RewriteStatement:
    final = words.take("FINAL")
    where = words.condition("LIMIT")
    if words.sees("LIMIT"):
        words.fail(
            "LIMIT counts segments, which Delta tables do not have; bound the bytes with `optimize"
            " --strategy overlap --budget`"
        )
    return ask.RewriteStatement(
        table=table, recluster=True, final=final, where=where, if_exists=if_exists
    )


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


def _optimize(words: Words) -> ask.RewriteStatement:
    table = words.table()
    full = words.take("FULL")
    where = words.condition("ZORDER")
    zorder_by: tuple[str, ...] = ()
    if words.take("ZORDER"):
        words.expect("BY")
        zorder_by = words.columns()
    else:
        before_where = [] if where else ["WHERE"] if full else ["FULL", "WHERE"]
        words.finish(*before_where, "ZORDER BY")
    return ask.RewriteStatement(table=table, full=full, where=where, zorder_by=zorder_by)


def _explain(words: Words) -> ask.RewriteStatement:
    words.expect("OPTIMIZE")
    return replace(_optimize(words), explain=True)


def _vacuum(words: Words) -> ask.Vacuum:
    table = words.table()
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


def _describe(words: Words) -> ask.Question:
    if words.take("DETAIL"):
        return ask.Question(words.table(), "detail")
    if not words.take("HISTORY"):
        words.refuse("DETAIL", "HISTORY")
    table, limit = words.table(), None
    if words.take("LIMIT"):
        begin = words.offset
        limit = words.number("a whole number") or words.fail("a limit must be at least 1", at=begin)
    return ask.Question(table, "history", limit=limit)


def _select(words: Words) -> ask.Question:
    begin = words.offset
    if not (words.take("*", "FROM", _FUNCTION)):
        words.fail(
            "there is no statement SELECT: rows are read by an engine; the one function that can"
            f" be asked is {_FUNCTION}, after * FROM",
            at=begin,
        )
    words.expect("(")
    begin, parts = words.offset, words.listed(partial(words.string, "a table in quotes"))
    words.expect(")")
    if len(parts) > 1:
        return ask.Question(ask.table_of(parts), "health")
    if "/" in parts[0] and "`" not in parts[0]:
        return ask.Question(ask.TableAt(parts[0]), "health")
    try:
        inner = Words(parts[0])
        table = inner.table()
        inner.finish()
    except UsageError:
        words.fail(f"expected {A_TABLE}, in these quotes", at=begin)
    return ask.Question(table, "health")


def _advise(words: Words) -> ask.Question:
    table, sources = words.table(), tuple[str, ...]()
    if words.take("FROM"):
        sources = words.listed(partial(words.string, "where queries are recorded, in quotes"))
    words.finish("FROM")
    return ask.Question(table, "advise", sources=sources)


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
