"""Every fixture says where it comes from, and the catalogue is what the fixtures say."""

import re
import tomllib
from pathlib import Path

import pytest

from support.repository import ROOT, load_script, text

FIXTURES = ROOT / "fixtures"
KINDS = sorted(path for path in FIXTURES.iterdir() if path.is_dir() and path.name != "generate")


@pytest.mark.parametrize("kind", KINDS, ids=lambda path: path.name)
def test_kind_names_the_engine_that_wrote_it(kind: Path) -> None:
    provenance = tomllib.loads((kind / "PROVENANCE.toml").read_text(encoding="utf-8"))
    assert re.search(r"\d+\.\d+", provenance["source"]["engine"])
    assert provenance["source"]["made_by"]


def test_catalogue_is_what_the_fixtures_say() -> None:
    assert text("fixtures/README.md") == load_script("fixtures/generate/catalogue.py").catalogue()
