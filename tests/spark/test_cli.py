import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import liquidspark
from liquidlog.cli.main import cli, run
from liquidlog.errors import EXIT_ERROR, EXIT_OK
from liquidlog.plan import decode_result, encode_plan
from liquidspark.sending import partition_values
from support.plans import (
    make_plan,
    read_outputs,
    rows_of,
    save_plan_without_one_input,
    schema_json_of,
    write_inputs,
)

pytestmark = pytest.mark.spark

PYTHON = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


@pytest.fixture
def plan_path(tmp_path: Path) -> Path:
    return save_plan_without_one_input(tmp_path)


@pytest.mark.usefixtures("spark")
def test_run_appends_a_line_per_group_and_resumes(
    plan_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result_path = tmp_path / "result.jsonl"
    command = ["run", str(plan_path), "-o", str(result_path), "--executor", "spark"]
    assert run(cli, command) == EXIT_ERROR
    said = capsys.readouterr().err
    assert "group 1: " in said
    assert "gone.parquet" in said
    after_first = result_path.read_bytes()
    result = decode_result(after_first, where="test")
    assert {group.group_id for group in result.groups} == {0, 2}
    rows = [t for group in result.groups for t in read_outputs(tmp_path, group)]
    assert rows_of(rows) == rows_of([pa.table({"key": pa.array(range(200), pa.int64())})])

    (tmp_path / "gone.parquet").hardlink_to(tmp_path / "input 0.parquet")
    assert run(cli, command) == EXIT_OK
    resumed = result_path.read_bytes()
    assert resumed.startswith(after_first)
    assert [group.group_id for group in decode_result(resumed, where="test").groups][2:] == [1]

    assert run(cli, command) == EXIT_OK
    assert result_path.read_bytes() == resumed


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
