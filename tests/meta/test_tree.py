"""Nothing in the repository depends on where, or behind which mirror, it was made."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import liquidlog
import liquidspark
from liquidlog.version import ENGINE_INFO
from support.repository import ROOT, committed_files, modules, text

MACHINE_PATHS = re.compile(rb"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)/")
INDEX_HOSTS = re.compile(
    rb"(?:files\.)?python" + rb"hosted\.org|\bpy" + rb"pi\.org|registry\.npm" + rb"js|"
    rb"crates\." + rb"io|repo1\.ma" + rb"ven|--(?:extra-)?index" + rb"-url|--find" + rb"-links"
)
MAX_FIXTURES_BYTES = 10 << 20


def _violations(pattern: re.Pattern[bytes]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {found[0].decode(errors='replace')}"
        for path in committed_files()
        for found in pattern.finditer(path.read_bytes())
        if path.suffix not in {".parquet", ".bin"}
    ]


def test_no_file_names_a_path_of_a_machine() -> None:
    assert _violations(MACHINE_PATHS) == []


def test_no_file_names_a_package_index() -> None:
    assert _violations(INDEX_HOSTS) == []


def test_repository_stays_small() -> None:
    fixtures = [path for path in committed_files() if path.is_relative_to(ROOT / "fixtures")]
    assert sum(path.stat().st_size for path in fixtures) <= MAX_FIXTURES_BYTES


def test_commits_name_the_version_of_the_distribution() -> None:
    assert f"liquidlog/{installed_version('liquidlog')}" == ENGINE_INFO
    assert liquidlog.__version__ == liquidspark.__version__ == installed_version("liquidlog")


# The lock answers every dependency that the project names, with hashes.


PROJECT = tomllib.loads(text("pyproject.toml"))
PINNED = re.compile(r"^([\w.-]+)==(\S+)((?:.*\\\n)*.*)$", re.MULTILINE)


def _named() -> Iterator[str]:
    yield from PROJECT["project"]["dependencies"]
    for extra in PROJECT["project"]["optional-dependencies"].values():
        yield from extra
    for group in ("test", "lint", "build", "docs"):
        yield from PROJECT["dependency-groups"][group]


def _locked(lock: str) -> dict[str, list[str]]:
    locked: dict[str, list[str]] = {}
    for name, version, _ in PINNED.findall(text(lock)):
        locked.setdefault(canonicalize_name(name), []).append(version)
    return locked


def test_lock_satisfies_what_the_project_names() -> None:
    locked = _locked("requirements.lock")
    named = [Requirement(requirement) for requirement in _named()]
    unanswered = {
        str(one)
        for one in named
        if not (versions := locked.get(canonicalize_name(one.name), []))
        or not all(one.specifier.contains(version) for version in versions)
    }
    assert unanswered == set()


@pytest.mark.parametrize("lock", ["requirements.lock", "tools/uv.txt", "tools/java.txt"])
def test_every_pin_has_a_hash(lock: str) -> None:
    pins = PINNED.findall(text(lock))
    assert pins
    assert [name for name, _, rest in pins if "--hash=sha256:" not in rest] == []


# What `make dist` builds: a source distribution that is enough to build the wheel from.


TEMPLATES = ROOT / "liquidlog" / "report" / "templates"


def _build(kind: str, source: Path, target: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (built,) = target.glob("liquidlog-*.[wt]*")
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Return the wheel, built from the source distribution alone."""
    place = tmp_path_factory.mktemp("distributions")
    with tarfile.open(_build("sdist", ROOT, place / "sdist")) as archive:
        # Python 3.11 has filters since 3.11.4.
        filtered: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(place, **filtered)  # noqa: S202  our own archive
    (source,) = place.glob("liquidlog-*")
    return zipfile.ZipFile(_build("wheel", source, place / "wheel"))


def test_wheel_holds_the_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert {name for name in names if not name.endswith("__init__.py")} == {
        *modules(),
        *(str(path.relative_to(ROOT)) for path in TEMPLATES.iterdir()),
        "liquidlog/py.typed",
        "liquidspark/py.typed",
    }


def test_commands_are_entry_points(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("/entry_points.txt"))
    points = wheel.read(name).decode()
    assert "liquidlog = liquidlog.cli:main" in points
