"""README, ARCHITECTURE and the fixtures' catalogue say what is there, and their links resolve."""

import re
from pathlib import Path

import pytest

from support.repository import ROOT, committed_files, modules, text

DOCUMENTS = [path for path in committed_files() if path.suffix == ".md"]
NAME = re.compile(r"`(\w+)`")
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(document: Path) -> None:
    targets = [target for target, _ in LINK.findall(document.read_text(encoding="utf-8"))]
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_code_map_names_every_module_once() -> None:
    rows = re.findall(r"^\| `(liquid[\w/]+)` \| (.+) \|$", text("ARCHITECTURE.md"), re.MULTILINE)
    mapped = [f"{package}/{name}.py" for package, row in rows for name in NAME.findall(row)]
    assert sorted(mapped) == sorted(modules())


def _named_files() -> list[str]:
    """Return the files that ARCHITECTURE names in its reading order and where to change what."""
    document = text("ARCHITECTURE.md")
    order = document.partition("Read in this order:")[2].partition("\n\n")[0]
    table = document.partition("| I want to … |")[2].partition("\n\n")[0]
    return re.findall(r"`([\w/]+\.py)`", order + table)


def test_files_to_read_and_to_change_exist() -> None:
    named = _named_files()
    assert len(named) > 10
    places = (ROOT, ROOT / "liquidlog")
    assert [name for name in named if not any((place / name).is_file() for place in places)] == []


@pytest.mark.parametrize(("name", "most"), [("ARCHITECTURE.md", 150), ("CONTRIBUTING.md", 60)])
def test_document_is_short(name: str, most: int) -> None:
    assert text(name).count("\n") <= most
