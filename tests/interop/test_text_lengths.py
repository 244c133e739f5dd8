"""Which texts char(n) and varchar(n) hold, anywhere in a column: as the reference decides."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError

from liquidlog.errors import SchemaMismatchError
from liquidlog.spec.arrow import arrow_schema
from liquidlog.table import Table

pytestmark = pytest.mark.reference

COLUMNS = {
    "v": "VARCHAR(3)",
    "c": "CHAR(3)",
    "s": "STRUCT<v: VARCHAR(3), c: CHAR(3), n: INT, t: STRING>",
    "l": "ARRAY<CHAR(3)>",
    "m": "MAP<CHAR(2), VARCHAR(3)>",
    "d": "ARRAY<STRUCT<m: MAP<STRING, ARRAY<CHAR(2)>>>>",
}
ROWS: list[tuple[str, str, Any]] = [
    ("v", "'abc'", "abc"),
    ("v", "'abc '", "abc "),
    ("v", "'é€𝄞x'", "é€𝄞x"),
    ("c", "'a'", "a"),
    ("c", "'    '", "    "),
    ("s", "named_struct('v','abc','c','a','n',1,'t','long')", {"v": "abc", "c": "a", "t": "long"}),
    ("s", "named_struct('v','abcd','c','a','n',1,'t','')", {"v": "abcd", "c": "a", "t": ""}),
    ("s", "named_struct('v','','c','abc ','n',1,'t','')", {"v": "", "c": "abc ", "t": ""}),
    ("l", "array('a', NULL, 'abc')", ["a", None, "abc"]),
    ("l", "array('a', 'abcd')", ["a", "abcd"]),
    ("m", "map('a', 'abc', 'a ', 'x')", [("a", "abc"), ("a ", "x")]),
    ("m", "map('abc', 'x')", [("abc", "x")]),
    ("m", "map('a', 'abcd')", [("a", "abcd")]),
    ("d", "array(named_struct('m', map('long', array('ab'))))", [{"m": [("long", ["ab"])]}]),
    ("d", "array(named_struct('m', map('k', array('abc'))))", [{"m": [("k", ["abc"])]}]),
]


def test_what_is_refused_is_refused_by_both(spark: Any, tmp_path: Path) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    uri = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE delta.`{uri}` ({columns}) USING delta")
    table = Table.open(uri)
    schema = arrow_schema(table.snapshot().schema)
    answers = []
    for name, literal, value in ROWS:
        kind = schema.field(name).type
        row = pa.table(
            [pa.array([value if field.name == name else None], field.type) for field in schema],
            schema=schema,
        )
        assert row[name].type == kind
        answers.append((_takes(spark, uri, name, literal), _appends(table, row)))
    assert [theirs for theirs, _ in answers] == [ours for _, ours in answers]
    assert {True, False} == {ours for _, ours in answers}


def _takes(spark: Any, uri: str, name: str, literal: str) -> bool:
    try:
        spark.sql(f"INSERT INTO delta.`{uri}` ({name}) VALUES ({literal})")
    except Py4JJavaError as error:
        assert "EXCEED_CHAR_VARCHAR" in str(error)  # noqa: PT017
        return False
    return True


def _appends(table: Table, row: pa.Table) -> bool:
    try:
        table.append(row)
    except SchemaMismatchError:
        return False
    return True
