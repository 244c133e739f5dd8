"""Nothing in the repository depends on where, or behind which mirror, it was made."""

import re
from importlib.metadata import version as installed_version

import liquidlog
import liquidspark
from liquidlog.version import ENGINE_INFO
from support.repository import ROOT, committed_files

MACHINE_PATHS = re.compile(rb"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)/")
INDEX_HOSTS = re.compile(
    rb"(?:files\.)?python" + rb"hosted\.org|\bpy" + rb"pi\.org|registry\.npm" + rb"js|"
    rb"crates\." + rb"io|repo1\.ma" + rb"ven|--(?:extra-)?index" + rb"-url|--find" + rb"-links",
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
