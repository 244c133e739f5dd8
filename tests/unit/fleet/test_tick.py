"""A run of upkeep looks at all tables, ranks what is worth it, spends the budget, and says why."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from liquidlog.commit import Clock, system_clock
from liquidlog.errors import CorruptLogError, StorageError, UsageError
from liquidlog.fleet.policy import RewritePolicy, RewriteWhen
from liquidlog.fleet.upkeep import Fleet, FleetRequest, Surveyed, survey, surveyed
from liquidlog.foresee.verdict import Bar
from liquidlog.local import Workers
from liquidlog.plan import ClusteringPlan
from liquidlog.report.page import page
from liquidlog.storage import files as storage_files
from liquidlog.table import Table
from liquidlog.workload.queries import Query
from support.arrow_executor import execute
from support.commands import said
from support.lake import EAGER, by_name, copied, ragged, rows, somebody_at_work, ticked
from support.repository import ROOT

OFTEN_READ = replace(
    EAGER, rewrite=RewritePolicy(when=RewriteWhen(commits=1), bar=Bar(queries_per_day=1e7))
)
"""So many readers that a rewrite pays back at once, however short the last one is ago."""


def files(table: Table) -> int:
    return int(table.snapshot().files.num_rows)


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
    policy = replace(EAGER, budget_bytes=first.bytes_rewritten)
    run = ticked(policy, glob)
    assert [one.decision for one in run.tables] == ["rewrite", "postpone", "postpone"]
    assert run.tables[0].table == first.table
    assert run.spent_bytes == first.bytes_rewritten
    assert all("is spent" in one.reason for one in run.tables[1:])


def test_a_part_of_a_plan_is_done_if_the_budget_has_no_more(tmp_path: Path) -> None:
    ragged(tmp_path / "t", files=12, cluster_by=None)
    (whole,) = ticked(EAGER, tmp_path / "t", dry_run=True).tables
    policy = replace(EAGER, budget_bytes=whole.bytes_rewritten - 1)
    (part,) = ticked(policy, tmp_path / "t", dry_run=True).tables
    assert part.bytes_rewritten < whole.bytes_rewritten
    assert "as the budget allows" in part.reason or "no part of that size" in part.reason


def test_minutes_end_a_run(tmp_path: Path) -> None:
    ragged(tmp_path / "a")
    ragged(tmp_path / "b")
    real = system_clock()
    passed = [0]
    clock = Clock(now_ms=lambda: real.now_ms() + passed[0], new_id=real.new_id)

    def begun(_: ClusteringPlan) -> None:
        passed[0] += 61_000

    policy = replace(EAGER, budget_minutes=1)
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
    policy = replace(EAGER, rewrite=None, checkpoint_commits=9, vacuum_age_ms=0)
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
    policy = replace(EAGER, rewrite=None, vacuum_age_ms=86_400_000)
    (early,) = ticked(policy, tmp_path / "t", dry_run=True).tables
    later = Clock(now_ms=lambda: now.now_ms() + 2 * 86_400_000, new_id=now.new_id)
    (late,) = ticked(policy, tmp_path / "t", clock=later, dry_run=True).tables
    assert early.vacuum is None
    assert late.vacuum is not None
    assert late.vacuum.reason == "the last vacuum was 2.0 days ago"


def test_a_chore_that_fails_does_not_undo_a_rewrite(tmp_path: Path) -> None:
    ragged(tmp_path / "t")
    policy = replace(EAGER, vacuum_age_ms=0, vacuum_retain="1h")
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
    policy = replace(EAGER, budget_bytes=1, checkpoint_commits=1)
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

    monkeypatch.setattr(storage_files, "require_links", refuse)
    run = ticked(EAGER, tmp_path / "t", dry_run=dry_run)
    (found,) = run.tables
    assert (found.decision, run.exit_status) == ("fail", 1)
    assert "Read-only" in found.reason


# A survey finds all tables, looks at each, ranks what is worth doing, and says why.


HOSTILE = (
    "<script>alert(1)</script>",
    "a\nb\x1b[31m",
    "\u202egnp",
    "x" * 200,
    "é",
    "e\u0301",
    "-o",
)


def looked_at(root: Path, processes: int = 1, **more: object) -> Fleet:
    request = FleetRequest(prefixes=(str(root),), processes=processes, **more)  # type: ignore[arg-type]
    return survey(request)


def fleet_by_name(fleet: Fleet) -> dict[str, Surveyed]:
    return {Path(one.table).name: one for one in fleet.tables}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables worth a rewrite, large and small, in shape, empty, refused, broken."""
    root = tmp_path_factory.mktemp("lake")
    ragged(root / "large", files=12)
    ragged(root / "deep" / "small", files=5)
    Table.create(root / "one", schema=rows(0).schema, cluster_by=["x"]).append(rows(0))
    Table.create(root / "empty", schema=rows(0).schema)
    broken = ragged(root / "broken", files=2)
    next(Path(broken.uri, "_delta_log").glob("*1.json")).write_text("{")
    return root


def test_what_is_worth_it_comes_first_as_in_tick(lake: Path) -> None:
    fleet = looked_at(lake)
    found = fleet_by_name(fleet)
    assert {name: str(one.decision) for name, one in found.items()} == {
        "large": "rewrite",
        "small": "rewrite",
        "one": "leave",
        "empty": "leave",
        "broken": "fail",
    }
    run = ticked(EAGER, f"{lake}/**", dry_run=True)
    worth = run.tables[:2]
    assert [one.decision for one in worth] == ["rewrite", "rewrite"]
    assert [one.table for one in fleet.tables[:2]] == [one.table for one in worth]
    for one, decided in zip(fleet.tables, worth, strict=False):
        assert decided.verdict is not None
        assert one.verdict == decided.verdict.document()
        assert one.reason == decided.reason
    paid = [one.worth["payback_queries"] for one in fleet.tables if one.worth is not None]
    assert paid == sorted(paid)
    assert fleet.tables[2].decision == "fail"


def ended(request: FleetRequest, address: str, queries: tuple[Query, ...]) -> Surveyed:
    if address.endswith("large"):
        os._exit(9)
    return surveyed(request, address, queries)


def test_a_process_that_ends_takes_one_table(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Workers.submit

    def submit(self: object, _: object, *arguments: object, attempt: int) -> object:
        return original(self, ended, *arguments, attempt=attempt)  # type: ignore[arg-type]

    monkeypatch.setattr(Workers, "submit", submit)
    found = fleet_by_name(looked_at(lake, processes=2))
    assert found["large"].decision == "fail"
    assert "a worker process ended" in found["large"].reason
    assert found["small"].decision == "rewrite"
    assert len(found) == 5


def test_a_workload_is_asked_table_by_table(lake: Path, tmp_path: Path) -> None:
    workload = tmp_path / "w.jsonl"
    line = {"table": f"{lake}/large", "conjuncts": ["x = 500000"], "weight": 3.0, "first": None}
    line |= {"last": None, "observed": None, "ambiguous": False, "source": "sql"}
    workload.write_text(json.dumps(line) + "\n")
    found = fleet_by_name(looked_at(lake, workload=str(workload)))
    assert found["large"].decision == "rewrite"
    assert found["large"].worth is not None
    assert str(workload) in found["large"].worth["candidate"]["command"]
    assert found["small"].decision == "leave"
    assert found["small"].reason == f"Leave it: {workload} has no query of it."
    assert found["small"].depth_ratio == Table.open(lake / "deep" / "small").health().depth_ratio


def test_prefixes_are_tables_or_what_is_above_them(lake: Path) -> None:
    def found(*names: str) -> list[str]:
        request = FleetRequest(prefixes=tuple(f"{lake}/{name}" for name in names))
        return [
            f"{one.decision} {one.table.removeprefix(f'{lake}/')}" for one in survey(request).tables
        ]

    assert found("large") == ["rewrite large"]
    assert found("deep") == ["rewrite deep/small"]
    assert found("deep", "deep/small", "d*/*") == ["rewrite deep/small"]
    assert found("nowhere") == ["fail " + str(lake / "nowhere").removeprefix(f"{lake}/")]
    with pytest.raises(UsageError):
        survey(FleetRequest(prefixes=()))


def test_hostile_names_make_plain_files_of_their_own(tmp_path: Path) -> None:
    ragged(tmp_path / "lake" / "t", files=2)
    for place, name in enumerate(HOSTILE):
        shutil.copytree(tmp_path / "lake" / "t", tmp_path / "lake" / str(place) / name)
    shutil.copytree(tmp_path / "lake" / "t", tmp_path / "lake" / "again" / "t")
    where = tmp_path / "pages"
    fleet = looked_at(tmp_path / "lake", pages=str(where), render=page)
    names = {one.page for one in fleet.tables}
    assert len(names) == len(fleet.tables) == len(HOSTILE) + 2
    assert {path.name for path in where.iterdir()} == names
    assert all(name and name.isascii() and name[0].isalnum() for name in names)


def test_a_directory_that_cannot_be_made_is_told_before_anything(lake: Path) -> None:
    pages = str(lake / "large" / "_delta_log" / f"{0:020d}.json")
    with pytest.raises(StorageError):
        looked_at(lake, pages=pages)


def test_the_command(lake: Path, tmp_path: Path) -> None:
    status, out, err = said("fleet", str(lake), "--json")
    document = json.loads(out)
    assert (status, err) == (1, "")
    first = document["tables"][0]
    asked = "table files bytes depth_ratio action reason verdict"
    assert set(asked.split()) <= set(first)
    status, out, err = said("fleet", str(lake / "large"), "-o", str(tmp_path / "out"))
    assert (status, err) == (0, "")
    assert "1 table: 1 to rewrite" in out
    assert "    liquidlog optimize" in out
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".html", ".html"]
    assert said("fleet", str(lake / "large"), "--payback-days", "0")[0] == 2
    assert said("fleet")[0] == 2


def test_recorded_logs_of_every_kind_get_a_line(tmp_path: Path) -> None:
    logs, some = ROOT / "fixtures" / "logs", "*[0-9]_[b-du]*/table"
    prefixes = (f"{logs}/{some}",)
    request = FleetRequest(prefixes=prefixes, pages=str(tmp_path), render=page, processes=1)
    fleet = survey(request)
    assert len(fleet.tables) == len(list(logs.glob(f"{some}/_delta_log")))
    failed = [one.error for one in fleet.tables if one.decision == "fail"]
    assert {type(error) for error in failed} <= {CorruptLogError}
    assert all(one.reason for one in fleet.tables)
    unread = [one for one in fleet.tables if one.files is None]
    assert all(one.page is None and one.decision != "rewrite" for one in unread)
