"""Decision records are numbered without gaps and all answer the same questions."""

import re
from pathlib import Path

import pytest

from support.repository import ROOT

RECORDS = sorted((ROOT / "docs" / "adr").glob("*.md"))
SECTIONS = [
    "Context",
    "Decision",
    "Alternatives",
    "Consequences",
    "How we would notice it is wrong",
]
MAX_LINES = 60


def test_numbers_run_from_one_without_gap_or_repetition() -> None:
    numbers = [int(record.name[:4]) for record in RECORDS]
    assert numbers == list(range(1, len(RECORDS) + 1))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_record_has_its_number_and_every_section(record: Path) -> None:
    content = record.read_text(encoding="utf-8")
    assert content.startswith(f"# {int(record.name[:4])}. ")
    assert re.findall(r"^## (.+)$", content, re.MULTILINE) == SECTIONS
    assert content.count("\n") <= MAX_LINES
