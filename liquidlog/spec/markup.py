"""Values as one line, and as plain HTML tables that need no style sheet and no network.

Names that others chose are in them: everything is escaped.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any, Final

from liquidlog.spec.visible import visible

NOT_MEASURED: Final = "not measured"
"""What stands in place of a number that is None because it was not measured."""

_ROWS_SHOWN: Final = 20


def escaped(text: str) -> str:
    """Return `text` escaped for use as text or as an attribute of HTML or SVG."""
    return escape(visible(text))


class Summary:
    """Mixin: an object is shown by a few facts, on one line in a console, as tables in a notebook.

    Its `repr` is no constructor call: what makes the object up may be a million files.
    """

    __slots__ = ()

    def _facts(self) -> Mapping[str, object]:
        """Return the facts in order: texts, numbers, None, tuples of these; by default none."""
        return {}

    def _rows(self) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        """Return (headings, rows) of what the object consists of; nothing by default."""
        return (), ()

    def __repr__(self) -> str:
        """Return the class and the facts on one line, what is hidden in texts as escapes."""
        facts = (f"{name}={_spelled(value)}" for name, value in self._facts().items())
        return f"{type(self).__name__}({', '.join(facts)})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the facts, then the first rows."""
        headings, rows = self._rows()
        parts = [
            f"<p><b>{escaped(type(self).__name__)}</b></p>",
            html_table(("", ""), list(self._facts().items())),
            html_table(headings, rows[:_ROWS_SHOWN]) if rows else "",
        ]
        if len(rows) > _ROWS_SHOWN:
            parts.append(f"<p>and {len(rows) - _ROWS_SHOWN} more</p>")
        return f"<div>{''.join(parts)}</div>"


def html_document(
    value: Any,  # noqa: ANN401  any dataclass
    *,
    unmeasured: Collection[str] = (),
) -> str:
    """Return a dataclass as tables: its plain fields in one, each list of dataclasses in its own.

    A mapping becomes rows of a table, a sequence of texts becomes a list. The fields that are named
    in `unmeasured` are shown as not measured where they are None.
    """
    found = [
        (name, NOT_MEASURED if item is None and name in unmeasured else item)
        for name, item in ((field.name, getattr(value, field.name)) for field in fields(value))
    ]
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


def _spelled(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_spelled, value))}]"
    return repr(str(value)) if isinstance(value, str) else repr(value)


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
