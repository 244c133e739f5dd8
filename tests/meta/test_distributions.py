"""What `make dist` builds: a source distribution that is enough to build the wheel from."""

import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path
from typing import Any

import pytest

from support.repository import ROOT, modules

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


def test_metadata_is_complete(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    metadata = message_from_string(wheel.read(name).decode())
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert "Typing :: Typed" in (metadata.get_all("Classifier") or ())
    assert any(name.endswith("/licenses/LICENSE") for name in wheel.namelist())


def test_commands_and_the_executor_are_entry_points(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("/entry_points.txt"))
    points = wheel.read(name).decode()
    assert "liquidlog = liquidlog.cli:main" in points
    assert "spark = liquidspark.cli:open_executor" in points
