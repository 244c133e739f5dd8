"""The documents' programs and commands that need Spark do what the pages show."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import liquidspark
from liquidlog import Table
from liquidlog.plan import decode_result, encode_plan
from liquidspark.executor import partition_values
from support import examples
from support.plans import make_plan, schema_json_of, write_inputs
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


# Programs and commands beside the documents'.


PYTHON = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


def test_partition_values_land_where_spark_sends_them(spark: SparkSession) -> None:
    for partitions in (1, 2, 7, 60):
        rows = [*enumerate(partition_values(partitions))]
        frame = spark.createDataFrame(rows, "number int, target int")
        placed = frame.repartition(partitions, "target")
        homes = placed.selectExpr("number", "spark_partition_id() AS home").collect()
        assert {row.number: row.home for row in homes} == {n: n for n in range(partitions)}


def test_spark_submit_executes_a_plan_with_the_master_it_was_given(tmp_path: Path) -> None:
    table = pa.table({"key": pa.array(range(200), pa.int64())})
    inputs = write_inputs(tmp_path, table, 2)
    plan = make_plan(
        tmp_path, schema_json_of({"key": "long"}), [(tuple(inputs), 1)], columns=[("key",)]
    )
    (tmp_path / "plan.json").write_bytes(encode_plan(plan))
    submit = Path(sys.executable).parent / "spark-submit"
    program = Path(liquidspark.__path__[0]) / "__main__.py"
    options = ["--master", "local[1]", "--conf", "spark.eventLog.enabled=true"]
    options += ["--conf", f"spark.eventLog.dir=file:{tmp_path}", "--driver-memory", "1g"]
    options += ["--conf", "spark.eventLog.compress=false"]
    result = tmp_path / "result.jsonl"
    words = [submit, *options, program, "run", tmp_path / "plan.json", "-o", result]
    command = [str(word) for word in words]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | PYTHON, timeout=240
    )
    # spark-submit prints on stdout what the program says on stderr.
    assert "starting Spark" in done.stdout
    assert len(decode_result(result.read_bytes(), where="test").groups) == 1
    logged = "".join(
        path.read_text(errors="ignore") for path in tmp_path.rglob("events_*") if path.is_file()
    )
    assert '"spark.master":"local[1]"' in logged
