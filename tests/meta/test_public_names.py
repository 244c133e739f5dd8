"""What a user imports is listed in `__all__`, is there, and is what documents import."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

import liquidlog
from support.repository import ROOT, committed_files

PUBLIC = (
    *("liquidlog", "liquidlog.errors", "liquidlog.plan", "liquidlog.table"),
    *("liquidspark", "liquidspark.tables"),
)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
DOCUMENTS = [
    path
    for path in committed_files()
    if path.suffix == ".md" and "adr" not in path.parts and "fixtures" not in path.parts
]


def _imports(document: Path) -> set[tuple[str, str]]:
    """Return (module, name) of every import of ours in the Python blocks of a document."""
    trees = [ast.parse(block) for block in BLOCK.findall(document.read_text(encoding="utf-8"))]
    return {
        (node.module, name.name)
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("liquid")
        for name in node.names
    }


@pytest.mark.parametrize("name", PUBLIC)
def test_public_modules_list_what_is_there(name: str) -> None:
    module = import_module(name)
    assert module.__all__
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    assert [each for each in module.__all__ if not hasattr(module, each)] == []


def test_documents_import_public_names_only() -> None:
    found = set[tuple[str, str]]().union(*map(_imports, DOCUMENTS))
    assert ("liquidlog", "Table") in found
    hidden = [
        (module, name)
        for module, name in found
        if module not in PUBLIC or name not in import_module(module).__all__
    ]
    assert hidden == []


@pytest.mark.parametrize("name", ["liquidlog", "liquidspark"])
def test_packages_show_their_public_names(name: str) -> None:
    module = import_module(name)
    assert dir(module) == sorted(module.__all__)
    assert "__version__" in dir(module)


def test_modules_say_which_modules_are_public() -> None:
    said = re.findall(r"`(liquid[\w.]+)`", liquidlog.__doc__ or "")
    assert sorted({*said, "liquidlog"}) == sorted(PUBLIC)


@pytest.mark.parametrize("package", ["liquidlog", "liquidspark"])
def test_packages_say_that_they_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
