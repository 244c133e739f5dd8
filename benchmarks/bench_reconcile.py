"""What it costs that others delete rows while a rewrite runs, beside throwing the rewrite away.

TPC-H lineitem is rewritten once; then another writer's commit deletes rows of its inputs, and the
result is committed. Seconds and CPU seconds are those of the commit alone. Each case is committed
with deletion vectors, and with copies of the outputs that hold deleted rows. The first line is the
rewrite itself: what a conflict would throw away.

    python benchmarks/bench_reconcile.py --scale 1
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq
from bench_rewrite import (
    DEMO_COLUMNS,
    MIB,
    Stopwatch,
    fresh_table,
    generate,
    session_conf,
    write_log,
)

from liquidlog import Table
from liquidlog.data.reader import write_vector
from liquidlog.data.runs import Run, run_token
from liquidlog.plan import ClusteringPlan, RewriteResult
from liquidspark.executor import execute
from liquidspark.session import open_session

SHARE: Final = 0.5
"""Of the rows, at most so many may be deleted: one of four inputs is a quarter of them."""

SEED: Final = 1
CASES: Final = (1, 1_000, 100_000)
"""Rows deleted by deletion vectors, spread evenly over all inputs but one."""


def main() -> None:
    arguments = parse_arguments()
    arguments.home.mkdir(parents=True, exist_ok=True)
    generate(arguments.input, arguments.scale)
    root = fresh_table(arguments, "reconciled")
    write_log(root, DEMO_COLUMNS)
    allow_vectors(root)
    plan = Table.open(root).plan(max_file_size=arguments.max_file_mib * MIB)
    with open_session(session_conf(arguments)) as spark, Stopwatch() as watch:
        result = execute(spark, plan)
    seconds, cpu_seconds = watch.result()
    read_bytes = sum(group.inputs.size_bytes for group in plan.groups)
    print(
        f"rewrite: {seconds:.1f} s, {cpu_seconds:.1f} CPU s, {read_bytes / MIB:.0f} MiB read,"
        f" {sum(len(group.outputs) for group in result.groups)} files written"
    )
    for rows in CASES:
        for with_vectors in (True, False):
            copy = copied(root, arguments.home / "raced")
            delete_rows(copy, rows, with_vectors=with_vectors)
            show(f"{rows:,} rows deleted", copy, plan, result, with_vectors=with_vectors)
    for with_vectors in (True, False):
        copy = copied(root, arguments.home / "raced")
        remove_file(copy, with_vectors=with_vectors)
        show("one of four inputs removed", copy, plan, result, with_vectors=with_vectors)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench"))
    parser.add_argument("--scale", default="1")
    parser.add_argument("--max-file-mib", type=int, default=16)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="4g")
    arguments = parser.parse_args()
    arguments.input = arguments.home / f"input {arguments.scale}"
    return arguments


def allow_vectors(root: Path) -> None:
    """Add the feature of deletion vectors to version 0, so that inputs may have them."""
    path = root / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    protocol = actions[0]["protocol"]
    protocol["minReaderVersion"] = 3
    protocol["readerFeatures"] = ["deletionVectors"]
    protocol["writerFeatures"] = sorted([*protocol["writerFeatures"], "deletionVectors"])
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))


def copied(root: Path, target: Path) -> Path:
    """Return a copy of a table with a finished rewrite; data files are hard links."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for path in root.iterdir():
        if path.is_file() and path.suffix == ".parquet":
            (target / path.name).hardlink_to(path)
        elif path.is_file():
            shutil.copy(path, target)
    shutil.copytree(root / "_delta_log", target / "_delta_log")
    return target.resolve()


def delete_rows(root: Path, rows: int, *, with_vectors: bool) -> None:
    """Delete rows of all inputs but one, as DELETE with deletion vectors does."""
    random = np.random.default_rng(SEED)
    adds = live_adds(root)[1:][:rows]
    run = Run(str(root), run_token(str(root)))
    run.begin()
    actions: list[dict[str, Any]] = []
    for number, (add, count) in enumerate(zip(adds, shares(rows, len(adds)), strict=True)):
        physical = pq.read_metadata(root / add["path"]).num_rows
        positions = np.sort(random.choice(physical, count, replace=False)).astype(np.uint64)
        vector = write_vector(run, positions, unique_id=str(number))
        described = {
            "storageType": vector.storage_type,
            "pathOrInlineDv": vector.path_or_inline_dv,
            "offset": vector.offset,
            "sizeInBytes": vector.size_in_bytes,
            "cardinality": vector.cardinality,
        }
        stats = json.dumps({"numRecords": physical, "tightBounds": False})
        actions.append({"add": {**add, "deletionVector": described, "stats": stats}})
        actions.append(removed(add))
    run.forget(named=run.files())
    commit(root, actions, with_vectors=with_vectors)


def shares(rows: int, files: int) -> Sequence[int]:
    """Return how many rows are deleted of each file."""
    return [len(part) for part in np.array_split(np.arange(rows), files)]


def remove_file(root: Path, *, with_vectors: bool) -> None:
    """Remove an input, as a DELETE of all its rows does."""
    commit(root, [removed(live_adds(root)[0])], with_vectors=with_vectors)


def live_adds(root: Path) -> list[dict[str, Any]]:
    lines = (root / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    return [action["add"] for action in map(json.loads, lines) if "add" in action]


def removed(add: dict[str, Any]) -> dict[str, Any]:
    facts = {"path": add["path"], "partitionValues": {}, "size": add["size"]}
    return {"remove": {**facts, "deletionTimestamp": 1, "dataChange": True}}


def commit(root: Path, actions: list[dict[str, Any]], *, with_vectors: bool) -> None:
    """Put version 1, which also says whether the table uses deletion vectors."""
    lines = (root / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    (metadata,) = [action for action in map(json.loads, lines) if "metaData" in action]
    enabled = str(with_vectors).lower()
    metadata["metaData"]["configuration"] = {"delta.enableDeletionVectors": enabled}
    info = {"commitInfo": {"timestamp": 1, "operation": "DELETE", "operationParameters": {}}}
    content = "".join(json.dumps(action) + "\n" for action in [info, metadata, *actions])
    (root / "_delta_log" / f"{1:020d}.json").write_text(content)


def show(
    name: str, root: Path, plan: ClusteringPlan, result: RewriteResult, *, with_vectors: bool
) -> None:
    with Stopwatch() as watch:
        report = Table.open(root).commit(plan, result, max_reconciled_share=SHARE)
    report.require_success()
    seconds, cpu_seconds = watch.result()
    done = report.reconciled
    print(
        f"{name}, {'vectors' if with_vectors else 'copies'}: {seconds:.1f} s, {cpu_seconds:.1f}"
        f" CPU s, {done.bytes_read / MIB:.0f} MiB read, {done.rows:,} rows in {done.files} files"
    )


if __name__ == "__main__":
    main()
