"""kill -9 anywhere: the table opens, the operation happened once or not at all, and can be redone.

The victim is killed after a random number of function calls, so that every step between two
system calls is a place to die at.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from liquidlog.log.local_store import LocalTableStore
from liquidlog.log.named import named_files
from liquidlog.operations.rewrite import read_plan
from liquidlog.plan import encode_plan, encode_rewritten_group
from liquidlog.snapshot import decoded_paths
from liquidlog.table import Table
from support.arrow_executor import execute
from support.effort import effort
from support.forking import Run, killed_on_the_way
from support.writers import SCHEMA, rows

KILLS = effort(2, 67)
APPENDS = 4

Content = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def victim() -> Iterator[Run]:
    with killed_on_the_way() as run:
        yield run


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory with a small table, Parquet to append, and a plan with its result."""
    table = Table.create(str(tmp_path / "table"), schema=SCHEMA, cluster_by=["x", "s"])
    for number in range(APPENDS):
        table.append(rows(number))
    pq.write_table(rows(APPENDS), tmp_path / "new.parquet")
    plan = table.plan()
    (tmp_path / "plan.json").write_bytes(encode_plan(plan))
    lines = [encode_rewritten_group(group) for group in execute(plan).groups]
    (tmp_path / "result.jsonl").write_bytes(b"".join(lines))
    shutil.copytree(tmp_path / "table", tmp_path / "template")
    return tmp_path


def arguments(work: Path, operation: str) -> list[str]:
    table = str(work / "table")
    return {
        "append": ["append", table, str(work / "new.parquet")],
        "cluster-by": ["cluster-by", table, "s"],
        "commit": ["commit", str(work / "plan.json"), str(work / "result.jsonl")],
    }[operation]


def content(work: Path) -> Content:
    scanned = pa.RecordBatchReader.from_stream(DeltaTable(work / "table").scan()).read_all()
    return sorted(zip(*(scanned[name].to_pylist() for name in SCHEMA.names), strict=True))


def expected(appends: int) -> Content:
    table = pa.concat_tables([rows(number) for number in range(appends)])
    return sorted(tuple(row.values()) for row in table.to_pylist())


def has_happened(work: Path, operation: str) -> bool:
    table = Table.open(str(work / "table"))
    detail = table.detail()
    assert detail["version"] in {APPENDS, APPENDS + 1}
    done: bool = {
        "append": detail["numRecords"] == len(expected(APPENDS + 1)),
        "cluster-by": detail["clusteringColumns"] == ["s"],
        "commit": detail["numFiles"] == len(read_plan(str(work / "plan.json")).groups),
    }[operation]
    assert done == (detail["version"] == APPENDS + 1)
    return done


def assert_leftovers_are_listed(work: Path) -> None:
    """Delete what `orphans` lists: what is left is the log and the files that it names."""
    directory = work / "table"
    live = set(decoded_paths(Table.open(str(directory)).snapshot().files).to_pylist())
    Table.open(str(directory)).orphans(older_than="0s", finished=True, delete=True)
    others = {path.name for path in directory.iterdir()} - {"_delta_log"}
    assert named_files(LocalTableStore(directory), others) == others
    assert live <= others
    log = {path.name for path in (directory / "_delta_log").iterdir()}
    assert log == {f"{version:020d}.json" for version in range(len(log))}


def restore(work: Path) -> None:
    shutil.rmtree(work / "table")
    shutil.copytree(work / "template", work / "table")


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")
@pytest.mark.parametrize("operation", ["append", "cluster-by", "commit"])
def test_a_killed_operation_happened_once_or_not_at_all(
    operation: str, work: Path, victim: Run
) -> None:
    words = arguments(work, operation)
    whole = victim(words)
    assert (whole["killed"], whole["status"]) == (False, 0), whole
    assert has_happened(work, operation)
    draw = np.random.default_rng(len(operation))
    outcomes = []
    for _ in range(KILLS):
        restore(work)
        # The end, where the commit is put, is the more dangerous part.
        start = draw.choice([1, whole["calls"] * 9 // 10])
        answer = victim(words, int(draw.integers(start, whole["calls"])))
        assert answer["killed"] or answer["status"] == 0, answer
        done = has_happened(work, operation)
        outcomes.append(done)
        after = APPENDS + 1 if operation == "append" else APPENDS
        assert content(work) == expected(after if done else APPENDS)
        if not done or operation != "append":
            redone = victim(words)
            assert redone["status"] == 0, redone
        assert has_happened(work, operation)
        assert content(work) == expected(after)
        assert_leftovers_are_listed(work)
    sys.stdout.write(f"{operation}: landed {sum(outcomes)} of {KILLS} killed\n")
