"""Copies of recorded logs with all the files that they name, none of which has any data in it."""

import os
from pathlib import Path
from shutil import copytree
from typing import Final

from support.plain_log import PlainLog
from support.playground import DiskFiles

OLD_S: Final = 1_500_000_000
"""A time before that of every recorded table."""


def filled(source: Path, root: Path) -> Path:
    """Copy a log to a new directory, put the files there that it names, make all old; return it."""
    copytree(source, root)
    for name in PlainLog(DiskFiles(root)).named:
        if name.startswith(("/", "file:")) or "/../" in name:
            continue
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"filled")
    make_old(root)
    return root


def make_old(root: Path) -> None:
    """Let all that is below a directory be from before every recorded table."""
    for path in root.rglob("*"):
        os.utime(path, (OLD_S, OLD_S))
