"""No character that hides or acts gets through, and nothing else changes."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.spec.text import visible, visible_json, visible_lines

SIGNS = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
"""Of category Cf, but seen."""


def hides(character: str) -> bool:
    category = unicodedata.category(character)
    return category in {"Cc", "Cs", "Zl", "Zp"} or (
        category == "Cf" and ord(character) not in SIGNS
    )


def test_all_that_hides_is_made_visible_and_nothing_else() -> None:
    wrong = [
        hex(code)
        for code in range(0x110000)
        if (visible(chr(code)) != chr(code)) != hides(chr(code))
        and unicodedata.category(chr(code)) != "Cn"
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("\u202eabc\u2066", r"\u202eabc\u2066"),
        ("one\ntwo\r\t\0", r"one\ntwo\r\t\x00"),
        ("\x9b0m\x7f", r"\x9b0m\x7f"),
        ("\udc80 \U000e0041", r"\udc80 \U000e0041"),
        ("[red]é日本🎈[/red]", "[red]é日本🎈[/red]"),
    ],
)
def test_hidden_characters_are_shown_as_python_writes_them(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_lines_stay_and_what_follows_the_first_is_indented() -> None:
    assert visible_lines("one\nerror: \x1btwo") == "one\n  error: \\x1btwo"


@given(st.text(st.characters(exclude_categories=[])), st.booleans())
def test_a_visible_document_says_the_same(text: str, ascii_only: bool) -> None:  # noqa: FBT001
    document = json.dumps({"a": text}, indent=2, ensure_ascii=False)
    shown = visible_json(document, ascii_only=ascii_only)
    assert json.loads(shown) == json.loads(document) == {"a": text}
    assert not any(hides(character) for character in shown.replace("\n", ""))
    assert shown.isascii() or not ascii_only
