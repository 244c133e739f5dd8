"""Compare what VACUUM would delete of every recorded table with Delta Spark and delta-rs.

LIQUID_REFERENCE_JARS=JARS python tests/interop/golden_vacuum.py DIRECTORY [CASE ...]

DIRECTORY is as for golden_tables.py. Each table is copied, made old, and given what a writer may
have left there; then all three are asked what they would delete, at the table's own retention and
at none. We may find fewer files than Delta Spark, for a reason that is named; never another one.
Exits with 1 at any other difference.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from liquidlog.errors import LiquidlogError, UnsupportedFeatureError
from liquidlog.spec.actions import is_data_name
from liquidlog.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script

from interop.golden_tables import Outcome, compare_with_engine
from support.copies import make_old

CHECK: Final = "spark.databricks.delta.retentionDurationCheck.enabled"

LISTING_TASKS: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"

LEFT: Final = {
    "part-left.parquet": "goes",
    "ab/part-left.parquet": "goes",
    "_change_data/cdc-left.parquet": "goes",
    "deletion_vector_00000000-0000-4000-8000-000000000000.bin": "goes",
    "notes.txt": "goes there only: no name of data",
    "_left/part-left.parquet": "stays",
    ".part-left.parquet.crc": "stays",
}
"""What is put into each table, and what becomes of it."""

EXPLAINED: Final = {
    # Its commits' own times lie in 2046, when its files were removed.
    "DIFFERS: fewer without a reason": {"16_in_commit_timestamps_enabled_later"},
    # Delta Spark passes over a damaged checkpoint.
    "DIFFERS: we fail": {"32_checkpoint_truncated", "32_checkpoint_zero_bytes"},
}


def compare_case(spark: SparkSession, case: Path) -> Iterator[tuple[str, Outcome]]:
    """Yield how answers about a copy of a table compare, by retention."""
    source = case / "table"
    if not (source / "_delta_log").is_dir():
        return
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory).resolve() / "table"
        copytree(source, root, symlinks=True)
        for name in LEFT:
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_bytes(b"left")
        make_old(root)
        for hours in (None, 0):
            outcome, detail = _compared(spark, root, hours)
            if case.name in EXPLAINED.get(outcome, ()):
                outcome = f"explained: {outcome.removeprefix('DIFFERS: ')}"
            yield ("at its retention" if hours is None else "at none"), (outcome, detail)


def _compared(spark: SparkSession, root: Path, hours: int | None) -> Outcome:
    there = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    refusal = ""
    try:
        theirs = their_files(spark, root, hours) & there
    except PySparkException as error:
        theirs = None
        refusal = str(error).splitlines()[0][:120]
    except Py4JJavaError as error:
        theirs = None
        refusal = f"it fails: {error.java_exception.getMessage()[:200]}"
    try:
        ours = our_files(root, hours)
    except UnsupportedFeatureError as error:
        return "we refuse to write the table", error.message
    except LiquidlogError as error:
        kind = "both refuse" if theirs is None else "DIFFERS: we fail"
        return kind, f"{type(error).__name__}: {error}"
    if theirs is None:
        return "Delta Spark refuses", refusal
    if not ours <= theirs:
        return "DIFFERS: we delete more", str(sorted(ours - theirs))
    fewer = theirs - ours
    unexplained = {name for name in fewer if is_data_name(name)}
    if unexplained:
        return "DIFFERS: fewer without a reason", str(sorted(unexplained))
    others = _delta_rs(root, hours)
    if others is not None and ours - others - {name for name in ours if "left" in name}:
        return "the same as Delta Spark; delta-rs fewer", str(sorted(ours - others))
    return "the same files, but names that are not of data", ""


def our_files(root: Path, hours: int | None) -> frozenset[str]:
    """Return the files that we would delete."""
    retain = None if hours is None else f"{hours}h"
    done = Table.open(root).vacuum(
        retain=retain, allow_short_retention=hours is not None, dry_run=True
    )
    return frozenset(file.path for file in done.files)


def their_files(spark: SparkSession, root: Path, hours: int | None) -> frozenset[str]:
    """Return the files and directories that Delta Spark would delete."""
    spark.conf.set(CHECK, "false")
    spark.conf.set(LISTING_TASKS, "2")
    retain = "" if hours is None else f" RETAIN {hours} HOURS"
    found: list[Any] = spark.sql(f"VACUUM delta.`{root}`{retain} DRY RUN").collect()
    # A name with a percent sign comes encoded, or as it is.
    paths = {spelled for row in found for spelled in (row.path, unquote(urlsplit(row.path).path))}
    return frozenset(path.removeprefix("file:").removeprefix(f"{root}/") for path in paths)


def _delta_rs(root: Path, hours: int | None) -> frozenset[str] | None:
    """Return the files that delta-rs would delete, None if it cannot open the table."""
    try:
        found = DeltaTable(root).vacuum(
            retention_hours=hours, enforce_retention_duration=False, dry_run=True, full=True
        )
    except Exception:  # noqa: BLE001  a second opinion only where there is one
        return None
    return frozenset(map(unquote, found))


if __name__ == "__main__":
    sys.exit(compare_with_engine(__doc__, compare_case))
