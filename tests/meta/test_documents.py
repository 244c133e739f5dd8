"""README, ARCHITECTURE and the fixtures' catalogue say what is there, and their links resolve."""

import ast
import re
from pathlib import Path

import pytest

from support.repository import ROOT, committed_files, modules, text

DOCUMENTS = [path for path in committed_files() if path.suffix == ".md"]
ROOTS = (ROOT, ROOT / "liquidlog")
PATH = re.compile(r"(?<![\w/.])(?:tests|benchmarks|tools|demo|fixtures|docs)/[\w/.-]*\w")
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(document: Path) -> None:
    targets = [target for target, _ in LINK.findall(document.read_text(encoding="utf-8"))]
    assert [target for target in targets if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_of_the_repository_exist(document: Path) -> None:
    named = PATH.findall(document.read_text(encoding="utf-8"))
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_paths_are_recognised_in_commands_and_tables() -> None:
    shown = "| `LONG=1 pytest tests/a/test_b.py tests/c` | `python tools/d.py DIR`, my/tests/e.py |"
    assert PATH.findall(shown) == ["tests/a/test_b.py", "tests/c", "tools/d.py"]


def test_every_package_says_what_its_modules_are_for() -> None:
    missing = [
        name
        for name in modules()
        if f"`{Path(name).stem}`" not in _docstring(ROOT / Path(name).parent / "__init__.py")
    ]
    assert missing == []


def _docstring(package: Path) -> str:
    return ast.get_docstring(ast.parse(package.read_text(encoding="utf-8"))) or ""


def test_architecture_names_files_that_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)`", text("ARCHITECTURE.md"))
    assert len(named) > 10
    missing = [name for name in named if not any((root / name).exists() for root in ROOTS)]
    assert missing == []


@pytest.mark.parametrize(("name", "most"), [("ARCHITECTURE.md", 150), ("CONTRIBUTING.md", 60)])
def test_document_is_short(name: str, most: int) -> None:
    assert text(name).count("\n") <= most
