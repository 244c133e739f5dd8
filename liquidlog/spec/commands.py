"""Commands for a shell that change a table by a statement, ready to be pasted."""

import shlex
from collections.abc import Iterable, Mapping


def alter(uri: str, clause: str) -> str:
    """Return the command that runs ALTER TABLE with a clause; `uri` is the table's address."""
    place = uri.replace("`", "``")
    return f"liquidlog sql {shlex.quote(f'ALTER TABLE delta.`{place}` {clause}')}"


def set_properties(properties: Mapping[str, str]) -> str:
    """Return the clause that sets properties."""
    pairs = (f"{_text(name)} = {_text(value)}" for name, value in properties.items())
    return f"SET TBLPROPERTIES ({', '.join(pairs)})"


def unset_properties(names: Iterable[str]) -> str:
    """Return the clause that removes properties."""
    return f"UNSET TBLPROPERTIES ({', '.join(map(_text, names))})"


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
