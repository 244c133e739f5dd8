"""The documents' programs and commands that need Spark do what the pages show."""

import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from liquidlog import Table
from support import examples
from support.repository import ROOT

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "page", examples.spark_pages(), ids=lambda page: str(page.relative_to(ROOT))
)
def test_blocks_print_what_the_page_shows(
    page: Path, spark: SparkSession, template: Path, tmp_path: Path
) -> None:
    examples.prepare(page, tmp_path, template)
    assert examples.run_page(page.read_text(encoding="utf-8"), tmp_path, spark=spark) > 1


@pytest.mark.usefixtures("spark")
def test_the_program_of_the_page_rewrites_a_table(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ROOT / "docs" / "where-it-runs.md"
    examples.prepare(page, tmp_path, template)
    found = examples.blocks(page.read_text(encoding="utf-8"))
    (program,) = [block.code for block in found if "sys.argv[1]" in block.code]
    (table,) = [Table.open(log.parent) for log in tmp_path.rglob("_delta_log")]
    monkeypatch.setattr(sys, "argv", ["run.py", table.uri])
    before = table.snapshot().version
    exec(program, {})  # noqa: S102  our own example
    assert table.snapshot().version > before
