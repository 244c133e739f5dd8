"""The files of this repository, for tests that hold documents against the code."""

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def text(name: str) -> str:
    """Return the text of a file, named from the root."""
    return (ROOT / name).read_text(encoding="utf-8")


def committed_files() -> list[Path]:
    """Return what git tracks, and what it would take up; files deleted meanwhile left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def modules() -> set[str]:
    """Return every module of both packages as a path from the root, package markers left out."""
    return {
        str(path.relative_to(ROOT))
        for package in ("liquidlog", "liquidspark")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "__init__.py"
    }


def load_script(name: str | Path) -> ModuleType:
    """Return a script as a module, named from the root of the repository or in whole."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
