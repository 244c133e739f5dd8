"""Install each distribution into an empty environment, on every Python found, and use it there.

Called by `make dist` with the directory that holds a wheel and an sdist. Ends with status 1 if one
of them does not work; a Python that is not on this machine is named and left out.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
UV: Final = str(ROOT / "tools" / "uv")
PYTHONS: Final = ("3.11", "3.12", "3.13")

_IMPORTS: Final = """
import importlib.metadata, importlib.resources, sys
import liquidlog, liquidspark
assert "site-packages" in liquidlog.__file__, liquidlog.__file__
assert liquidlog.__version__ == importlib.metadata.version("liquidlog")
for package in (liquidlog, liquidspark):
    assert importlib.resources.files(package).joinpath("py.typed").is_file()
assert not {"pyspark", "deltalake"} & set(sys.modules)
try:
    liquidspark.execute
except liquidlog.LiquidlogError as error:
    assert "extra spark" in error.message, error.message
else:
    raise AssertionError("pyspark is not installed, and nothing says so")
"""

_ROWS: Final = """
import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.table({"day": [1, 2, 3], "amount": [0.5, 1.5, 2.5]}), "rows.parquet")
"""

_DETAIL: Final = """
import json, sys
detail = json.load(sys.stdin)
assert (detail["version"], detail["numFiles"], detail["numRecords"]) == (1, 1, 3), detail
assert detail["clusteringColumns"] == ["day"], detail
"""


def main(directory: str) -> int:
    """Try every distribution of a directory on every Python; return the exit status."""
    distributions = sorted(Path(directory).resolve().glob("liquidlog-*.[wt]*"))
    found = {name: python for name in PYTHONS if (python := _find(name))}
    missing = [name for name in PYTHONS if name not in found]
    if len(distributions) != 2 or not found:  # noqa: PLR2004  a wheel and an sdist
        sys.stdout.write(f"nothing to try: {distributions} on {sorted(found)}\n")
        return 1
    for name, python in found.items():
        for distribution in distributions:
            with tempfile.TemporaryDirectory() as place:
                _try(python, distribution, Path(place))
            sys.stdout.write(f"Python {name}: {distribution.name} installs and runs\n")
    if missing:
        sys.stdout.write(f"not on this machine, not tried: Python {', '.join(missing)}\n")
    return 0


def _find(version: str) -> str | None:
    """Return the interpreter of a version: on PATH, or installed by pyenv; None if there is none.

    What pyenv puts on PATH ends with an error unless the version is also chosen.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    installed = sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True)
    for candidate in (shutil.which(f"python{version}"), *map(str, installed)):
        if candidate and _runs([candidate, "-c", "pass"]):
            return candidate
    return None


def _runs(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _try(python: str, distribution: Path, place: Path) -> None:
    """Install into an empty environment and run the commands; raises if one fails."""
    environment = place / "environment"
    _run([UV, "venv", "--quiet", "--python", python, str(environment)], ROOT)
    programs = environment / "bin"
    install = [UV, "pip", "install", "--quiet", "--python", str(programs / "python")]
    lock = ["--constraints", "requirements.lock", "--build-constraints", "requirements.lock"]
    _run([*install, *lock, str(distribution)], ROOT)
    liquidlog, here = str(programs / "liquidlog"), [str(programs / "python"), "-c"]
    _run([*here, _IMPORTS], place)
    _run([*here, _ROWS], place)
    _run([liquidlog, "--version"], place)
    _run([liquidlog, "--help"], place)
    _run([liquidlog, "create", "t", "--schema-from", "rows.parquet", "--cluster-by", "day"], place)
    _run([liquidlog, "append", "t", "rows.parquet"], place)
    _run([*here, _DETAIL], place, said=_run([liquidlog, "detail", "t", "--json"], place))
    _run([liquidlog, "plan", "t", "--json"], place)
    _run([str(programs / "liquidspark"), "--help"], place)


def _run(command: Sequence[str], place: Path, *, said: str | None = None) -> str:
    """Run a command in a directory and return what it prints.

    Raises:
        SystemExit: If it fails; shows what it printed.
    """
    paths = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}  # of the environment that called us
    clean = {key: value for key, value in os.environ.items() if key not in paths}
    done = subprocess.run(
        command, cwd=place, env=clean, input=said, capture_output=True, text=True, check=False
    )
    if done.returncode:
        shown = " ".join(command)
        raise SystemExit(f"{shown}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
