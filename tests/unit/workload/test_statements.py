"""SQL statements, per table that they read."""

import pytest

from liquidlog.spec.schema import PrimitiveType, StructField, StructType
from liquidlog.workload.queries import KnownTable, Tables
from liquidlog.workload.sources import predicates, statements_asked
from liquidlog.workload.statements import NotAQueryError, parse_statements, table_reads


def _schema(*names: str) -> StructType:
    return StructType(tuple(StructField(name, PrimitiveType("long")) for name in names))


KNOWN = Tables((KnownTable("/w/t", _schema("a", "b")), KnownTable("/w/u", _schema("c", "d"))))


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
         [("/w/t", ("b = 1", "a = 2"))]),
        ("SELECT * FROM (SELECT * FROM t LIMIT 5) WHERE a = 2", [("/w/t", ())]),
        ("SELECT * FROM t WHERE a IN (SELECT c FROM u WHERE d = 1 AND u.c = t.a) AND b = 2",
         [("/w/t", ("b = 2",)), ("/w/u", ("d = 1",))]),
        ("SELECT a FROM t WHERE a = 1 UNION ALL SELECT a FROM t WHERE a = 2",
         [("/w/t", ("a = 1",)), ("/w/t", ("a = 2",))]),
        ("INSERT INTO u SELECT * FROM t WHERE a = 1", [("/w/t", ("a = 1",))]),
        ("DELETE FROM t WHERE t.a = 1", [("/w/t", ("a = 1",))]),
        ("UPDATE t SET b = 1 WHERE a = 1", [("/w/t", ("a = 1",))]),
        ("MERGE INTO t USING u ON t.a = u.c AND t.b > 3 WHEN MATCHED THEN DELETE",
         [("/w/t", ("b > 3",)), ("/w/u", ())]),
        ("SELECT * FROM t WHERE a = 1 OR b = 2", [("/w/t", ("a = 1 OR b = 2",))]),
        ("SELECT * FROM s WHERE x.y = 'it''s'", [("s", ("x.y = 'it''s'",))]),
    ],
)  # fmt: skip
def test_each_table_has_conditions(text: str, expected: list[tuple[str, tuple[str, ...]]]) -> None:
    assert _reads(text) == expected


_RECURSIVE = (
    "WITH RECURSIVE r AS (SELECT a FROM t WHERE a = 1 UNION ALL SELECT a + 1 FROM r WHERE a < 5)"
)
_FIRST = "SELECT a, b FROM t QUALIFY row_number() OVER (PARTITION BY a ORDER BY b) = 1"
WIDE = Tables(
    (
        KnownTable("/w/t", _schema("a", "b", "c")),
        KnownTable("/w/u", _schema("a", "b", "k")),
        KnownTable("/w/v", _schema("a", "d")),
    )
)


def _wide(text: str, dialect: str = "") -> dict[str, tuple[str, ...] | None]:
    """Return the conditions by table; of a table that is read twice, both; None if in doubt."""
    (statement,) = parse_statements(text, dialect)
    found: dict[str, tuple[str, ...] | None] = {}
    for one in table_reads(statement, WIDE, dialect):
        name = one.name.removeprefix("/w/")
        before = found.get(name) or ()
        found[name] = None if one.is_ambiguous else (*before, *one.conjuncts)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Queries with names, and the names of columns that they are given.
        ("WITH x AS (SELECT * FROM t WHERE a=1), y AS (SELECT * FROM x) SELECT * FROM y WHERE b=2",
         {"t": ("a = 1", "b = 2")}),
        ("WITH t AS (SELECT * FROM t WHERE a = 1) SELECT * FROM t WHERE b = 2",
         {"t": ("a = 1", "b = 2")}),
        ("WITH x(p, q) AS (SELECT a, b FROM t) SELECT * FROM x WHERE q = 2", {"t": ("b = 2",)}),
        ("SELECT * FROM (SELECT a, b FROM t) AS x(p, q) WHERE p = 1", {"t": ("a = 1",)}),
        ("SELECT * FROM t AS x(p, q, r) WHERE q = 1", {"t": ("b = 1",)}),
        ("SELECT b AS a, a AS b FROM t WHERE a = 1", {"t": ("a = 1",)}),
        ("SELECT * FROM (SELECT a + 1 AS x, x * 2 AS y FROM t) WHERE y = 4",
         {"t": ("((a + 1) * 2) = 4",)}),
        (_RECURSIVE + " SELECT * FROM r WHERE a = 3", {"t": ("a = 1",)}),
        # Set operations are by place.
        ("SELECT * FROM (SELECT a, b FROM t UNION ALL SELECT b, a FROM u) WHERE a = 5",
         {"t": ("a = 5",), "u": ("b = 5",)}),
        ("SELECT * FROM (SELECT * FROM t UNION ALL SELECT * FROM u) WHERE c = 3",
         {"t": ("c = 3",), "u": ("k = 3",)}),
        ("SELECT * FROM (SELECT * FROM z UNION ALL SELECT * FROM u) WHERE c = 3",
         {"z": ("c = 3",), "u": None}),
        ("SELECT * FROM (SELECT a FROM t EXCEPT SELECT k FROM u) WHERE a = 1",
         {"t": ("a = 1",), "u": ("k = 1",)}),
        ("SELECT * FROM (SELECT a FROM t UNION SELECT k FROM u LIMIT 5) WHERE a = 1",
         {"t": (), "u": ()}),
        # Groups and windows: a condition may leave out whole ones.
        ("SELECT a AS z, count(*) FROM t GROUP BY 1 HAVING z = 1 AND count(*) > 2",
         {"t": ("a = 1",)}),
        ("SELECT a, count(*) FROM t GROUP BY a WITH ROLLUP HAVING a = 1", {"t": ()}),
        ("SELECT * FROM (SELECT max(a) AS a FROM t) WHERE a = 1", {"t": ()}),
        ("SELECT * FROM (SELECT a, sum(b) OVER (PARTITION BY a) s FROM t) WHERE a = 1 AND s = 2",
         {"t": ("a = 1",)}),
        (f"SELECT * FROM ({_FIRST}) WHERE b = 3 AND a = 2", {"t": ("a = 2",)}),
        ("SELECT a FROM t QUALIFY rank() OVER (ORDER BY b) = 1 AND a = 2", {"t": ()}),
        # Joins.
        ("SELECT * FROM t JOIN u USING (a) WHERE a = 5", {"t": ("a = 5",), "u": ("a = 5",)}),
        ("SELECT * FROM t FULL JOIN u USING (a) WHERE a = 1 AND k IS NULL",
         {"t": ("a = 1",), "u": ("a = 1",)}),
        ("SELECT * FROM t NATURAL JOIN v WHERE a = 1 AND d = 4",
         {"t": ("a = 1",), "v": ("a = 1", "d = 4")}),
        ("SELECT * FROM t NATURAL JOIN z WHERE a = 1", {"t": None, "z": None}),
        ("SELECT * FROM t LEFT JOIN u ON t.a = u.a WHERE coalesce(k, 0) = 0", {"t": (), "u": ()}),
        ("SELECT * FROM t LEFT JOIN u ON t.a = u.a WHERE k = 3 OR k IS NULL", {"t": (), "u": ()}),
        ("SELECT * FROM t LEFT SEMI JOIN u ON t.a = u.a AND k = 2 AND c = 5",
         {"t": ("c = 5",), "u": ("k = 2",)}),
        ("SELECT * FROM t LEFT ANTI JOIN u ON t.a = u.a AND k = 2 AND c = 5 WHERE t.b = 1",
         {"t": ("b = 1",), "u": ("k = 2",)}),
        ("SELECT * FROM t LEFT JOIN (u JOIN v ON u.a = v.a AND k = 1) ON t.a = u.a AND d = 2",
         {"t": (), "u": ("k = 1",), "v": ("d = 2",)}),
        ("SELECT * FROM t, LATERAL (SELECT * FROM u WHERE u.a = t.a AND u.k = 5) WHERE t.c = 1",
         {"t": ("c = 1",), "u": ("k = 5",)}),
        ("SELECT * FROM t LATERAL VIEW explode(c) e AS x WHERE x = 5 AND b = 2",
         {"t": ("b = 2",)}),
        # Queries inside of conditions.
        ("SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE c = 5)", {"t": (), "u": ()}),
        ("SELECT * FROM t WHERE EXISTS (SELECT 1 FROM z WHERE c = 5)", {"t": (), "z": None}),
        ("SELECT * FROM t WHERE a NOT IN (SELECT a FROM u WHERE k = 1)",
         {"t": (), "u": ("k = 1",)}),
        ("SELECT (SELECT max(k) FROM u WHERE u.a = t.a AND u.b = 2) FROM t WHERE c = 1",
         {"t": ("c = 1",), "u": ("b = 2",)}),
        # What changes rows, or hides values.
        ("SELECT * FROM t PIVOT (sum(a) FOR b IN (1 AS c)) WHERE c = 5", {"t": None}),
        ("SELECT * FROM t TABLESAMPLE (10 PERCENT) WHERE a = 5", {"t": ()}),
        ("SELECT * FROM t WHERE a = $1 AND b = 2", {"t": None}),
        ("SELECT * FROM t WHERE a = :x", {"t": None}),
        ("SELECT * FROM (SELECT rand() AS x, f(a) AS y, b FROM t) WHERE x < 1 AND y = 2 AND b = 1",
         {"t": ("b = 1",)}),
        # Changes.
        ("DELETE FROM t WHERE a IN (SELECT a FROM u WHERE k = 1) AND b = 2",
         {"t": ("b = 2",), "u": ("k = 1",)}),
        ("UPDATE t SET b = (SELECT max(k) FROM u WHERE u.a = t.a AND u.b = 1) WHERE c = 3",
         {"t": ("c = 3",), "u": ("b = 1",)}),
        ("MERGE INTO t USING u ON t.a = u.a AND t.b = 5 AND k = 6 WHEN MATCHED THEN DELETE",
         {"t": ("b = 5",), "u": ("k = 6",)}),
        ("MERGE INTO t USING u ON t.a = u.a AND t.b = 5 AND k = 6 WHEN NOT MATCHED THEN INSERT *",
         {"t": ("b = 5",), "u": ()}),
        ("MERGE INTO t USING u ON t.a=u.a AND t.b=5 AND k=6 WHEN NOT MATCHED BY SOURCE THEN DELETE",
         {"t": (), "u": ("k = 6",)}),
    ],
)  # fmt: skip
def test_what_is_proved_is_asked(text: str, expected: dict[str, tuple[str, ...] | None]) -> None:
    assert _wide(text) == expected


@pytest.mark.parametrize(
    ("text", "dialect", "expected"),
    [
        ("SELECT b + 1 AS q FROM z WHERE q = 5", "duckdb", {"z": None}),
        ("SELECT b + 1 AS q FROM z WHERE q = 5", "trino", {"z": ("q = 5",)}),
        ("SELECT * FROM (SELECT * REPLACE (a + 1 AS a) FROM t) WHERE a = 1 AND b = 2", "duckdb",
         {"t": ("(a + 1) = 1", "b = 2")}),
        ("SELECT * FROM (FROM t UNION ALL BY NAME SELECT b, a FROM u) WHERE a = 1", "duckdb",
         {"t": ("a = 1",), "u": ("a = 1",)}),
        ("SELECT * FROM t SEMI JOIN u USING (a) WHERE a = 1", "duckdb",
         {"t": ("a = 1",), "u": ("a = 1",)}),
        ("SELECT * FROM t ASOF JOIN u ON t.a = u.a AND t.b >= u.b WHERE k = 1 AND c = 2", "duckdb",
         {"t": ("c = 2",), "u": ()}),
        ("SELECT * FROM t POSITIONAL JOIN u WHERE c = 1", "duckdb", {"t": (), "u": ()}),
        ("SELECT * FROM (SELECT DISTINCT ON (a) * FROM t) WHERE a = 1", "duckdb", {"t": ()}),
        ("SELECT * FROM (SELECT COLUMNS('a|b') FROM t) WHERE a = 1", "duckdb", {"t": None}),
        ("SELECT * FROM t CROSS JOIN UNNEST(c) AS x(y) WHERE y = 5 AND b = 1", "trino",
         {"t": ("b = 1",)}),
        ("SELECT * FROM t WHERE a = ?", "trino", {"t": None}),
    ],
)  # fmt: skip
def test_each_dialect_has_its_own_rules(
    text: str, dialect: str, expected: dict[str, tuple[str, ...] | None]
) -> None:
    assert _wide(text, dialect) == expected


@pytest.mark.parametrize(
    "text", ["SELECT 1", "DROP TABLE t", "SET x = 1", "CREATE VIEW v AS SELECT * FROM t"]
)
def test_statement_that_reads_no_table_says_so(text: str) -> None:
    with pytest.raises(NotAQueryError):
        _reads(text)


def test_queries_nested_too_deeply_say_so() -> None:
    text = "SELECT * FROM t"
    for _ in range(60):
        text = f"SELECT * FROM ({text})"
    with pytest.raises(NotAQueryError, match="deep"):
        _reads(text)


# MERGE names columns of two tables: which are the target's.


SCHEMA = StructType(
    (StructField("id", PrimitiveType("long")), StructField("d", PrimitiveType("date")))
)


def test_log_of_a_merge_has_the_targets_condition() -> None:
    info = {
        "operation": "MERGE",
        "timestamp": 5,
        "operationParameters": {"predicate": '["((id#7L = id#3L) AND (d#8 > 2024-01-03))"]'},
    }
    (found,) = statements_asked(iter([info]), KnownTable("/t", SCHEMA))
    assert found.conjuncts == ("d > DATE '2024-01-03'",)  # type: ignore[union-attr]


def test_parameter_is_a_list_or_a_text() -> None:
    for found, expected in (
        ('["(a = 1)"]', ("(a = 1)",)),
        ("(a = 1)", ("(a = 1)",)),
        ("[]", ()),
        (None, ()),
        ("[x", ("[x",)),
    ):
        assert predicates(found) == expected
