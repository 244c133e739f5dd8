"""The page on a petabyte shows what the model computes."""

import re
import subprocess
import sys

import pytest

from support.repository import ROOT

PAGE = ROOT / "docs" / "scale.md"
BLOCK = re.compile(r"<!-- scale model: (?P<options>.*?) -->\n(?P<table>.*?)<!-- end -->", re.DOTALL)
BLOCKS = [match.groups() for match in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("options", "table"), BLOCKS, ids=[options for options, _ in BLOCKS])
def test_the_page_shows_what_the_model_computes(options: str, table: str) -> None:
    script = str(ROOT / "benchmarks" / "scale_model.py")
    command = [sys.executable, script, *options.split()]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    computed = printed.splitlines()
    shown = table.splitlines()
    assert shown
    # A page may leave lines out, but shows none that the model does not compute.
    assert set(shown) <= set(computed)
    assert shown[:2] == computed[:2]
    assert len(shown) > len(computed[:2])
