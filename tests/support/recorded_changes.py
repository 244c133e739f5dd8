"""Commits that an engine made on a copy of a table, to land on other copies whenever a test wants.

A commit names its files relative to the table, so it is what the engine would have committed there,
byte by byte, had it been as fast.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LOG = "_delta_log"


@dataclass(frozen=True)
class Recording:
    """A table, the copy in which an engine changed it, and the copy's versions after each step."""

    base: Path
    changed: Path
    versions: tuple[int, ...]

    @classmethod
    def of(cls, base: Path, directory: Path, steps: list[Callable[[str], Any]]) -> "Recording":
        """Copy a table and change the copy step by step; each gets its address."""
        changed = Path(shutil.copytree(base, directory))
        versions = [newest(changed)]
        for step in steps:
            step(str(changed))
            versions.append(newest(changed))
        return cls(base, changed, tuple(versions))

    def new_table(self, directory: Path) -> Path:
        """Return another copy of the table as it was."""
        return Path(shutil.copytree(self.base, directory))

    def land(self, step: int, table: Path) -> None:
        """Commit what the engine did in a step, counted from 0, to a table.

        Raises:
            FileExistsError: If one of the versions is taken.
        """
        for path in sorted(self.changed.rglob("*")):
            name = path.relative_to(self.changed)
            if path.is_file() and name.parts[0] != _LOG and not (table / name).exists():
                (table / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, table / name)
        for version in range(self.versions[step] + 1, self.versions[step + 1] + 1):
            commit = self.changed / _LOG / f"{version:020d}.json"
            os.link(commit, table / _LOG / commit.name)
            checksum = commit.with_suffix(".crc")
            if checksum.exists():
                shutil.copyfile(checksum, table / _LOG / checksum.name)


def newest(table: Path) -> int:
    """Return the newest version of a table on local disk."""
    names = (path.name for path in (table / _LOG).glob("*.json"))
    return max(int(name.removesuffix(".json")) for name in names if name[:20].isdigit())
