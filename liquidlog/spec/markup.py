"""Values as plain HTML tables. Everything is escaped; no style sheet or network is needed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any

from liquidlog.spec.visible import visible


def escaped(text: str) -> str:
    """Return `text` escaped for use as text or as an attribute of HTML or SVG."""
    return escape(visible(text))


def html_document(value: Any) -> str:  # noqa: ANN401  any dataclass
    """Return a dataclass as tables: its plain fields in one, each list of dataclasses in its own.

    A mapping becomes rows of a table, a sequence of texts becomes a list.
    """
    found = [(field.name, getattr(value, field.name)) for field in fields(value)]
    plain = [(name, item) for name, item in found if not _is_nested(item)]
    parts = [html_table(("", ""), plain)]
    for name, item in found:
        if _is_nested(item) and item:
            parts.append(f"<p><b>{escaped(name)}</b></p>{_nested(item)}")
    return "<div>" + "".join(parts) + "</div>"


def html_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table with a heading row, unless all names are empty."""
    head = "".join(f"<th>{escaped(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escaped(_text(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if any(names) else ''}{body}</table>"


def _is_nested(item: Any) -> bool:  # noqa: ANN401
    return isinstance(item, Mapping) or (
        isinstance(item, tuple) and any(is_dataclass(x) or " " in str(x) for x in item)
    )


def _nested(item: Any) -> str:  # noqa: ANN401
    if isinstance(item, Mapping):
        return html_table(("", ""), ((key, count) for key, count in item.items() if count))
    if not is_dataclass(item[0]):
        return "<ul>" + "".join(f"<li>{escaped(str(line))}</li>" for line in item) + "</ul>"
    names = [
        field.name
        for field in fields(item[0])
        if not isinstance(getattr(item[0], field.name), tuple)
    ]
    return html_table(names, ([getattr(row, name) for name in names] for row in item))


def _text(cell: Any) -> str:  # noqa: ANN401
    if isinstance(cell, tuple):
        return ", ".join(map(str, cell))
    return "" if cell is None else str(cell)
