"""SQL statements, per table that they read."""

import pytest

from liquidlog.spec.schema import PrimitiveType, StructField, StructType
from liquidlog.workload.statements import NotAQueryError, parse_statements, table_reads
from liquidlog.workload.tables import Tables, known_table


def _schema(*names: str) -> StructType:
    return StructType(tuple(StructField(name, PrimitiveType("long")) for name in names))


KNOWN = Tables((known_table("/w/t", _schema("a", "b")), known_table("/w/u", _schema("c", "d"))))


def _reads(text: str, tables: Tables = KNOWN) -> list[tuple[str, tuple[str, ...]]]:
    (statement,) = parse_statements(text)
    return [(one.name, one.conjuncts) for one in table_reads(statement, tables)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM t WHERE a = 1 AND b > 2", [("/w/t", ("a = 1", "b > 2"))]),
        ("SELECT * FROM cat.db.t x WHERE x.a = 1", [("/w/t", ("a = 1",))]),
        ("SELECT * FROM delta.`/w/t` WHERE a = 1", [("/w/t", ("a = 1",))]),
        ("SELECT * FROM delta_scan('/w/t') WHERE a = 1", [("/w/t", ("a = 1",))]),
        ("SELECT * FROM delta_scan('file:///w/t') x WHERE x.a = 1", [("/w/t", ("a = 1",))]),
        ("SELECT * FROM delta_scan('/w/t') WHERE delta_scan.a = 1", [("/w/t", ("a = 1",))]),
        ("SELECT * FROM read_parquet('/o/v') WHERE a = 1", [("/o/v", ("a = 1",))]),
        ("SELECT * FROM t, range(3) r WHERE t.a = 1", [("/w/t", ("a = 1",))]),
        ("SELECT * FROM t, u WHERE a = c AND a = 1 AND d = 2",
         [("/w/t", ("a = 1",)), ("/w/u", ("d = 2",))]),
        ("SELECT * FROM t JOIN u ON a = c AND d = 3 WHERE b BETWEEN 1 AND 2",
         [("/w/t", ("b >= 1", "b <= 2")), ("/w/u", ("d = 3",))]),
        ("SELECT * FROM t LEFT JOIN u ON a = c AND d = 3 AND b = 4 WHERE d IS NULL",
         [("/w/t", ()), ("/w/u", ("d = 3",))]),
        ("SELECT * FROM t RIGHT JOIN u ON a = c AND d = 3 AND b = 4",
         [("/w/t", ("b = 4",)), ("/w/u", ())]),
        ("SELECT * FROM t FULL JOIN u ON a = c AND d = 3 AND b = 4", [("/w/t", ()), ("/w/u", ())]),
        ("WITH x AS (SELECT a AS k, b FROM t WHERE b = 1) SELECT * FROM x WHERE k = 2 AND b < 9",
         [("/w/t", ("b = 1", "a = 2", "b < 9"))]),
        ("SELECT * FROM (SELECT a, count(*) n FROM t WHERE b = 1 GROUP BY a) WHERE n > 3 AND a = 2",
         [("/w/t", ("b = 1",))]),
        ("SELECT * FROM (SELECT * FROM t LIMIT 5) WHERE a = 2", [("/w/t", ())]),
        ("SELECT * FROM t WHERE a IN (SELECT c FROM u WHERE d = 1 AND u.c = t.a) AND b = 2",
         [("/w/t", ("b = 2",)), ("/w/u", ("d = 1",))]),
        ("SELECT a FROM t WHERE a = 1 UNION ALL SELECT a FROM t WHERE a = 2",
         [("/w/t", ("a = 1",)), ("/w/t", ("a = 2",))]),
        ("INSERT INTO u SELECT * FROM t WHERE a = 1", [("/w/t", ("a = 1",))]),
        ("CREATE TABLE z AS SELECT * FROM t WHERE a = 1", [("/w/t", ("a = 1",))]),
        ("DELETE FROM t WHERE t.a = 1", [("/w/t", ("a = 1",))]),
        ("UPDATE t SET b = 1 WHERE a = 1", [("/w/t", ("a = 1",))]),
        ("MERGE INTO t USING u ON t.a = u.c AND t.b > 3 WHEN MATCHED THEN DELETE",
         [("/w/t", ("b > 3",)), ("/w/u", ())]),
        ("SELECT * FROM t WHERE a = 1 OR b = 2", [("/w/t", ("a = 1 OR b = 2",))]),
        ("SELECT * FROM t WHERE a IS NOT NULL", [("/w/t", ("a IS NOT NULL",))]),
        ("SELECT * FROM s WHERE x.y = 'it''s'", [("s", ("x.y = 'it''s'",))]),
    ],
)  # fmt: skip
def test_each_table_has_its_own_conditions(
    text: str, expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    assert _reads(text) == expected


def test_column_that_may_be_of_either_table_is_of_none() -> None:
    assert _reads("SELECT * FROM x JOIN y ON x.k = y.k WHERE z = 1", Tables()) == [
        ("x", ()),
        ("y", ()),
    ]


@pytest.mark.parametrize("text", ["SELECT 1", "DROP TABLE t", "SET x = 1"])
def test_statement_that_reads_no_table_says_so(text: str) -> None:
    with pytest.raises(NotAQueryError):
        _reads(text)


def test_text_that_is_no_sql_says_so() -> None:
    with pytest.raises(NotAQueryError, match="is not SQL"):
        parse_statements("SELECT FROM WHERE )")


def test_queries_nested_too_deeply_say_so() -> None:
    text = "SELECT * FROM t"
    for _ in range(60):
        text = f"SELECT * FROM ({text})"
    with pytest.raises(NotAQueryError, match="deep"):
        _reads(text)


@pytest.mark.parametrize("called", ["range(10)", "unnest([1, 2])", "read_parquet(['/w/t'])"])
def test_what_functions_make_is_no_table(called: str) -> None:
    (statement,) = parse_statements(f"SELECT * FROM {called} WHERE a = 1", "duckdb")
    with pytest.raises(NotAQueryError, match="reads no table"):
        table_reads(statement, KNOWN)


def test_the_parser_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    (statement,) = parse_statements("execute immediate 'select 1'")
    with pytest.raises(NotAQueryError, match="another kind"):
        table_reads(statement, KNOWN)
    assert capsys.readouterr().err == ""
