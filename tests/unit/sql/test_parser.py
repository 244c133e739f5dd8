"""Statements as text and as values; errors point at the word."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.errors import UsageError
from liquidlog.spec.schema import (
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    split_path,
)
from liquidlog.sql import (
    Alteration,
    Creation,
    Question,
    RewriteStatement,
    TableAt,
    TableNamed,
    Vacuum,
    parse_statement,
)

T = TableNamed(("t",))
AT = TableAt("/x y")
INT = PrimitiveType("integer")
TEXT = PrimitiveType("string")
ADDED = StructType(
    (
        StructField("a", INT, metadata={"comment": "x"}),
        StructField("b", TEXT, metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}),
    )
)


def altered(method: str, *names: str, table: Any = T, **arguments: Any) -> Alteration:
    return Alteration(table, method, arguments, "*", names)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ALTER TABLE t CLUSTER BY (a, `b c`.d)",
         altered("cluster_by", columns=("a", "`b c`.d"))),
        ("alter table delta.`/x y` cluster by none;",
         altered("cluster_by", table=AT, columns=None)),
        ("ALTER TABLE '/x y' CLUSTER BY (none)",
         altered("cluster_by", table=AT, columns=("none",))),
        ("ALTER TABLE t CLUSTER BY (values, `a`)",
         altered("cluster_by", columns=("values", "a"))),
        ("ALTER TABLE db.t RENAME COLUMN a.b TO `c d`",
         altered("rename_column", table=TableNamed(("db", "t")), old="a.b", new="`c d`")),
        ("ALTER TABLE t DROP COLUMN a", altered("drop_column", "a", if_exists=False)),
        ("ALTER TABLE t DROP COLUMNS IF EXISTS (a.b)",
         altered("drop_column", "a.b", if_exists=True)),
        ("ALTER TABLE t DROP COLUMNS (a, b.c)",
         altered("drop_column", "a", "b.c", if_exists=False)),
        ("ALTER TABLE t DROP COLUMN a, b", altered("drop_column", "a", "b", if_exists=False)),
        ("ALTER TABLE t ADD COLUMN s.f INT",
         altered("add_columns", schema=StructType((StructField("f", INT),)), into="s")),
        ("ALTER TABLE t ADD COLUMNS (a INT COMMENT 'x', b CHAR(3))",
         altered("add_columns", schema=ADDED, into=None)),
        ("ALTER TABLE t SET TBLPROPERTIES ('a.b' = 'c', d.e = 3, f = TRUE)",
         altered("set_properties", properties={"a.b": "c", "d.e": "3", "f": "true"})),
        ("ALTER TABLE t UNSET TBLPROPERTIES IF EXISTS ('a', b.c)",
         altered("set_properties", properties={}, unset=("a", "b.c"))),
        ("ALTER TABLE t DROP FEATURE clustering",
         altered("drop_feature", feature="clustering", truncate_history=False)),
        ("alter table t drop feature 'f' truncate history",
         altered("drop_feature", feature="f", truncate_history=True)),
        ("OPTIMIZE full FULL", RewriteStatement(table=TableNamed(("full",)), full=True)),
        ("OPTIMIZE t WHERE a IN (1, 2) AND b = ')' ZORDER BY (c, d.e)", RewriteStatement(
            table=T, where="a IN (1, 2) AND b = ')'", zorder_by=("c", "d.e"))),
        ("EXPLAIN OPTIMIZE t ZORDER BY a, b", RewriteStatement(
            table=T, zorder_by=("a", "b"), explain=True)),
        ("ALTER TABLE IF EXISTS t RECLUSTER FINAL WHERE a > 'x''y' -- why", RewriteStatement(
            table=T, recluster=True, final=True, where="a > 'x''y'", if_exists=True)),
        ("ALTER TABLE t RECLUSTER", RewriteStatement(table=T, recluster=True)),
        ("VACUUM t", Vacuum(table=T)),
        ("vacuum t full retain 24 hours dry run", Vacuum(table=T, retain_hours=24, dry_run=True)),
        ("DESCRIBE DETAIL delta.`/x y`", Question(AT, "detail")),
        ("/* a */ DESC HISTORY t LIMIT 3", Question(T, "history", 3)),
        ("SELECT * FROM CLUSTERING_INFORMATION('db', 't')",
         Question(TableNamed(("db", "t")), "health")),
        ("select * from clustering_information('delta.`/x y`')", Question(AT, "health")),
        ("select * from clustering_information('/x y')", Question(AT, "health")),
        ("ADVISE t FROM 'a.sql', 'b'", Question(T, "advise", sources=("a.sql", "b"))),
        ("CREATE TABLE t LIKE delta.`/x y` TBLPROPERTIES ()", Creation(
            table=T, like=AT, definition={"properties": {}})),
        ("CREATE TABLE IF NOT EXISTS t LIKE delta.`/x y` TBLPROPERTIES ('a'='b')", Creation(
            table=T, like=AT, definition={"properties": {"a": "b"}}, if_not_exists=True)),
    ],
)  # fmt: skip
def test_a_statement_is_its_value(text: str, value: Any) -> None:
    found = parse_statement(text)
    assert (replace(found, has="*") if isinstance(found, Alteration) else found) == value


def test_a_new_table_has_columns_of_every_type() -> None:
    found = parse_statement(
        "CREATE TABLE delta.`/t` (a BIGINT NOT NULL, b DECIMAL(10,2) COMMENT 'k', c MAP<STRING,"
        " ARRAY<STRUCT<x: INT, `y z`: DATE COMMENT 'q'>>>, d TIMESTAMP_NTZ, e VARIANT)"
        " CLUSTER BY (a) LOCATION '/l' USING DELTA COMMENT 'sales' TBLPROPERTIES ('p' = 'q')"
    )
    inner = StructType(
        (
            StructField("x", INT),
            StructField("y z", PrimitiveType("date"), metadata={"comment": "q"}),
        )
    )
    columns = (
        StructField("a", PrimitiveType("long"), nullable=False),
        StructField("b", DecimalType(10, 2), metadata={"comment": "k"}),
        StructField("c", MapType(PrimitiveType("string"), ArrayType(inner))),
        StructField("d", PrimitiveType("timestamp_ntz")),
        StructField("e", PrimitiveType("variant")),
    )
    assert found == Creation(
        table=TableAt("/t"),
        definition={
            "schema": StructType(columns),
            "cluster_by": ("a",),
            "properties": {"p": "q"},
            "description": "sales",
        },
        location="/l",
    )


def test_partition_columns_are_named_or_defined() -> None:
    fields = (StructField("a", INT), StructField("b c", INT))
    for text in ("(a INT, `b c` INT) PARTITIONED BY (`b c`)", "(a INT) PARTITIONED BY (`b c` INT)"):
        found = parse_statement(f"CREATE TABLE t {text}")
        assert isinstance(found, Creation)
        assert found.definition["schema"] == StructType(fields)
        assert found.definition["partition_by"] == ("`b c`",)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, "expected CREATE"),
        ("OPTIMISE t", 1, 1, "found OPTIMISE; did you mean OPTIMIZE?"),
        ("ALTER TABEL t", 1, 7, "expected TABLE, found TABEL; did you mean TABLE?"),
        ("ALTER TABLE t CLUSTR BY (a)", 1, 15, "did you mean CLUSTER or RECLUSTER?"),
        ("OPTIMIZE t\nFOO", 2, 1, "expected FULL, WHERE, ZORDER BY or the end"),
        ("OPTIMIZE", 1, 9, "expected a table"),
        ("OPTIMIZE ''", 1, 10, "the path of a table is empty"),
        ("OPTIMIZE t; OPTIMIZE u", 1, 13, "a second statement"),
        ("OPTIMIZE 't", 1, 10, "the quote ' that begins here is not closed"),
        ("OPTIMIZE t /* x", 1, 12, "the comment that begins here"),
        ("OPTIMIZE t WHERE", 1, 17, "found none"),
        ("OPTIMIZE t\n WHERE a = 1 AND\n b b c", 3, 6, "found c"),
        ("OPTIMIZE t WHERE SELECT 1", 1, 18, "expected a condition"),
        ("ALTER TABLE t", 1, 14, "expected CLUSTER BY"),
        ("ALTER TABLE t CLUSTER BY a", 1, 26, "or NONE, found a"),
        ("ALTER TABLE t\nCLUSTER BY (a, b", 2, 17, "expected , or )"),
        ("ALTER TABLE t CLUSTER BY AUTO", 1, 26, "AUTO is not supported"),
        ("ALTER TABLE IF EXISTS t CLUSTER BY NONE", 1, 13, "only RECLUSTER takes IF EXISTS"),
        ("ALTER TABLE t RECLUSTER WHERE a = 1 LIMIT 3", 1, 37, "LIMIT counts segments"),
        ("ALTER TABLE t ADD COLUMN a INT FIRST", 1, 32, "expected a column as NAME TYPE"),
        ("ALTER TABLE t ADD COLUMNS (a.b INT, c INT)", 1, 37, "each struct"),
        ("ALTER TABLE t SET TBLPROPERTIES ('a'='b', 'a'='c')", 1, 43, "two values"),
        ("ALTER TABLE t SET TBLPROPERTIES ('a'=b)", 1, 38, "value in quotes, found b"),
        ("CREATE TABLE <t> (a INT)", 1, 14, "found a placeholder"),
        ("CREATE TABLE t USING delta CLUSTER BY (a)", 1, 16, "a new table needs columns"),
        ("CREATE TABLE t (a INT, A INT)", 1, 24, "there are two columns A"),
        ("CREATE TABLE t (a ARRAY<VARCHAR(3)>)", 1, 19, "of a whole column, VARCHAR(20)"),
        ("CREATE TABLE t (a DECIMAL(39, 1))", 1, 19, "expected a type, as INT, DECIMAL(38, 2)"),
        ("CREATE TABLE t (a INT DEFAULT 3)", 1, 23, "DEFAULT cannot be defined here"),
        ("CREATE TABLE t (a INT) USING parquet", 1, 30, "expected DELTA"),
        ("CREATE TABLE t (a INT) PARTITIONED BY (b INT, a INT)", 1, 47, "two columns a"),
        ("CREATE TABLE t (a INT) PARTITIONED BY (days(a))", 1, 45, "a column's name"),
        ("CREATE TABLE t LIKE u PARTITIONED BY (a)", 1, 23, "LIKE copies"),
        ("CREATE TABLE t (a INT) AS SELECT 1", 1, 24, "rows of a query"),
        ("CREATE OR REPLACE TABLE t (a INT)", 1, 8, "delete the table's rows"),
        ("SELECT * FROM clustering_information('a b')", 1, 38, "in these quotes"),
        ("ALTER TABLE t SET TBLPROPERTIES ()", 1, 33, "expected properties, as ("),
        ("CREATE TABLE t (a INT) COMMENT 'x' COMMENT 'y'", 1, 36, "COMMENT is there twice"),
        ("CREATE TEMPORARY TABLE t (a INT)", 1, 8, "expected TABLE"),
        ("DESCRIBE HISTORY t LIMIT 0", 1, 26, "at least 1"),
        ("DESCRIBE t", 1, 10, "expected DETAIL or HISTORY"),
        ("VACUUM t RETAIN 0.5 HOURS", 1, 17, "a whole number of hours"),
        ("VACUUM t RETAIN 1 DAYS", 1, 19, "expected HOURS"),
        ("VACUUM t LITE", 1, 10, "LITE"),
        ("VACUUM t USING INVENTORY u", 1, 10, "INVENTORY"),
        ("VACUUM t DRY RUN RETAIN 1 HOURS", 1, 18, "the end of the statement"),
        ("MERGE INTO t", 1, 1, "change rows with an engine"),
    ],
)
def test_an_error_points_at_the_word(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_statement(text)
    assert (caught.value.arguments["line"], caught.value.arguments["column"]) == (line, column)
    assert caught.value.message.startswith(f"line {line}, column {column}: ")
    assert words in caught.value.message
    assert "\n" not in caught.value.message


def test_deep_types_are_refused() -> None:
    with pytest.raises(UsageError, match="nested"):
        parse_statement(f"CREATE TABLE t (a {'ARRAY<' * 5000}INT{'>' * 5000})")


def test_only_text_is_a_statement() -> None:
    with pytest.raises(UsageError, match="must be text, found bytes"):
        parse_statement(b"OPTIMIZE t")  # type: ignore[arg-type]


NAME = st.text(st.characters(exclude_characters="`", exclude_categories=["C"]), min_size=1)


@given(st.lists(NAME, min_size=1, max_size=3, unique_by=str.lower), NAME)
def test_quoted_names_are_kept(columns: list[str], path: str) -> None:
    listed = ", ".join(f"`{name}`" for name in columns)
    found = parse_statement(f"ALTER TABLE delta.`{path}` CLUSTER BY ({listed})")
    assert isinstance(found, Alteration)
    assert found.table == TableAt(path)
    assert [split_path(name) for name in found.arguments["columns"]] == [(one,) for one in columns]


@given(st.text(max_size=60))
def test_any_text_is_a_statement_or_a_usage_error(text: str) -> None:
    for statement in (text, f"OPTIMIZE t WHERE {text}", f"ALTER TABLE {text}"):
        try:
            parse_statement(statement)
        except UsageError as error:
            line, column = error.arguments["line"], error.arguments["column"]
            assert isinstance(line, int)
            assert isinstance(column, int)
            lines = statement.split("\n")
            assert 1 <= line <= len(lines)
            assert 1 <= column <= len(lines[line - 1]) + 1
