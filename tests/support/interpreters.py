"""Interpreters of workers that see some packages and not others, and archives of them."""

import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from support.repository import ROOT

PRODUCT = ("liquidlog", "liquidspark")


def interpreter(path: Path, *, packages: Path | str | None, options: str) -> str:
    """Write a Python that sees the standard library, Spark's own packages, and those of a path."""
    path.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{packages or ""}:$PYTHONPATH"\n'
        f'exec "{getattr(sys, "_base_executable", sys.executable)}" {options} "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


def linked(directory: Path, wanted: Callable[[str], bool]) -> Path:
    """Make a directory of the installed packages whose names are wanted, and nothing else."""
    directory.mkdir()
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if wanted(installed.name.split("-")[0].split(".")[0]):
            (directory / installed.name).symlink_to(installed)
    return directory


def without_us(directory: Path) -> str:
    """Write a Python that has all that is installed, but not this project."""
    directory.mkdir()
    packages = linked(
        directory / "packages", lambda name: not name.strip("_").startswith((*PRODUCT, "editable"))
    )
    return interpreter(directory / "python", packages=packages, options="-S -P")


def zipped(path: Path) -> str:
    """Write the project's packages as a file for --py-files."""
    with zipfile.ZipFile(path, "w") as archive:
        for package in PRODUCT:
            for module in sorted((ROOT / package).rglob("*.py")):
                archive.write(module, module.relative_to(ROOT))
    return str(path)


def packed(path: Path, others: Path) -> str:
    """Write an environment as venv-pack does: bin/python, and packages wherever it is unpacked.

    What is not the project's is where `others` is, so that the archive is small.
    """
    python = path.with_suffix(".python")
    here = '$(cd "$(dirname "$0")/.." && pwd)'
    interpreter(python, packages=f"{here}/lib:{others}", options="-S -P")
    with tarfile.open(path, "w:gz") as archive:
        archive.add(python, "bin/python")
        for package in PRODUCT:
            archive.add(ROOT / package, f"lib/{package}")
    return str(path)
