"""Parse the text of a statement to its value.

Source: Delta Lake, "Table utility commands" and "Use liquid clustering"; Databend, "ALTER TABLE
RECLUSTER" and "CLUSTERING_INFORMATION".
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from sqlglot import exp
from sqlglot.expressions import Expr

from liquidlog.errors import UsageError
from liquidlog.spec.arrow import CHAR_VARCHAR, TextLimit
from liquidlog.spec.schema import (
    MAX_DEPTH,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    Path,
    PrimitiveType,
    StructField,
    StructType,
    quote_path,
    quote_paths,
)
from liquidlog.sql import statements as ask
from liquidlog.sql.statements import Creation
from liquidlog.sql.words import A_TABLE, Words

# New tables, columns, types and properties, from sqlglot's trees of Databricks' SQL.
# Whatever a tree asks for and this does not use is refused, never left out silently.
# Source: Spark, SQL reference, "Data Types"; PROTOCOL.md, "Primitive Types".

_PRIMITIVES: Final[Mapping[str, str]] = {
    "BIGINT": "long",
    "BINARY": "binary",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "DOUBLE": "double",
    "FLOAT": "float",
    "INT": "integer",
    "SMALLINT": "short",
    "TEXT": "string",
    "TIMESTAMPLTZ": "timestamp",
    "TIMESTAMPNTZ": "timestamp_ntz",
    "TIMESTAMPTZ": "timestamp",
    "TINYINT": "byte",
    "VARIANT": "variant",
}
"""By sqlglot's names."""
_MOST_DIGITS: Final = 38
_A_COLUMN: Final = "a column as NAME TYPE [NOT NULL] [COMMENT 'text']"
_CLAUSES: Final = (
    "USING, CLUSTER BY, PARTITIONED BY, TBLPROPERTIES, COMMENT, LOCATION or the end of the"
    " statement"
)
_ARGUMENTS: Final[Mapping[type[Expr], str]] = {
    exp.SchemaCommentProperty: "description",
    exp.LocationProperty: "location",
}
NO_AUTO: Final = "columns are not chosen by themselves; ADVISE says which suit readers"


def create(words: Words) -> Creation:
    """Parse the rest of a statement behind CREATE."""
    if words.sees("OR", "REPLACE"):
        words.fail("a table is not replaced here, since its rows would go; use IF NOT EXISTS")
    words.expect("TABLE")
    exists, table = words.take("IF", "NOT", "EXISTS"), words.table()
    like = words.table() if words.take("LIKE") else None
    begin, tree = words.offset, words.tree()
    if tree.args.get("expression"):
        problem = "rows of a query cannot be written; create the table, then append to it"
        words.fail(problem, at=words.seek("AS", "SELECT", "WITH", after=begin))
    clauses = dict(_clauses(words, tree, begin))
    location = clauses.pop("location", None)
    if like is not None and clauses:
        problem = "LIKE copies clustering and partition columns and comment; leave them out"
        words.fail(problem, at=begin)
    given = _properties(tree, of_table=True)
    definition = clauses | {"properties": _properties_of(words, given)}
    if like is None:
        if not isinstance(tree.this, exp.Schema):
            example = "give them before this, as (day DATE, store STRING)"
            words.fail(f"a new table needs columns; {example}", at=begin)
        partitions = clauses.get("partition_by", [])
        typed = partitions if any(isinstance(one, exp.ColumnDef) for one in partitions) else []
        columns = _fields(words, [*tree.this.expressions, *typed], "columns")
        definition["schema"] = StructType(tuple(columns))
        if partitions:
            names = (_path(words, one.this if typed else one) for one in partitions)
            definition["partition_by"] = quote_paths(names)
    return Creation(
        table=table, definition=definition, like=like, location=location, if_not_exists=exists
    )


def _clauses(words: Words, tree: Expr, begin: int) -> Iterator[tuple[str, Any]]:
    _only(words, tree, "this", "kind", "exists", "properties", at=begin, expected=_CLAUSES)
    seen: dict[str, int] = {}
    for one in _properties(tree):
        word, *_ = re.split(r"\W", one.sql("databricks").upper(), maxsplit=1)
        at = words.seek(word, after=begin)
        if word in seen:
            words.fail(f"{word} is there twice", at=words.seek(word, after=seen[word] + 1))
        seen[word] = at
        if isinstance(one, exp.ClusterProperty):
            if one.name.upper() == "AUTO":
                words.fail(NO_AUTO, at=words.seek("AUTO", after=at))
            yield "cluster_by", quote_paths(_path(words, one) for one in one.expressions)
        elif type(one) in _ARGUMENTS:
            yield _ARGUMENTS[type(one)], one.name
        elif isinstance(one, exp.PartitionedByProperty):
            yield "partition_by", one.this.expressions
        elif not isinstance(one, exp.FileFormatProperty | exp.LikeProperty):
            words.fail(f"expected {_CLAUSES}", at=at)
        elif one.name.upper() not in {"", "DELTA"}:
            at = words.seek(one.name.upper(), after=at)
            words.fail(f"expected DELTA, found {one.name}", at=at)


def _properties(tree: Expr, *, of_table: bool = False) -> list[Expr]:
    found = tree.args["properties"].expressions if tree.args.get("properties") else []
    return [one for one in found if one and (type(one) is exp.Property) == of_table]


def _properties_of(words: Words, given: Iterable[Expr]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for one in given:
        name, value = one.this, one.args.get("value")
        key = ".".join(part.name for part in _parts(name))
        at = words.seek(key.upper(), key.partition(".")[0].upper())
        if not isinstance(value, exp.Literal | exp.Boolean):
            shown = "none" if value is None else value.sql("databricks")
            at = words.seek(shown.upper(), after=at)
            words.fail(f"expected the property's value in quotes, found {shown}", at=at)
        text = value.name if isinstance(value, exp.Literal) else str(value.this).lower()
        if found.setdefault(key, text) != text:
            words.fail(f"{key} is given two values", at=words.seek(key.upper(), after=at + 1))
    return found


def added(words: Words) -> tuple[Path, StructType]:
    """Parse columns to add: return the path of their struct, () for the table, and the columns."""
    head, tail = ("CREATE TABLE t ", "") if words.sees("(") else ("CREATE TABLE t (", "\n)")
    begin, tree = words.offset, words.tree(head, tail)
    given = tree.this.expressions
    if not given or any(tree.args[name] for name in tree.args if name not in {"this", "kind"}):
        words.fail(f"expected {_A_COLUMN}", at=begin)
    fields = StructType(tuple(_fields(words, given, "columns")))
    places = [_path(words, one.this)[:-1] for one in given]
    for one, place in zip(given, places, strict=True):
        if place != places[0]:
            problem = "columns of one struct are added at a time: a statement each"
            words.fail(problem, at=_start(one))
    return places[0], fields


def column_type(name: str, text: str) -> StructField:
    """Return a column whose type is written in SQL."""
    words = Words(f"ALTER TABLE t ADD COLUMN c {text}")
    words.take("ALTER", "TABLE", "T", "ADD", "COLUMN")
    (field,) = added(words)[1].fields
    return StructField(name, field.data_type, field.nullable, field.metadata)


def _fields(
    words: Words, given: Sequence[Expr], what: str, depth: int = 0
) -> Iterator[StructField]:
    names: set[str] = set()
    for one in given:
        begin = _start(one)
        if not isinstance(one, exp.ColumnDef) or one.args.get("kind") is None:
            words.fail(f"expected {_A_COLUMN}", at=begin)
        _path(words, one.this)
        at = words.seek("FIRST", "AFTER", after=begin)
        _only(words, one, "this", "kind", "constraints", at=at, expected=_A_COLUMN)
        field = _field(words, one, depth)
        if field.name.lower() in names:
            words.fail(f"there are two {what} {field.name}", at=begin)
        names.add(field.name.lower())
        yield field


def _field(words: Words, column: exp.ColumnDef, depth: int) -> StructField:
    name = _parts(column.this)[-1]
    behind = words.text[name.meta["end"] + 1 :]
    at = len(words.text) - len(behind.lstrip(" \t\r\n:"))
    metadata: dict[str, Any] = {}
    data_type = _type(words, column.args["kind"], at, depth)
    if isinstance(data_type, TextLimit):
        metadata[CHAR_VARCHAR] = str(data_type)
        data_type = PrimitiveType("string")
    nullable = True
    for one in column.args.get("constraints") or ():
        kind = one.kind
        if isinstance(kind, exp.NotNullColumnConstraint):
            nullable = bool(kind.args.get("allow_null"))
        elif isinstance(kind, exp.CommentColumnConstraint):
            metadata["comment"] = kind.name
        else:
            word = kind.sql("databricks").partition(" ")[0]
            problem = f"{word} cannot be defined here; create the table with Delta Spark"
            words.fail(problem, at=words.seek(word, after=at))
    return StructField(name.name, data_type, nullable, metadata)


def _type(words: Words, kind: Expr, at: int, depth: int) -> DataType | TextLimit:
    """Parse a type; only a whole column may be char or varchar: a string with a limit."""
    if depth > MAX_DEPTH:
        words.fail(f"a type is nested more than {MAX_DEPTH} levels deep", at=at)
    name = kind.this.name if isinstance(kind, exp.DataType) else ""
    inside = list(kind.expressions)
    inner: Iterator[Any] = (_type(words, one, at, depth + 1) for one in inside)
    match name, len(inside):
        case "ARRAY", 1:
            return ArrayType(next(inner))
        case "MAP", 2:
            return MapType(next(inner), next(inner))
        case "STRUCT", _ if inside:
            return StructType(tuple(_fields(words, inside, "fields", depth + 1)))
    found = _plain_type(name, [one.name for one in inside])
    if found is None or (depth and isinstance(found, TextLimit)):
        words.fail(
            "expected a type, as INT, DECIMAL(38, 2), ARRAY<STRING> or, of a whole column,"
            f" VARCHAR(20), found {kind.sql('databricks')}",
            at=at,
        )
    return found


def _plain_type(name: str, sizes: Sequence[str]) -> DataType | TextLimit | None:
    numbers = [int(size) for size in sizes if size.isascii() and size.isdecimal()]
    if len(numbers) < len(sizes):
        return None
    match name, numbers:
        case "CHAR" | "VARCHAR", [length] if length:
            return TextLimit(length, name == "CHAR")
        case "DECIMAL", []:
            return DecimalType(10, 0)
        case "DECIMAL", [digits, *scale] if len(scale) <= 1 and 1 <= digits <= _MOST_DIGITS:
            return DecimalType(digits, sum(scale)) if sum(scale) <= digits else None
        case _, [] if name in _PRIMITIVES:
            return PrimitiveType(_PRIMITIVES[name])
    return None


def _only(words: Words, node: Expr, *used: str, at: int, expected: str) -> None:
    if any(value for name, value in node.args.items() if name not in used):
        words.fail(f"expected {expected}", at=at)


def _path(words: Words, node: Expr) -> Path:
    parts = _parts(node)
    if not all(isinstance(part, exp.Identifier) for part in parts):
        words.fail(f"expected a column's name, found {node.sql('databricks')}", at=_start(node))
    return tuple(part.name for part in parts)


def _parts(node: Expr) -> list[Expr]:
    if isinstance(node, exp.Dot):
        return [*_parts(node.this), *_parts(node.expression)]
    return node.parts if isinstance(node, exp.Column) else [node]


def _start(node: Expr) -> int:
    return min((one.meta.get("start", 0) for one in node.find_all(exp.Identifier)), default=0)


_FUNCTION: Final = "CLUSTERING_INFORMATION"

_ELSEWHERE: Final[Mapping[str, tuple[str, ...]]] = {
    "rows are appended with `append`, or by an engine": ("INSERT", "COPY"),
    "rows are changed by an engine": ("DELETE", "UPDATE", "MERGE"),
    "a table is not replaced, dropped or emptied here": ("REPLACE", "DROP", "TRUNCATE", "RESTORE"),
    "deletion vectors go when OPTIMIZE rewrites a file": ("REORG",),
    "a directory of Parquet files is converted by Delta Spark": ("CONVERT",),
}
"""Why a statement does not exist, and the first words of such statements."""


def parse_statement(text: str) -> ask.Statement:
    """Return the statement in a text."""
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
    arguments = {"properties": _properties_of(words, given.expressions)}
    return ask.Alteration(table, "set_properties", arguments, "these properties")


def _unset(words: Words, table: ask.TableName) -> ask.Alteration:
    words.take("IF", "EXISTS")  # what is not there is no error anyway
    words.expect("(", what="( and names of properties")
    what = "a property, as 'delta.checkpointInterval'"
    names = words.listed(
        lambda: words.string(what) if words.sees_string() else ".".join(words.path(what))
    )
    words.expect(")", what=", or )")
    arguments = {"properties": {}, "unset": names}
    return ask.Alteration(table, "set_properties", arguments, "no such properties")


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
