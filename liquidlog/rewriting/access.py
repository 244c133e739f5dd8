"""Access: whether this process can read and write a table, tried before any task begins.

The file that is created and deleted is the marker of a run that never writes; if it is left behind,
`orphans` finds it.
"""

from collections.abc import Mapping
from typing import Final
from uuid import uuid4  # noqa: TID251  names a probe, not a data file

from liquidlog.data.runs import Run
from liquidlog.errors import LiquidlogError
from liquidlog.storage.files import open_input
from liquidlog.storage.options import StorageOptions

CANNOT_READ: Final = "cannot read"
"""How a problem begins that is not one of writing."""


def new_token() -> str:
    """Return a token that names one probe."""
    return uuid4().hex[:12]


def storage_problem(
    *, directory: str, file: str, token: str, options: Mapping[str, str]
) -> str | None:
    """Return why this process cannot read or write a table, None if it can do both.

    The first bytes of `file` are read; `token` names a file that is created and deleted.
    """
    try:
        storage = StorageOptions.of(options)
        source = open_input(file, storage)
        with source:
            source.read(4)
    except FileNotFoundError:
        return f"{CANNOT_READ} {file}: it does not exist there"
    except (OSError, LiquidlogError) as error:
        return f"{CANNOT_READ} {file}: {_line(error)}"
    probe = Run(directory, token, storage)
    try:
        probe.begin()
    except LiquidlogError as error:
        return f"cannot create files in {directory}: {_line(error)}"
    try:
        probe.forget()
    except LiquidlogError as error:
        return f"cannot delete files in {directory}: {_line(error)}"
    return None


def _line(error: BaseException) -> str:
    return "; ".join(str(error).splitlines()) or type(error).__name__
