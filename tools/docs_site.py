"""A hook of MkDocs: pages from outside docs/, generated parts, and no asset of another host.

A page asks for a generated part with a comment, `<!-- generated: cli -->`. Links to documents of
the repository become links to their pages; links to other files of it become their names.
"""

import json
import os.path
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from liquidlog import errors
from liquidlog.cli.main import cli

ROOT: Final = Path(__file__).resolve().parents[1]
DOCS: Final = ROOT / "docs"

OUTSIDE: Final[Mapping[str, str]] = {
    # A document outside docs/: its page.
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/RESULTS.md": "results.md",
    "fixtures/README.md": "fixtures.md",
}
_ORIGINS: Final = {page: document for document, page in OUTSIDE.items()}

_LINK: Final = re.compile(r"\[([^\]]*)\]\((?!https?://|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
_FENCE: Final = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
_GENERATED: Final = re.compile(r"^<!-- generated: ([a-z]+) -->$", re.MULTILINE)
_REMOTE: Final = re.compile(
    r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""",
    re.IGNORECASE,
)
_HELP_WIDTH: Final = 90


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents from outside docs/, and the schemas of JSON documents."""
    for document, page in OUTSIDE.items():
        content = (ROOT / document).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=content))
    for schema in schemas():
        if not schema.is_relative_to(DOCS):
            content = schema.read_text(encoding="utf-8")
            files.append(File.generated(config, f"reference/json/{schema.name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page with its generated parts, and with links as the site has them."""
    del config, files  # MkDocs names its arguments
    return with_links(with_generated(markdown), page.file.src_uri)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that would load anything from another host.

    Raises:
        PluginError: If a page names such an asset.
    """
    site = Path(config.site_dir)
    found = [
        f"{page.relative_to(site)}: {asset}"
        for page in sorted(site.rglob("*.html"))
        for asset in remote_assets(page.read_text(encoding="utf-8"))
    ]
    if found:
        raise PluginError("assets from other hosts: " + "; ".join(found))


def remote_assets(html: str) -> list[str]:
    """Return the addresses on other hosts from which a page would load something."""
    return _REMOTE.findall(html)


def with_generated(markdown: str) -> str:
    """Return a page with every generated part that it asks for."""
    return _GENERATED.sub(lambda found: _PARTS[found[1]](), markdown)


def with_links(markdown: str, page: str) -> str:
    """Return a page's text with the links that it has on the site; code blocks stay.

    `page` is its place on the site. Links of a document from outside docs/ are read from where
    that document lies.
    """
    origin = _ORIGINS.get(page, f"docs/{page}")

    def moved(link: re.Match[str]) -> str:
        text, target, anchor = link.groups()
        meant = os.path.normpath(PurePosixPath(origin).parent / target)
        there = OUTSIDE.get(meant) or meant.removeprefix("docs/")
        if meant.startswith("docs/adr") and meant.endswith("adr"):
            there = "adr/0001-plan-and-result-are-documents.md"
        elif there == meant:
            return text if text.startswith("`") else f"{text} (`{meant}`)"
        return f"[{text}]({os.path.relpath(there, PurePosixPath(page).parent)}{anchor or ''})"

    parts = _FENCE.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(moved, part) for part in parts)


def schemas() -> list[Path]:
    """Return the JSON schemas of the documents that `--json` prints, by name."""
    found = [*DOCS.glob("reference/json/*.json"), *ROOT.glob("liquidlog/schemas/*.json")]
    return sorted(found, key=lambda path: path.name)


def commands() -> dict[str, click.Command]:
    """Return every verb by its name, in the order of the alphabet."""
    context = click.Context(cli, info_name="liquidlog")
    found = {name: cli.get_command(context, name) for name in sorted(cli.list_commands(context))}
    return {name: command for name, command in found.items() if command is not None}


def cli_reference() -> str:
    """Return what `--help` says of every verb, each under its own heading."""
    return "\n".join(
        f"### {name}\n\n```text\n{_help(name, command)}\n```\n"
        for name, command in commands().items()
    )


def error_reference() -> str:
    """Return a table of every error: class, code, exit status, what it means."""
    rows = [
        f"| `{error.__name__}` | `{error.code}` | {error.exit_status} | {_sentence(error)} |"
        for error in _family(errors.LiquidlogError)
    ]
    return "\n".join(["| class | code | exit status | meaning |", "|---|---|---:|---|", *rows])


def schema_reference() -> str:
    """Return for each JSON schema what it describes, and a table of its fields; "" without any."""
    head = "## Every document\n\nOne JSON schema per document describes all fields.\n"
    return "\n".join([head, *map(_schema, schemas())]) if schemas() else ""


def _schema(path: Path) -> str:
    document = json.loads(path.read_text(encoding="utf-8"))
    lines = [f"### {document.get('title', path.stem)}", "", document.get("description", ""), ""]
    fields = [
        f"| `{name}` | {_type(field)} | {field.get('description', '')} |"
        for name, field in document.get("properties", {}).items()
    ]
    if fields:
        lines += ["| field | type | meaning |", "|---|---|---|", *fields, ""]
    return "\n".join([*lines, f"[{path.name}](json/{path.name}) describes it in full.", ""])


def _type(field: Mapping[str, Any]) -> str:
    """Return the type of a field in words: `array of string`, `integer or null`."""
    parts = field.get("anyOf") or field.get("oneOf")
    if parts:
        return " or ".join(dict.fromkeys(_type(part) for part in parts))
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    kinds = field.get("type", "any")
    words = " or ".join([kinds] if isinstance(kinds, str) else kinds)
    items = field.get("items")
    return f"{words} of {_type(items)}" if words == "array" and isinstance(items, dict) else words


def _help(name: str, command: click.Command) -> str:
    parent = click.Context(cli, info_name="liquidlog")
    context = click.Context(command, parent=parent, info_name=name, max_content_width=_HELP_WIDTH)
    context.terminal_width = _HELP_WIDTH
    return command.get_help(context)


def _family(error: type[errors.LiquidlogError]) -> Iterator[type[errors.LiquidlogError]]:
    yield error
    for child in error.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from _family(child)


def _sentence(error: type[errors.LiquidlogError]) -> str:
    return (error.__doc__ or "").partition("\n")[0]


_PARTS: Final[Mapping[str, Callable[[], str]]] = {
    "cli": cli_reference,
    "errors": error_reference,
    "schemas": schema_reference,
}
