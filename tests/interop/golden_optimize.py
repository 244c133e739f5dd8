"""Rewrite every recorded table of the reference engine, and let it judge what is there then.

LIQUID_REFERENCE_JARS=JARS python tests/interop/golden_optimize.py DIRECTORY [CASE ...]

DIRECTORY is as for golden_tables.py. The newest recorded version of each table is rewritten twice,
in small files and in files of the usual size. After both, our reader finds the rows that were
recorded; Delta Spark finds the rows, and where they have any the row ids and commit versions, that
it found before; and its own OPTIMIZE finds nothing to do. Exits with 1 at any difference.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from liquidlog.clustering.settings import MIN_FILE_BYTES
from liquidlog.errors import LiquidlogError
from liquidlog.plan import ClusteringPlan
from liquidlog.table import Table
from liquidspark.executor import execute

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script

from interop.golden_tables import Outcome, compare_rows, compare_with_engine, moved_clone
from support.repository import load_script

SMALL_FILES = 4


def rewrite_case(spark: SparkSession, case: Path) -> Iterator[tuple[str, Outcome]]:
    canon = load_script(case.parent / "canon.py")
    expected = json.loads((case / "expected.json").read_text())
    versions = expected.get("versions") or {}
    if not versions or not (case / expected["table"]).is_dir():
        return
    newest = versions[max(versions, key=int)]
    if "error" in newest:
        return
    with tempfile.TemporaryDirectory() as directory:
        if "clone" in case.name:
            uri = moved_clone(case.parent, case.name, Path(directory))
        else:
            uri = Path(copytree(case / expected["table"], Path(directory) / "table"))
        for path in uri.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        try:
            before = content_by_engine(spark, uri, canon)
        except PySparkException as error:
            yield (
                "read",
                ("tables that the engine does not read", " ".join(str(error).split())[:200]),
            )
            return
        yield from rewrite(spark, uri, newest, before, canon)


def rewrite(
    spark: SparkSession, uri: Path, recorded: Mapping[str, Any], before: Any, canon: Any
) -> Iterator[tuple[str, Outcome]]:
    try:
        table = Table.open(str(uri))
        sizes = table.files()["size_bytes"].to_pylist()
        small = max(MIN_FILE_BYTES, sum(sizes) // SMALL_FILES)
        for step, policy in (("small files", {"max_file_size": small}), ("usual files", {})):
            plan = planned(table, policy)
            if plan.groups:
                table.commit(plan, execute(spark, plan))
                yield step, compared(spark, uri, recorded, before, canon)
            else:
                yield step, ("nothing to rewrite", "")
    except LiquidlogError as error:
        yield "rewrite", ("tables refused", str(error))
        return
    yield "engine's OPTIMIZE", nothing_to_do(spark, uri)


def planned(table: Table, policy: Mapping[str, Any]) -> ClusteringPlan:
    """Plan to rewrite all; if all is clustered, after turning the clustering columns around."""
    columns = table.detail()["clusteringColumns"]
    plan = table.plan(full=bool(columns), **policy)
    if plan.groups or len(columns) < 2 or not policy:
        return plan
    table.cluster_by(columns[::-1])
    return table.plan(full=True, **policy)


def compared(
    spark: SparkSession, uri: Path, recorded: Mapping[str, Any], before: Any, canon: Any
) -> Outcome:
    now = Table.open(str(uri)).snapshot().version
    outcome, detail = compare_rows(uri, {**recorded, "version": now}, canon)
    if "DIFFER" in outcome:
        return "rewrites that DIFFER from the recorded rows", detail
    if content_by_engine(spark, uri, canon) != before:
        return "rewrites that DIFFER in the engine's rows or row ids", ""
    return "rewrites with the same rows and row ids", ""


def content_by_engine(spark: SparkSession, uri: Path, canon: Any) -> Any:
    """Return the hash of all rows as Delta Spark reads them, with row ids where it has them."""
    frame = spark.read.format("delta").load(str(uri))
    quoted = [(field, f"`{field.name.replace('`', '``')}`") for field in frame.schema.fields]
    columns = [
        f"to_json({name}) as {name}" if field.dataType.typeName() == "variant" else name
        for field, name in quoted
    ]
    if (
        Table.open(str(uri)).snapshot().metadata.configuration.get("delta.enableRowTracking")
        == "true"
    ):
        columns += ["_metadata.row_id as ` id`", "_metadata.row_commit_version as ` version`"]
    rows = frame.selectExpr(*columns).toArrow()
    found = canon.content(pa.table(rows))
    return found["content_hash"], found["row_count"]


def nothing_to_do(spark: SparkSession, uri: Path) -> Outcome:
    try:
        metrics = spark.sql(f"OPTIMIZE delta.`{uri}`").collect()[0].metrics
    except PySparkException as error:
        return "tables whose OPTIMIZE the engine refuses", str(error).splitlines()[0]
    changed = metrics.numFilesAdded, metrics.numFilesRemoved
    if changed != (0, 0):
        return "tables that DIFFER: the engine rewrites them again", f"files {changed}"
    return "tables in which the engine finds nothing to do", ""


if __name__ == "__main__":
    sys.exit(compare_with_engine(__doc__, rewrite_case))
