"""A run of upkeep looks at all tables, ranks what is worth it, spends the budget, and says why."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from liquidlog.commit.transaction import Clock, system_clock
from liquidlog.errors import StorageError
from liquidlog.fleet.policy import (
    Budget,
    CheckpointPolicy,
    RewritePolicy,
    RewriteWhen,
    UpkeepPolicy,
    VacuumPolicy,
)
from liquidlog.foresee.verdict import Bar
from liquidlog.operations.outputs import at_work
from liquidlog.operations.rewrite import read_plan
from liquidlog.plan import ClusteringPlan
from liquidlog.storage import local
from liquidlog.table import Table
from support.arrow_executor import execute
from support.lake import EAGER, by_name, copied, ragged, rows, somebody_at_work, ticked

OFTEN_READ = replace(
    EAGER, rewrite=RewritePolicy(when=RewriteWhen(commits=1), bar=Bar(queries_per_day=1e7))
)
"""So many readers that a rewrite pays back at once, however short the last one is ago."""


def files(table: Table) -> int:
    return int(table.snapshot().files.num_rows)


def values(table: Table) -> list[int]:
    read = pa.RecordBatchReader.from_stream(DeltaTable(table.uri).scan()).read_all()
    return sorted(read["x"].to_pylist())


def written(root: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


def test_a_table_is_rewritten_once(tmp_path: Path) -> None:
    table = ragged(tmp_path / "t")
    before, live = values(table), files(table)
    (done,) = ticked(EAGER, tmp_path / "t").tables
    assert (done.decision, done.triggers[0].name) == ("rewrite", "commits")
    assert files(table) < live
    assert values(table) == before
    assert done.versions
    assert done.version == table.snapshot().version == done.versions[-1]
    (again,) = ticked(EAGER, tmp_path / "t").tables
    assert (again.decision, again.versions, again.bytes_rewritten) == ("leave", (), 0)
    assert "the policy asks for no rewrite" in again.reason
    assert at_work(table.opened.store, table.opened.clock) == ()


def test_payback_alone_can_ask(tmp_path: Path) -> None:
    ragged(tmp_path / "t")

    def decided(days: float) -> tuple[str, list[str]]:
        policy = UpkeepPolicy(rewrite=RewritePolicy(when=RewriteWhen(payback_days=days)))
        (one,) = ticked(policy, tmp_path / "t", dry_run=True).tables
        return one.decision.value, [trigger.name for trigger in one.triggers]

    assert decided(30) == ("rewrite", ["payback_days"])
    assert decided(0.01) == ("leave", [])


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    table = ragged(tmp_path / "t")
    before = written(tmp_path)
    policy = replace(EAGER, checkpoint=CheckpointPolicy(commits=1), vacuum=VacuumPolicy(age_ms=0))
    (would,) = ticked(policy, tmp_path / "t", dry_run=True).tables
    assert would.decision == "rewrite"
    assert would.bytes_rewritten > 0
    assert would.checkpoint is not None
    assert would.checkpoint.done == {"version": table.snapshot().version, "created": True}
    assert would.vacuum is not None
    assert written(tmp_path) == before


def test_plans_are_saved_and_can_be_run(tmp_path: Path) -> None:
    table = ragged(tmp_path / "lake" / "t")
    where = str(tmp_path / "plans")
    (planned,) = ticked(EAGER, tmp_path / "lake" / "t", plans=where).tables
    assert planned.decision == "plan"
    assert planned.plan is not None
    assert Path(planned.plan).parent == Path(where)
    assert at_work(table.opened.store, table.opened.clock) == ()
    plan = read_plan(planned.plan)
    table.commit(plan, execute(plan))
    assert files(table) == 1


def test_the_budget_is_spent_from_the_top(tmp_path: Path) -> None:
    ragged(tmp_path / "small", files=4)
    ragged(tmp_path / "large", files=12)
    ragged(tmp_path / "middle", files=8)
    glob = tmp_path / "*"
    free = ticked(EAGER, glob, dry_run=True)
    bests = [one.verdict.best for one in free.tables if one.verdict is not None]
    paid = [best.payback_queries or 0 for best in bests if best is not None]
    assert len(paid) == 3
    assert paid == sorted(paid)
    first = free.tables[0]
    policy = replace(EAGER, budget=Budget(bytes=first.bytes_rewritten))
    run = ticked(policy, glob)
    assert [one.decision for one in run.tables] == ["rewrite", "postpone", "postpone"]
    assert run.tables[0].table == first.table
    assert run.spent_bytes == first.bytes_rewritten
    assert all("is spent" in one.reason for one in run.tables[1:])


def test_a_part_of_a_plan_is_done_if_the_budget_has_no_more(tmp_path: Path) -> None:
    table = ragged(tmp_path / "t", files=12, cluster_by=None)
    (whole,) = ticked(EAGER, tmp_path / "t", dry_run=True).tables
    budget = whole.bytes_rewritten - 1
    run = ticked(replace(EAGER, budget=Budget(bytes=budget)), tmp_path / "t")
    (part,) = run.tables
    assert run.spent_bytes <= budget
    if part.decision == "rewrite":
        assert 0 < part.bytes_rewritten <= budget
        assert "as the budget allows" in part.reason
    else:
        assert "fits into" in part.reason
        assert files(table) == 12


def test_minutes_end_a_run(tmp_path: Path) -> None:
    ragged(tmp_path / "a")
    ragged(tmp_path / "b")
    real = system_clock()
    passed = [0]
    clock = Clock(now_ms=lambda: real.now_ms() + passed[0], new_id=real.new_id)

    def begun(_: ClusteringPlan) -> None:
        passed[0] += 61_000

    policy = replace(EAGER, budget=Budget(minutes=1))
    run = ticked(policy, tmp_path / "*", begun=begun, clock=clock)
    assert [one.decision for one in run.tables] == ["rewrite", "postpone"]
    assert "1 minutes of the budget are over" in run.tables[1].reason


@pytest.mark.parametrize("dry_run", [False, True])
def test_others_at_work_are_left_alone(tmp_path: Path, *, dry_run: bool) -> None:
    table = ragged(tmp_path / "t")
    run = somebody_at_work(table)
    (held,) = ticked(EAGER, tmp_path / "t", dry_run=dry_run).tables
    assert held.decision == "postpone"
    assert "optimize on elsewhere, process 1" in held.reason
    assert files(table) == 8
    run.forget()
    assert ticked(EAGER, tmp_path / "t", dry_run=dry_run).tables[0].decision == "rewrite"


def test_a_table_that_changed_is_looked_at_again(tmp_path: Path) -> None:
    first, second = ragged(tmp_path / "a", files=12), ragged(tmp_path / "b")
    assert [Path(one.table).name for one in ticked(EAGER, tmp_path / "*", dry_run=True).tables]

    def begun(plan: ClusteringPlan) -> None:
        other = second if plan.table_uri == first.uri else first
        if files(other) > 4:
            made = other.plan()
            other.commit(made, execute(made))

    run = ticked(EAGER, tmp_path / "*", begun=begun)
    assert [one.decision for one in run.tables] == ["rewrite", "leave"]
    assert "the policy asks for no rewrite" in run.tables[1].reason


def test_checkpoints_and_vacuums_by_policy(tmp_path: Path) -> None:
    table = ragged(tmp_path / "t")
    policy = replace(
        EAGER, rewrite=None, checkpoint=CheckpointPolicy(commits=9), vacuum=VacuumPolicy(age_ms=0)
    )
    (done,) = ticked(policy, tmp_path / "t").tables
    assert done.decision == "leave"
    assert done.checkpoint is not None
    assert done.checkpoint.done == {"version": 8, "created": True}
    assert done.vacuum is not None
    assert done.vacuum.done == {"versions": [], "deleted_files": 0, "deleted_bytes": 0}
    assert done.version == table.snapshot().version == 8
    (again,) = ticked(policy, tmp_path / "t").tables
    assert again.checkpoint is None


def test_a_vacuum_is_due_once_the_last_one_is_as_old_as_the_policy_says(tmp_path: Path) -> None:
    table, now = ragged(tmp_path / "t", files=2), system_clock()
    made = table.plan()
    table.commit(made, execute(made))
    assert table.vacuum(retain="0s", allow_short_retention=True).deleted_files
    policy = replace(EAGER, rewrite=None, vacuum=VacuumPolicy(age_ms=86_400_000))
    (early,) = ticked(policy, tmp_path / "t", dry_run=True).tables
    later = Clock(now_ms=lambda: now.now_ms() + 2 * 86_400_000, new_id=now.new_id)
    (late,) = ticked(policy, tmp_path / "t", clock=later, dry_run=True).tables
    assert early.vacuum is None
    assert late.vacuum is not None
    assert late.vacuum.reason == "the last vacuum was 2.0 days ago"


def test_a_chore_that_fails_does_not_undo_a_rewrite(tmp_path: Path) -> None:
    ragged(tmp_path / "t")
    policy = replace(EAGER, vacuum=VacuumPolicy(age_ms=0, retain="1h"))
    run = ticked(policy, tmp_path / "t")
    (done,) = run.tables
    assert done.decision == "rewrite"
    assert done.vacuum is not None
    assert done.vacuum.error is not None
    assert "retention" in done.vacuum.error.message
    assert done.vacuum.error.exit_status == 2
    assert run.exit_status == 1  # of what was decided; 2 would be a wrong policy


def test_chores_are_done_where_a_rewrite_waits(tmp_path: Path) -> None:
    ragged(tmp_path / "a")
    ragged(tmp_path / "b")
    policy = replace(EAGER, budget=Budget(bytes=1), checkpoint=CheckpointPolicy(commits=1))
    run = ticked(policy, tmp_path / "*")
    assert [one.decision for one in run.tables] == ["postpone", "postpone"]
    assert all(one.checkpoint is not None and one.checkpoint.done for one in run.tables)


def test_tables_of_every_kind(tmp_path: Path) -> None:
    ragged(tmp_path / "good")
    Table.create(tmp_path / "empty", schema=rows(0).schema, cluster_by=["x"])
    copied("logs/32_truncated_middle", tmp_path / "damaged")
    copied("logs/31_unknown_reader_feature", tmp_path / "refused")
    copied("logs/31_unknown_writer_feature", tmp_path / "read_only")
    copied("logs/26_stats_missing", tmp_path / "gone")
    (tmp_path / "nothing").mkdir()
    run = ticked(OFTEN_READ, tmp_path / "*", tmp_path / "nothing", f"{tmp_path}/x/*")
    found = by_name(run)
    assert {name: one.decision.value for name, one in found.items()} == {
        "good": "rewrite",
        "empty": "leave",
        "damaged": "fail",
        "refused": "leave",
        "read_only": "leave",
        "gone": "fail",
        "nothing": "fail",
        "*": "fail",
    }
    said = {name: one.reason for name, one in found.items()}
    assert "no files" in said["empty"]
    assert "does not support" in said["refused"]
    assert "cannot be optimized" in said["read_only"]
    assert "does not exist" in said["gone"]
    assert "not a Delta table" in said["nothing"]
    assert "no table is at" in said["*"]
    assert found["damaged"].error is not None
    assert found["damaged"].error.code == "corrupt_log"
    assert run.exit_status == 1


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_table_that_may_not_be_written_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, dry_run: bool
) -> None:
    ragged(tmp_path / "t")

    def refuse(directory: str, _: str) -> None:
        raise StorageError(directory, "cannot be written: Read-only file system")

    monkeypatch.setattr(local, "require_links", refuse)
    run = ticked(EAGER, tmp_path / "t", dry_run=dry_run)
    (found,) = run.tables
    assert (found.decision, run.exit_status) == ("fail", 1)
    assert "Read-only" in found.reason


def test_readers_of_a_workload_decide(tmp_path: Path) -> None:
    ragged(tmp_path / "asked")
    ragged(tmp_path / "unasked")
    line = {
        "table": str(tmp_path / "asked"),
        "conjuncts": ["x = 104729"],
        "weight": 1,
        "first": None,
        "last": None,
        "observed": None,
        "ambiguous": False,
        "source": "sql",
    }
    (tmp_path / "w.jsonl").write_text(json.dumps(line) + "\n")
    policy = replace(
        EAGER,
        rewrite=RewritePolicy(when=RewriteWhen(commits=1), workload=str(tmp_path / "w.jsonl")),
    )
    found = by_name(ticked(policy, tmp_path / "asked", tmp_path / "unasked"))
    assert found["asked"].decision == "rewrite"
    assert "judged for" not in found["unasked"].reason
    assert (found["unasked"].decision, "asks nothing of it" in found["unasked"].reason) == (
        "leave",
        True,
    )
