"""What consoles and notebooks show of tables, and of what is said of them."""

import json
import re
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog import Table
from liquidlog.spec.text import Rows, Summary, masked, visible, visible_json, visible_lines
from support.arrow_executor import execute

HOSTILE = "a\x1b[31m\u202e<script>alert(1)</script>\n'\""


@pytest.fixture
def shown(tmp_path: Path) -> list[Summary]:
    """Return one object of each class, all of a table whose column has a hostile name."""
    schema = pa.schema([pa.field("id", pa.int64()), pa.field(HOSTILE, pa.int64())])
    properties = {"delta.columnMapping.mode": "name"}
    place = tmp_path / "<b>orders"
    table = Table.create(place, schema=schema, cluster_by=["id"], properties=properties)
    for start in (0, 10):
        numbers = pa.array(range(start, start + 10))
        table.append(pa.table([numbers, numbers], schema=schema))
    plan = table.plan()
    result = execute(plan)
    asked = ["id = 3"]
    shown = [
        *(table, table.snapshot(), table.health(), table.judge(), table.doctor()),
        *(table.scan("id = 3"), table.advise(asked), table.predict(plan, asked), table.overview()),
        *(plan, result, table.commit(plan, result), table.vacuum(dry_run=True)),
    ]
    assert all(isinstance(one, Summary) for one in shown)
    return shown


def test_reprs_are_one_short_line_that_hides_nothing(shown: list[Summary]) -> None:
    for one in shown:
        line = repr(one)
        assert line.startswith(f"{type(one).__name__}(")
        assert line.isprintable()
        assert len(line) < 1000


def test_notebooks_get_escaped_tables(shown: list[Summary]) -> None:
    for one in shown:
        html = one._repr_html_()
        assert html.startswith("<div>")
        assert set(re.findall(r"<(\w+)", html)) <= {
            *("div", "p", "b", "table", "thead", "tr", "th", "td", "ul", "li")
        }
        assert "<b>orders" not in html
        assert "\x1b" not in html
        assert "\u202e" not in html


def test_rows_are_a_table_in_a_notebook() -> None:
    html = Rows([{"a": HOSTILE}, *({"b": number} for number in range(20))])._repr_html_()
    assert html.startswith("<div><table><thead><tr><th>a</th><th>b</th></tr></thead><tr><td>a")
    assert "<script" not in html
    assert "and 1 more" in html


# Credentials in text are masked wherever their form gives them away; all else stays.


SECRET = "Zm9v/YmFy+1234=="  # noqa: S105  nobody's


def test_credentials_are_masked_and_nothing_else() -> None:
    for text in (
        f"https://account.blob/c/t?sv=2024-01-01&sig={SECRET}&se=x",
        f"X-Amz-Signature={SECRET}",
        f"AccountName=a;AccountKey={SECRET};EndpointSuffix=x",
        f'{{"access_token": "{SECRET}", "expires_in": 5}}',
        f"Authorization: Bearer {SECRET}",
        f"aws_secret_access_key={SECRET}",
        f"postgresql://user:{SECRET.replace('/', '')}@host/db",
        "s3://AKIA0123456789:Zm9vYmFy@bucket/table",
        "abfss://user:Zm9vYmFy@account.dfs/table",
    ):
        shown = masked(text)
        assert "***" in shown
        assert not [part for part in ("Zm9v", "YmFy", "1234") if part in shown]
    for text in (
        "s3://bucket/sales/day=2026-01-31/part-0.parquet",
        "abfss://container@account.dfs.core.windows.net/table",
        "the design = 7 columns by a, b",
        "user@example.org wrote to gs://bucket/a@b",
    ):
        assert masked(text) == text


# No character that hides or acts gets through, and nothing else changes.


SIGNS = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
"""Of category Cf, but seen."""


def hides(character: str) -> bool:
    category = unicodedata.category(character)
    return category in {"Cc", "Cs", "Zl", "Zp"} or (
        category == "Cf" and ord(character) not in SIGNS
    )


def test_all_that_hides_is_made_visible_as_python_writes_it_and_nothing_else() -> None:
    every = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) != "Cn"]
    seen = "".join(one for one in every if not hides(one))
    assert visible(seen) == seen
    assert [hex(ord(one)) for one in every if hides(one) and visible(one) == one] == []
    assert visible("a\x1b[31mb\r\t\0\x9b0m") == r"a\x1b[31mb\r\t\x00\x9b0m"
    assert visible("\u202ea\udc80 \U000e0041") == r"\u202ea\udc80 \U000e0041"
    assert visible("[red]é日本🎈[/red]") == "[red]é日本🎈[/red]"
    assert visible_lines("one\nerror: \x1btwo") == "one\n  error: \\x1btwo"


@given(st.text(st.characters(exclude_categories=[])), st.booleans())
def test_a_visible_document_says_the_same(text: str, ascii_only: bool) -> None:  # noqa: FBT001
    document = json.dumps({"a": text}, indent=2, ensure_ascii=False)
    shown = visible_json(document, ascii_only=ascii_only)
    assert json.loads(shown) == json.loads(document) == {"a": text}
    assert not any(hides(character) for character in shown.replace("\n", ""))
    assert shown.isascii() or not ascii_only
