"""Runs of an executor over one group: which files are theirs, and whether they have ended.

Every file of a run has the run's token in its name. A marker lies in the table for as long as the
run may finish files; it goes before the run's result is given to anybody. So files of a run whose
marker is there have never been committed, and a run that loses its marker can finish no more.
"""

import re
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from liquidlog.errors import LiquidlogError
from liquidlog.storage.files import delete_files, file_facts, names_with_prefix, touch
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

_MARKER_PREFIX: Final = "_liquidspark-"
"""Hidden from everything that lists data files."""

_TOKEN: Final = re.compile(r"[0-9a-f]{12}")


def begin_run(directory: str, token: str, storage: StorageOptions = NO_OPTIONS) -> None:
    """Allow tasks to finish files whose names have the token, until `end_run`.

    Args:
        directory: The table.
        token: 12 hexadecimal digits that no other run has.
        storage: Opens the table.

    Raises:
        StorageError: If the table cannot be written.
        UnsupportedFeatureError: If its storage is read only.
    """
    touch(run_marker(directory, token), storage)


def has_ended(directory: str, token: str, storage: StorageOptions = NO_OPTIONS) -> bool:
    """Return whether the run has ended, or was ended by somebody else.

    Raises:
        StorageError: If the storage cannot be asked.
    """
    return file_facts(run_marker(directory, token), storage) is None


def end_run(
    directory: str,
    token: str,
    *,
    keep: Collection[str] = (),
    storage: StorageOptions = NO_OPTIONS,
) -> None:
    """Delete every file that this run of a group wrote or will write, best-effort.

    Finds them by the token in their names, so that also files of lost task attempts go. The marker
    goes first: a file that is finished later deletes itself.

    Args:
        directory: The table.
        token: Of the run.
        keep: Names of the files that stay.
        storage: Opens the table.
    """
    delete_files([run_marker(directory, token)], storage)
    with suppress(LiquidlogError):
        written = files_of_run(directory, token, storage)
        delete_files((f"{directory}/{name}" for name in written if name not in keep), storage)


def unended_runs(directory: str, storage: StorageOptions = NO_OPTIONS) -> tuple[str, ...]:
    """Return the tokens of runs that have not ended: running, or dead.

    Raises:
        StorageError: If the storage cannot be asked.
    """
    names = names_with_prefix(directory, _MARKER_PREFIX, storage)
    tokens = (name.removeprefix(_MARKER_PREFIX) for name in names)
    return tuple(sorted(token for token in tokens if _TOKEN.fullmatch(token)))


def files_of_run(
    directory: str, token: str, storage: StorageOptions = NO_OPTIONS
) -> tuple[str, ...]:
    """Return the names of the files that a run has written so far, sorted.

    Raises:
        StorageError: If the storage cannot be asked.
    """
    return tuple(sorted(names_with_prefix(directory, name_prefix(token), storage)))


def run_marker(directory: str, token: str) -> str:
    """Return the address of a run's marker."""
    return f"{directory}/{_MARKER_PREFIX}{token}"


def name_prefix(token: str) -> str:
    """Return what the names of a run's files begin with.

    The token comes first: object stores list by prefix, and a table may hold a million files.
    """
    return f"part-{token[:8]}-{token[8:12]}-"
