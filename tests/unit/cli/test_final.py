"""`optimize --final`: rounds while they lower the average depth, with an executor without Spark."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.cli import rewriting
from liquidlog.operations.optimize import depth_after_round
from liquidlog.plan import ClusteringPlan, RewrittenGroup
from liquidlog.table import Table
from support.arrow_executor import execute
from support.commands import Call
from support.table_rows import live_rows

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int64())])
POLICY = ["--strategy", "overlap", "--max-file-size", "8KiB", "--set", "min_cube_size=1MiB"]
BUDGET = ["--budget", "20KiB"]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    def rewrite(
        plan: ClusteringPlan, pending: Sequence[int], _: object
    ) -> Iterator[RewrittenGroup]:
        return (group for group in execute(plan).groups if group.group_id in set(pending))

    def opened(*_: object, **__: object) -> nullcontext[object]:
        return nullcontext(rewrite)

    monkeypatch.setattr(rewriting, "open_executor", opened)
    # Two heaps of files that overlap each other; the budget is for one of them.
    made = Table.create(str(tmp_path / "t"), schema=SCHEMA, cluster_by=["x"])
    for number in range(12):
        ids = np.arange(number, 12_000, 12)
        x = ids % 997 + 1_000 * (number % 2)
        made.append(pa.table([ids, x], schema=SCHEMA))
    return made


def test_rounds_go_on_while_the_depth_falls(table: Table, call: Call) -> None:
    before, rows = table.health().average_depth, ids(table)
    status, found, _ = call("optimize", table.uri, *POLICY, *BUDGET, "--set", "final=true")
    assert status == 0
    depths = [one["average_depth"] for one in found["rounds"]]
    assert len(depths) > 1
    falls = [old - new for old, new in zip([before, *depths], depths, strict=False)]
    assert min(falls[:-1]) >= 0.1
    assert found["average_depth"] == depths[-1] < before
    assert found["versions"] == [version for one in found["rounds"] for version in one["versions"]]
    assert ids(table) == rows
    plan = table.plan(
        strategy="overlap", max_file_size="8KiB", min_cube_size="1MiB", budget="20KiB"
    )
    assert min(falls) < 0.1 or depth_after_round(table.opened, plan, depths[-1]) is None
    assert table.health().average_depth == depths[-1]


def test_no_round_is_made_that_would_gain_too_little(table: Table, call: Call) -> None:
    status, found, _ = call(
        "optimize", table.uri, *POLICY, "--set", "final=true", "--set", "min_gain=100"
    )
    assert (status, found["rounds"], found["versions"]) == (0, [], [])
    assert table.snapshot().version == 12


@pytest.mark.parametrize(
    "words", [["--set", "final=true"], ["--strategy", "overlap", "--set", "min_gain=1"]]
)
def test_final_is_for_overlap_and_gains_for_final(
    table: Table, call: Call, words: list[str]
) -> None:
    assert call("optimize", table.uri, *words)[0] == 2


def ids(table: Table) -> list[int]:
    rows = live_rows(table.opened.store, table.snapshot())
    return sorted(rows["id"].to_pylist())
