"""Parse statements of SQL about Delta tables; opens no table.

Every word is a name, as in Spark: each statement decides which words have a meaning, so a column
may be called `full` or `none`.

Source: Delta Lake, "Table utility commands" and "Use liquid clustering"; Databend, "ALTER TABLE
RECLUSTER" and "CLUSTERING_INFORMATION".
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Final, NoReturn, TypeVar

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.databricks import Databricks
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.expressions import Expr

from liquidlog.errors import UsageError
from liquidlog.predicates.conditions import condition_or_problem
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
from liquidlog.spec.text import near_names

# Statements as values, with names as written; a `where` is a condition in Spark's SQL


@dataclass(frozen=True, slots=True)
class TableAt:
    """A table by its path or URI."""

    uri: str

    def __str__(self) -> str:
        return f"delta.`{self.uri.replace('`', '``')}`"


@dataclass(frozen=True, slots=True)
class TableNamed:
    """A table by its name in a catalog, as `sales` or `db.sales`."""

    parts: Path

    def __str__(self) -> str:
        return quote_path(self.parts)


TableName = TableAt | TableNamed


@dataclass(frozen=True, slots=True, kw_only=True)
class Creation:
    """CREATE TABLE: an empty table; `definition` has the arguments of `Table.definition`.

    The table `like` gives the rest of the definition.
    """

    table: TableName
    definition: Mapping[str, Any]
    like: TableName | None = None
    location: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class Alteration:
    """ALTER TABLE: calls a `method` of `Table`, which rewrites no file.

    `names` are positional arguments. Afterwards the table `has` what the text says.
    """

    table: TableName
    method: str
    arguments: Mapping[str, Any]
    has: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteStatement:
    """OPTIMIZE, or Databend's RECLUSTER of the files that overlap most.

    The `where` of OPTIMIZE names only partition columns; `explain` makes it a dry run. A `final`
    RECLUSTER repeats until nothing is left; with `if_exists`, the table may be missing.
    """

    table: TableName
    recluster: bool = False
    where: str | None = None
    full: bool = False
    zorder_by: tuple[str, ...] = ()
    explain: bool = False
    final: bool = False
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuum:
    """VACUUM: delete files that no version of the last hours needs; None is the table's default."""

    table: TableName
    retain_hours: int | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """A statement that writes nothing, by its verb: detail, history, health or advise."""

    table: TableName
    verb: str
    limit: int | None = None
    sources: tuple[str, ...] = ()


Statement = Creation | Alteration | RewriteStatement | Vacuum | Question


def table_of(parts: Path) -> TableName:
    """Return the table of a name in SQL: delta.`path`, else a name in a catalog."""
    if len(parts) == len(("delta", "path")) and parts[0].lower() == "delta":
        return TableAt(parts[1])
    return TableNamed(parts)


# Words of a statement, sqlglot's trees of a text, and errors that point at a word

T = TypeVar("T")

A_TABLE: Final = "a table, as delta.`/data/sales`"
_MOST_SHOWN: Final = 40
_QUOTED: Final = frozenset({TokenType.STRING, TokenType.IDENTIFIER})
_CLOSED: Final = re.compile(
    r"""(?:--[^\n]*|/\*.*?\*/|'(?:\\.|[^\\'])*'|"(?:\\.|[^\\"])*"|`[^`]*`|(?!/\*|['"`]).)*""",
    re.DOTALL,
)
"""Matches a text up to its first unclosed quote or comment."""


class _UnreadableError(ParseError):
    """The word at `offset` in the text cannot be parsed; None is the end of the text."""

    def __init__(self, message: str, offset: int | None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class _Words(Databricks):
    """Databricks' SQL without keywords."""

    class Tokenizer(Databricks.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {}


class _Trees(Databricks):
    """Databricks' SQL; refuses statements that sqlglot would leave unparsed."""

    class Parser(Databricks.Parser):  # type: ignore[misc,valid-type]  # a class
        def raise_error(self, message: str, token: Token | None = None) -> None:
            at = token or self._curr
            raise _UnreadableError(message, at.start if at else None)

        def _parse_as_command(self, start: Token) -> NoReturn:  # noqa: ARG002  sqlglot's signature
            self.raise_error("Expecting the end of the statement" if self._curr else "")
            raise AssertionError

        def _warn_unsupported(self) -> None:
            self.raise_error("")


class Words:
    """The words of one statement, taken from the first to the last."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise UsageError(f"a statement must be text, found {type(text).__name__}")
        self.text = text
        try:
            self._tokens = _Words().tokenize(text)
        except SqlglotError:
            self._refuse_unclosed()
        while self._tokens and self._tokens[-1].token_type is TokenType.SEMICOLON:
            self._tokens.pop()
        self._next = 0
        for one, other in pairwise(self._tokens):
            if one.token_type is TokenType.SEMICOLON:
                self.fail("a second statement begins here; give one at a time", at=other.start)

    @property
    def token(self) -> Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    @property
    def offset(self) -> int:
        """The position in the text where the next token begins."""
        return len(self.text.rstrip("; \t\r\n")) if self.token is None else self.token.start

    def sees(self, *words: str) -> bool:
        """Return whether these words or signs are next, in any case and without quotes."""
        ahead = self._tokens[self._next : self._next + len(words)]
        return len(ahead) == len(words) and all(
            token.token_type not in _QUOTED and token.text.upper() == word
            for token, word in zip(ahead, words, strict=True)
        )

    def take(self, *words: str) -> bool:
        """Take these words if they are next; return whether they were."""
        found = self.sees(*words)
        self._next += len(words) if found else 0
        return found

    def expect(self, *words: str, what: str | None = None) -> None:
        """Take these words; the error names `what` instead of a missing word."""
        for word in words:
            if not self.take(word):
                self.refuse(what or word)

    def name(self, what: str = "a column's name") -> str:
        return self._text(TokenType.VAR, TokenType.IDENTIFIER, what=what)

    def path(self, what: str = "a column's name") -> tuple[str, ...]:
        """Take names with dots between them."""
        return self.listed(lambda: self.name(what), between=".")

    def listed(self, read: Callable[[], T], *, between: str = ",") -> tuple[T, ...]:
        found = [read()]
        while self.take(between):
            found.append(read())
        return tuple(found)

    def columns(self) -> tuple[str, ...]:
        """Take names of columns, with or without parentheses; return them quoted for `Table`."""
        closes = self.take("(")
        found = self.listed(self.path)
        if closes:
            self.expect(")", what=", or )")
        return tuple(map(quote_path, found))

    def sees_string(self) -> bool:
        return self.token is not None and self.token.token_type is TokenType.STRING

    def string(self, what: str) -> str:
        return self._text(TokenType.STRING, what=what, empty=True)

    def number(self, what: str) -> int:
        if self.token is None or not self.token.text.isdecimal():
            self.refuse(what)
        return int(self._text(TokenType.NUMBER, what=what))

    def _text(self, *kinds: TokenType, what: str, empty: bool = False) -> str:
        token = self.token
        if token is None or token.token_type not in kinds or not (token.text or empty):
            self.refuse(what)
        self._next += 1
        return token.text

    def table(self) -> TableName:
        """Take a table: a name, delta.`path`, or a path in quotes."""
        if not self.sees_string():
            return table_of(self.path(A_TABLE))
        begin, uri = self.offset, self.string(A_TABLE)
        return TableAt(uri or self.fail("the path of a table is empty", at=begin))

    def condition(self, *ends: str) -> str | None:
        """Take WHERE and a condition up to one of the words `ends`; None without WHERE."""
        if not self.take("WHERE"):
            return None
        begin, depth = self.offset, 0
        while self.token is not None and (depth or not any(map(self.sees, ends))):
            depth += self.sees("(") - self.sees(")")
            self._next += 1
        text = self.text[begin : self._tokens[self._next - 1].end + 1]
        if not text:
            self.fail("expected a condition behind WHERE, found none")
        self._tree(text, begin, "the condition cannot be read here")
        if isinstance(condition_or_problem(text), UsageError):
            self.fail("expected a condition, as day >= '2026-01-31'", at=begin)
        return text

    def tree(
        self, head: str | None = None, tail: str = "", *, closing: str = "a type, a comma or )"
    ) -> Expr:
        """Take the rest of the text; return sqlglot's tree of the whole statement.

        With `head`, the tree is of `head`, the rest and `tail`; offsets stay the same. Errors at a
        missing parenthesis expect `closing`.
        """
        begin, self._next = self.offset, len(self._tokens)
        left = self.text[: self.offset]
        text = left if head is None else f"{head.ljust(begin)}{left[begin:]}{tail}"
        return self._tree(text, 0, "this cannot be read here", closing)

    def _tree(self, text: str, begin: int, problem: str, closing: str = ")") -> Expr:
        try:
            (found,) = _Trees().parse(text)
            assert found is not None  # noqa: S101  there is text
        except _UnreadableError as error:
            at = begin + (len(text) if error.offset is None else error.offset)
            self._next = next(
                (n for n, one in enumerate(self._tokens) if one.start >= at), len(self._tokens)
            )
            expected, _, what = error.message.partition("Expecting ")
            if what and not expected:
                self.refuse({")": closing, ">": "a type, a comma or >"}.get(what, what))
            self.fail(f"{problem}, found {self._shown()}")
        except Exception as error:
            if isinstance(error, RecursionError):
                raise
            self.fail(problem, at=begin)
        return found

    def seek(self, *words: str, after: int = 0) -> int:
        """Return the first offset from `after` on where one of these words begins, else `after`."""
        found = (one.start for one in self._tokens if one.text.upper() in words)
        return next((start for start in found if start >= after), after)

    def finish(self, *more: str) -> None:
        """Require the end of the statement; errors also name what `more` could follow."""
        if self.token is not None:
            self.refuse(*more, "the end of the statement")

    def refuse(self, *expected: str) -> NoReturn:
        """Refuse the next token, and name what was expected."""
        *others, last = expected
        listed = f"{', '.join(others)} or {last}" if others else last
        if self.sees("<"):
            self.fail(f"expected {listed}, found a placeholder; replace it")
        words = dict.fromkeys(one.partition(" ")[0] for one in expected)
        shown = self._shown()
        near = near_names(shown, (one for one in words if one.isupper() and one != shown.upper()))
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        self.fail(f"expected {listed}, found {shown}{hint}")

    def fail(self, problem: str, *, at: int | None = None) -> NoReturn:
        """Refuse the statement because of the next token, or the text at an offset."""
        before = self.text[: self.offset if at is None else at]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise UsageError(f"line {line}, column {column}: {problem}", line=line, column=column)

    def _shown(self) -> str:
        if self.token is None:
            return "the end of the statement"
        written = " ".join(self.text[self.token.start : self.token.end + 1].split())
        return written if len(written) <= _MOST_SHOWN else f"{written[:_MOST_SHOWN]}..."

    def _refuse_unclosed(self) -> NoReturn:
        found = _CLOSED.match(self.text)
        offset = 0 if found is None else found.end()
        if offset == len(self.text):
            self.fail("this is no statement of SQL", at=0)
        opener = self.text[offset]
        what = "comment" if opener == "/" else f"quote {opener}"
        self.fail(f"the {what} that begins here is not closed", at=offset)


# New tables, columns, types and properties, from sqlglot's trees of Databricks' SQL.
# Every part of a tree is used or refused.
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
NO_AUTO: Final = "AUTO is not supported; ADVISE says which columns suit the queries"


def create(words: Words) -> Creation:
    if words.sees("OR", "REPLACE"):
        words.fail("REPLACE would delete the table's rows; use IF NOT EXISTS")
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
        elif isinstance(one, exp.SchemaCommentProperty | exp.LocationProperty):
            is_location = isinstance(one, exp.LocationProperty)
            yield "location" if is_location else "description", one.name
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
    """Return the path of the struct to add columns to, () for the table, and the columns."""
    head, tail = ("CREATE TABLE t ", "") if words.sees("(") else ("CREATE TABLE t (", "\n)")
    begin, tree = words.offset, words.tree(head, tail)
    given = tree.this.expressions
    if not given or any(tree.args[name] for name in tree.args if name not in {"this", "kind"}):
        words.fail(f"expected {_A_COLUMN}", at=begin)
    fields = StructType(tuple(_fields(words, given, "columns")))
    places = [_path(words, one.this)[:-1] for one in given]
    for one, place in zip(given, places, strict=True):
        if place != places[0]:
            words.fail("add the columns of each struct by its own statement", at=_start(one))
    return places[0], fields


def column_type(name: str, text: str) -> StructField:
    words = Words(f"ALTER TABLE t ADD COLUMN c {text}")
    words.take("ALTER", "TABLE", "T", "ADD", "COLUMN")
    (field,) = added(words)[1].fields
    return replace(field, name=name)


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
    """Parse a type; only the type of a whole column may be char or varchar."""
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


_ELSEWHERE: Final[Mapping[str, tuple[str, ...]]] = {
    "append rows with `append`, or with an engine": ("INSERT", "COPY"),
    "change rows with an engine": ("DELETE", "UPDATE", "MERGE"),
    "use an engine to replace, drop or empty a table": ("REPLACE", "DROP", "TRUNCATE", "RESTORE"),
    "OPTIMIZE removes deletion vectors when it rewrites a file": ("REORG",),
    "Delta Spark converts directories of Parquet files": ("CONVERT",),
}
"""What to do instead of statements that do not exist, by their first words."""


def parse_statement(text: str) -> Statement:
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


def _alter(words: Words) -> Statement:
    words.expect("TABLE")
    begin = words.offset
    if_exists = words.take("IF", "EXISTS")
    table = words.table()
    if words.take("RECLUSTER"):
        return _recluster(words, table, if_exists=if_exists)
    if if_exists:
        words.fail("only RECLUSTER takes IF EXISTS", at=begin)
    for clause, parse in _CHANGES.items():
        if words.take(*clause):
            return parse(words, table)
    return words.refuse(*(" ".join(clause) for clause in _CHANGES), "RECLUSTER")


def _cluster_by(words: Words, table: TableName) -> Alteration:
    if words.sees("AUTO"):
        words.fail(NO_AUTO)
    columns = None
    if not words.take("NONE"):
        if not words.sees("("):
            words.refuse("( and the names of columns", "NONE")
        columns = words.columns()
    return Alteration(table, "cluster_by", {"columns": columns})


def _rename(words: Words, table: TableName) -> Alteration:
    old = quote_path(words.path())
    words.expect("TO")
    new = quote_path((words.name("the new name"),))
    has = f"the column {new} instead of {old}"
    return Alteration(table, "rename_column", {"old": old, "new": new}, has)


def _drop(words: Words, table: TableName) -> Alteration:
    if_exists = words.take("IF", "EXISTS")
    names = words.columns()
    has, given = f"no column {', '.join(names)}", {"if_exists": if_exists}
    return Alteration(table, "drop_column", given, has, names)


def _drop_feature(words: Words, table: TableName) -> Alteration:
    quoted = words.sees_string()
    name = words.string("a feature") if quoted else words.name("the name of a feature")
    arguments = {"feature": name, "truncate_history": words.take("TRUNCATE", "HISTORY")}
    return Alteration(table, "drop_feature", arguments)


def _add(words: Words, table: TableName) -> Alteration:
    into, schema = added(words)
    names = ", ".join(quote_path((*into, one.name)) for one in schema.fields)
    arguments = {"schema": schema, "into": quote_path(into) if into else None}
    has = f"the new column{'s' if len(schema.fields) > 1 else ''} {names}"
    return Alteration(table, "add_columns", arguments, has)


def _set(words: Words, table: TableName) -> Alteration:
    begin, tree = words.offset, words.tree(closing="= and a value in quotes, a comma or )")
    given = next(iter(tree.args["actions"][0].expressions), None)
    if given is None:
        words.fail("expected properties, as ('key' = 'value')", at=begin)
    arguments = {"properties": _properties_of(words, given.expressions)}
    return Alteration(table, "set_properties", arguments, "these properties")


def _unset(words: Words, table: TableName) -> Alteration:
    words.take("IF", "EXISTS")  # a missing property is no error anyway
    words.expect("(", what="( and names of properties")
    what = "a property, as 'delta.checkpointInterval'"
    names = words.listed(
        lambda: words.string(what) if words.sees_string() else ".".join(words.path(what))
    )
    words.expect(")", what=", or )")
    arguments = {"properties": {}, "unset": names}
    return Alteration(table, "set_properties", arguments, "no such properties")


def _recluster(words: Words, table: TableName, *, if_exists: bool) -> RewriteStatement:
    final = words.take("FINAL")
    where = words.condition("LIMIT")
    if words.sees("LIMIT"):
        other = "limit the bytes with `optimize --strategy overlap --budget`"
        words.fail(f"LIMIT counts segments, which Delta tables do not have; {other}")
    return RewriteStatement(
        table=table, recluster=True, final=final, where=where, if_exists=if_exists
    )


_CHANGES: Final[Mapping[tuple[str, ...], Callable[[Words, TableName], Statement]]] = {
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


def _optimize(words: Words, *, explain: bool = False) -> RewriteStatement:
    if explain:
        words.expect("OPTIMIZE")
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
    return RewriteStatement(
        table=table, full=full, where=where, zorder_by=zorder_by, explain=explain
    )


def _vacuum(words: Words) -> Vacuum:
    table = words.table()
    for word, clause in (("LITE", "LITE"), ("USING", "USING INVENTORY")):
        if words.sees(word):
            words.fail(f"{clause} is not supported: VACUUM lists the directory; leave it out")
    words.take("FULL")
    hours = None
    if words.take("RETAIN"):
        hours = words.number("a whole number of hours")
        words.expect("HOURS")
    dry_run = words.take("DRY", "RUN")
    words.finish(*([] if dry_run else ["DRY RUN"] if hours is not None else ["RETAIN", "DRY RUN"]))
    return Vacuum(table=table, retain_hours=hours, dry_run=dry_run)


def _describe(words: Words) -> Question:
    if words.take("DETAIL"):
        return Question(words.table(), "detail")
    if not words.take("HISTORY"):
        words.refuse("DETAIL", "HISTORY")
    table, limit = words.table(), None
    if words.take("LIMIT"):
        begin = words.offset
        limit = words.number("a whole number") or words.fail("a limit must be at least 1", at=begin)
    return Question(table, "history", limit=limit)


def _select(words: Words) -> Question:
    begin = words.offset
    if not words.take("*", "FROM", "CLUSTERING_INFORMATION"):
        expected = "expected * FROM CLUSTERING_INFORMATION(…): read rows with an engine"
        words.fail(expected, at=begin)
    words.expect("(")
    begin, parts = words.offset, words.listed(partial(words.string, "a table in quotes"))
    words.expect(")")
    if len(parts) > 1:
        return Question(table_of(parts), "health")
    if "/" in parts[0] and "`" not in parts[0]:
        return Question(TableAt(parts[0]), "health")
    try:
        inner = Words(parts[0])
        table = inner.table()
        inner.finish()
    except UsageError:
        words.fail(f"expected {A_TABLE}, in these quotes", at=begin)
    return Question(table, "health")


def _advise(words: Words) -> Question:
    table, sources = words.table(), tuple[str, ...]()
    if words.take("FROM"):
        sources = words.listed(partial(words.string, "where queries are recorded, in quotes"))
    words.finish("FROM")
    return Question(table, "advise", sources=sources)


_STATEMENTS: Final[Mapping[str, Callable[[Words], Statement]]] = {
    "CREATE": create,
    "ALTER": _alter,
    "OPTIMIZE": _optimize,
    "EXPLAIN": partial(_optimize, explain=True),
    "VACUUM": _vacuum,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "SELECT": _select,
    "ADVISE": _advise,
}
