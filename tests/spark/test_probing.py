"""Workers without what a rewrite needs, by interpreters that real workers are started with."""

import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from liquidlog.errors import ExecutorError
from liquidlog.plan import ClusteringPlan, RewrittenGroup
from liquidspark import execute_groups
from support.plans import make_plan, schema_json_of, write_inputs
from support.spark_servers import interpreter, linked

pytestmark = pytest.mark.spark

ARROW = ("numpy", "pyarrow", "pandas", "pytz", "dateutil", "six", "tzdata", "python_dateutil")
OTHER_VERSION = """
import sys
from collections import namedtuple
names = "major minor micro releaselevel serial"
sys.version_info = namedtuple("version_info", names)(3, 9, 1, "final", 0)
"""


@pytest.fixture
def plan(tmp_path: Path) -> ClusteringPlan:
    table = pa.table({"row": pa.array(range(100), pa.int64())})
    inputs = write_inputs(tmp_path / "t", table, 2)
    return make_plan(
        tmp_path / "t", schema_json_of({"row": "long"}), [(inputs, 1)], columns=[("row",)]
    )


def other_version(directory: Path) -> Path:
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(OTHER_VERSION)
    return directory


def refusal(
    spark: SparkSession, plan: ClusteringPlan, python: str, monkeypatch: pytest.MonkeyPatch
) -> str:
    before = sorted(Path(plan.table_uri).iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(spark.sparkContext, "pythonExec", python)
        with pytest.raises(ExecutorError) as caught:
            list(execute_groups(spark, plan))
    assert sorted(Path(plan.table_uri).iterdir()) == before
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.sparks
def test_workers_that_lack_something_are_refused_before_any_work(
    spark: SparkSession, plan: ClusteringPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = interpreter(tmp_path / "bare", packages=None, options="-S -P")
    message = refusal(spark, plan, bare, monkeypatch)
    assert "the workers cannot import pyarrow" in message

    arrow = linked(tmp_path / "arrow", ARROW.__contains__)
    only_arrow = interpreter(tmp_path / "without us", packages=arrow, options="-S -P")
    message = refusal(spark, plan, only_arrow, monkeypatch)
    assert "No module named 'liquidspark'" in message
    assert "--archives or --py-files" in message

    older = interpreter(tmp_path / "older", packages=other_version(tmp_path / "v"), options="-P")
    message = refusal(spark, plan, older, monkeypatch)
    assert f"Python 3.9, expected 3.{sys.version_info.minor}" in message

    message = refusal(spark, plan, str(tmp_path / "none"), monkeypatch)
    assert f"the workers have no {tmp_path / 'none'}" in message


def test_a_probe_leaves_nothing_behind(spark: SparkSession, plan: ClusteringPlan) -> None:
    (group,) = execute_groups(spark, plan)
    assert isinstance(group, RewrittenGroup)
    inputs = {file.path for file in plan.groups[0].inputs}
    found = {path.name for path in Path(plan.table_uri).iterdir()}
    fate = f"_liquidspark-{group.run}-fate"
    assert found - inputs == {fate, *(output.path for output in group.outputs)}


def test_an_input_that_nobody_can_read_is_the_groups_failure(
    spark: SparkSession, plan: ClusteringPlan
) -> None:
    lost = plan.groups[0].inputs[0].path
    (Path(plan.table_uri) / lost).unlink()
    (outcome,) = execute_groups(spark, plan)
    assert lost in getattr(outcome, "reason", "")
