"""docs/mistakes.md says what is really said, and every message is one that helps."""

import re

import pytest

from support.mistakes import DOCUMENT, document

AT_LEAST = 80


@pytest.fixture(scope="module")
def written() -> str:
    return document()


def test_the_document_is_what_the_commands_say(written: str) -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == written, "write it anew: make mistakes"


def test_every_mistake_is_refused_in_one_sentence(written: str) -> None:
    blocks = re.findall(
        r"```console\n\$ (.+?)\n(.*?)\n\[exit status (\d)\]\n```", written, re.DOTALL
    )
    assert len(blocks) >= AT_LEAST
    assert [words for words, _, status in blocks if status == "0"] == []
    assert [words for words, said, _ in blocks if not said.startswith("error: ")] == []
    # Only a schema that does not fit takes more than a line: it is shown, and the table's.
    long = [words for words, said, _ in blocks if "\n" in said]
    assert [words for words in long if not words.startswith("liquidlog append ")] == []


def test_calls_from_python_raise(written: str) -> None:
    calls = re.findall(r"```pycon\n>>> (.+?)\n(.*?)\n```", written, re.DOTALL)
    assert len(calls) > 10
    assert [code for code, said in calls if not re.match(r"\w+Error: ", said)] == []


@pytest.mark.parametrize(
    "words", ["Traceback", "sqlglot", "<class", "object at 0x", "KeyError", "msgspec", "Errno"]
)
def test_nothing_of_the_inside_is_shown(words: str, written: str) -> None:
    assert words not in written
