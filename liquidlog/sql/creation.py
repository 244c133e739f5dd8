"""CREATE TABLE: its columns and clauses."""

from collections.abc import Callable, Mapping

from sqlglot import TokenType

from liquidlog.spec.schema import Path
from liquidlog.sql.columns import column_list, definitions
from liquidlog.sql.parts import NO_AUTO, properties, table_name
from liquidlog.sql.statements import CreateTable, CreateTableLike, TableName
from liquidlog.sql.words import Words


def create(words: Words) -> CreateTable | CreateTableLike:
    """Return the statement behind CREATE."""
    if words.sees("OR", "REPLACE"):
        words.fail("a table is not replaced here, since its rows would go; use IF NOT EXISTS")
    if words.sees("EXTERNAL") or words.sees("TEMPORARY"):
        words.fail("leave this word out: where the table is decides LOCATION or its path")
    words.expect("TABLE")
    if_not_exists = words.take("IF", "NOT", "EXISTS")
    table = table_name(words)
    if words.take("LIKE"):
        return _like(words, table, if_not_exists=if_not_exists)
    schema = definitions(words) if words.sees_kind(TokenType.L_PAREN) else None
    behind = words.token
    clauses = _Clauses(words)
    if words.sees("AS") or words.sees("SELECT"):
        words.fail("rows of a query cannot be written; create the table, then append to it")
    words.finish(*clauses.left())
    if schema is None:
        words.fail(
            "a new table needs columns; give them before this, as (day DATE, store STRING)",
            at=behind,
        )
    return CreateTable(
        table=table,
        schema=schema,
        cluster_by=clauses.cluster_by or (),
        properties=clauses.properties or {},
        description=clauses.comment,
        location=clauses.location,
        if_not_exists=if_not_exists,
    )


def _like(words: Words, table: TableName, *, if_not_exists: bool) -> CreateTableLike:
    like = table_name(words)
    behind = words.token
    clauses = _Clauses(words)
    words.finish(*clauses.left())
    if clauses.cluster_by is not None or clauses.comment is not None:
        words.fail("LIKE copies clustering columns and comment; leave them out", at=behind)
    return CreateTableLike(
        table=table,
        like=like,
        properties=clauses.properties or {},
        location=clauses.location,
        if_not_exists=if_not_exists,
    )


class _Clauses:
    """What follows the columns of a new table, in any order, each at most once."""

    def __init__(self, words: Words) -> None:
        self.cluster_by: tuple[Path, ...] | None = None
        self.properties: Mapping[str, str] | None = None
        self.comment: str | None = None
        self.location: str | None = None
        self._readers: dict[tuple[str, ...], Callable[[Words], None]] = {
            ("USING",): self._using,
            ("CLUSTER", "BY"): self._cluster_by,
            ("TBLPROPERTIES",): self._properties,
            ("COMMENT",): self._comment,
            ("LOCATION",): self._location,
        }
        while found := next((clause for clause in self._readers if words.sees(*clause)), None):
            words.take(*found)
            self._readers.pop(found)(words)
        if words.sees("PARTITIONED"):
            words.fail("partitioned tables are not created here; CLUSTER BY the columns instead")

    def left(self) -> tuple[str, ...]:
        """Return the clauses that were not given."""
        return tuple(" ".join(clause) for clause in self._readers)

    def _using(self, words: Words) -> None:
        if not words.take("DELTA"):
            words.refuse("DELTA")

    def _cluster_by(self, words: Words) -> None:
        if words.sees("AUTO"):
            words.fail(NO_AUTO)
        self.cluster_by = () if words.take("NONE") else column_list(words)

    def _properties(self, words: Words) -> None:
        self.properties = properties(words)

    def _comment(self, words: Words) -> None:
        self.comment = words.string("the comment in quotes")

    def _location(self, words: Words) -> None:
        self.location = words.string("the path in quotes")
