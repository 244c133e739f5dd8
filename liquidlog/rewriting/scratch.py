"""A directory for rows on their way, which ends with its process, or when the next one begins.

A locked file in it says that its process is alive; the kernel unlocks it if that is killed.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from liquidlog.errors import ExecutorError

_PREFIX: Final = "liquidlog-rows-"
_LOCK: Final = "in-use"


@contextmanager
def scratch_directory(parent: str | None = None) -> Iterator[str]:
    """Context manager: a new directory, deleted in the end; those of dead processes are, too.

    Args:
        parent: Where it is; by default, where `tempfile` makes directories, which TMPDIR names.
    """
    home = Path(parent or tempfile.gettempdir())
    try:
        home.mkdir(parents=True, exist_ok=True)
        _delete_dead(home)
        made = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=home, ignore_cleanup_errors=True)
    except OSError as error:
        raise ExecutorError(
            f"rows on their way cannot be kept in {home}: {error.strerror}; name another directory"
        ) from error
    with made as directory, _locked_new(Path(directory) / _LOCK):
        yield directory


@contextmanager
def _locked_new(path: Path) -> Iterator[None]:
    """Context manager: a file of this name, locked before it has the name."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        Path(file.name).rename(path)
        yield


def _delete_dead(parent: Path) -> None:
    """Delete the directories of processes that are dead, best-effort."""
    for directory in parent.glob(f"{_PREFIX}*"):
        try:
            with (directory / _LOCK).open("rb") as file:
                if os.fstat(file.fileno()).st_uid == os.getuid() and _is_free(file):
                    shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue  # it is new, or somebody else's, or gone meanwhile


def _is_free(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
