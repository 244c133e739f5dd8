"""The documents' commands and programs print what the pages show; links and anchors resolve."""

import ast
import re
from pathlib import Path

import pytest

import liquidlog.errors
from liquidlog.definition import create
from support import examples
from support.repository import ROOT, committed_files, load_script, modules, text

DOCUMENTS = [path for path in committed_files() if path.suffix == ".md"]
SITE = load_script("tools/docs_site.py")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", examples.pages(), ids=_name)
def test_blocks_print_what_the_page_shows(page: Path, template: Path, tmp_path: Path) -> None:
    examples.prepare(page, tmp_path, template)
    examples.run_page(page.read_text(encoding="utf-8"), tmp_path)


def test_every_mistake_is_refused_in_one_sentence() -> None:
    page = examples.MISTAKES.read_text(encoding="utf-8")
    said = re.findall(
        r"```console\n\$ liquidlog (.+?)\n(.*?)\n\[exit status (\d)\]", page, re.DOTALL
    )
    raised = re.findall(r"```pycon\n>>> .+?\n(.*?)\n```", page, re.DOTALL)
    assert len(said) >= 80
    assert len(raised) > 10
    # Only a schema that does not fit takes more than a line: it is shown, and the table's.
    wrong = [
        words
        for words, printed, status in said
        if status == "0"
        or not printed.removeprefix("…\n").startswith("error: ")
        or ("\n" in printed.removeprefix("…\n") and not words.startswith("append "))
    ]
    wrong += [text for text in raised if not re.match(r"\w+Error: ", text)]
    inside = r"Traceback|sqlglot|<class|object at 0x|KeyError|msgspec|Errno"
    assert [*wrong, *re.findall(inside, page)] == []


def test_a_block_that_prints_something_else_is_found(tmp_path: Path) -> None:
    page = "```console\n$ liquidlog detail none\nall is well\n```\n"
    with pytest.raises(AssertionError, match="exit status"):
        examples.run_page(page, tmp_path)


def test_what_is_printed_is_compared_by_line() -> None:
    for printed, shown, is_same in (
        ("version 1: 3 rows", "version 1: … rows", True),
        ("version 1: 3 rows", "version 2: … rows", False),
        ("a\nb\nc", "a\n …\nc", True),
        ("a\nb\nc", "a\nc", False),
        ("done in 1.234 s", "done in 9.876 s", True),
        ("a", "a\nb", False),
    ):
        assert examples.matches(printed, shown) is is_same


def test_no_block_is_passed_over_for_its_indent() -> None:
    indented = re.compile(r"^ +```(console|python)", re.MULTILINE)
    assert [_name(page) for page in DOCUMENTS if indented.search(text(_name(page)))] == []


def test_every_verb_and_error_is_in_the_reference() -> None:
    verbs = re.findall(r"^### (\S+)$", SITE.cli_reference(), re.MULTILINE)
    assert verbs == sorted(SITE.commands())
    assert len(verbs) > 20
    errors = re.findall(r"^\| `(\w+Error)`", SITE.error_reference(), re.MULTILINE)
    assert set(errors) == {name for name in vars(liquidlog.errors) if name.endswith("Error")}


def test_settable_properties_are_all_listed() -> None:
    table = text("docs/reference/properties.md").partition("## Properties that can be set")[2]
    listed = re.findall(r"^\| `((?:delta|liquidlog)\.\S+)` \|", table, re.MULTILINE)
    assert sorted(listed) == sorted(create._SETTABLE)


def test_every_step_of_the_walk_is_there() -> None:
    walk = text("docs/follow-a-plan.md")
    rows = re.findall(r"^\| `(\S+\.py)` \| (`[^|]+`) \|", walk, re.MULTILINE)
    steps = [(module, name) for module, names in rows for name in re.findall(r"`([\w.]+)`", names)]
    assert [step for step in steps if not _is_in(*step)] == []
    assert len(steps) > 30


def _is_in(module: str, name: str) -> bool:
    body: list[ast.stmt] = ast.parse(text(module)).body if (ROOT / module).is_file() else []
    for part in name.split("."):
        definitions = [n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        found = [node for node in definitions if node.name == part]
        if not found:
            return False
        body = found[0].body
    return True


# README, ARCHITECTURE and the fixtures' catalogue say what is there, and their links resolve.


ROOTS = (ROOT, ROOT / "liquidlog")
PATH = re.compile(r"(?<![\w/.])(?:tests|benchmarks|tools|demo|fixtures|docs)/[\w/.-]*\w")
LINK_DOCUMENTS = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def test_links_and_paths_of_the_repository_exist() -> None:
    missing = []
    for document in DOCUMENTS:
        page = document.read_text(encoding="utf-8")
        targets = [document.parent / target for target, _ in LINK_DOCUMENTS.findall(page)]
        targets += [ROOT / path for path in PATH.findall(page)]
        missing += [(_name(document), target) for target in targets if not target.exists()]
    assert missing == []


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
