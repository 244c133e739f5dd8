import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import liquidspark
from liquidlog.plan import decode_result, encode_plan
from liquidspark.sending import partition_values
from support.plans import (
    make_plan,
    schema_json_of,
    write_inputs,
)

pytestmark = pytest.mark.spark

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
