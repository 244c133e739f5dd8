"""The documents' programs and commands that need Spark do what the pages show."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support import examples
from support.repository import ROOT, text

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("template")
    examples.run_page(text("docs/tutorial.md"), home)
    return home


@pytest.mark.parametrize(
    "page", examples.spark_pages(), ids=lambda page: str(page.relative_to(ROOT))
)
def test_blocks_print_what_the_page_shows(
    page: Path, spark: SparkSession, template: Path, tmp_path: Path
) -> None:
    examples.prepare(page, tmp_path, template)
    assert examples.run_page(page.read_text(encoding="utf-8"), tmp_path, spark=spark) > 1
