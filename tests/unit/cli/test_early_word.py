"""What `optimize` and `run` say of other writers: at the start, and of groups that they cancel."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.cli import rewriting
from liquidlog.data.runs import Origin, Run
from liquidlog.plan import Cancelled, ClusteringPlan, GroupFailure, Outcome, Progress
from liquidlog.table import Table
from support.arrow_executor import execute_groups
from support.commands import call, said
from support.copies import remove_and_restore

POLICY = ("--set", "min_cube_size=1", "--set", "target_cube_size=1")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table of three files, each of which is a group."""
    made = Table.create(tmp_path / "t", schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    for first in range(3):
        made.append(pa.table({"x": [first, first + 100]}))
    return made


Meanwhile = Callable[[ClusteringPlan], object]


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch) -> Callable[[Meanwhile], list[str | None]]:
    """Rewrite without Spark; between the first group and the others, do something."""
    verbs: list[str | None] = []

    def installed(meanwhile: Meanwhile) -> list[str | None]:
        def rewrite(
            plan: ClusteringPlan, groups: Sequence[int], progress: Progress, cancelled: Cancelled
        ) -> Iterator[Outcome]:
            assert cancelled() == {}
            yield from execute_groups(plan, groups[:1])
            meanwhile(plan)
            for group_id in groups[1:]:
                progress(group_id, 0.5)
                lost = cancelled()
                if group_id in lost:
                    reason = lost[group_id]
                    yield GroupFailure(group_id=group_id, reason=reason, cancelled=True)
                else:
                    yield from execute_groups(plan, [group_id])

        def opened(*_: object, verb: str, **__: object) -> nullcontext[object]:
            verbs.append(verb)
            return nullcontext(rewrite)

        monkeypatch.setattr(rewriting, "open_executor", opened)
        return verbs

    return installed


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("liquidlog.operations.optimize.INTERVAL_MS", 0)
    monkeypatch.setattr("liquidlog.operations.optimize._LEAST_INTERVAL_MS", 0)


def test_optimize_reports_a_cancelled_group_as_a_conflict(
    table: Table, executor: Callable[[Meanwhile], list[str | None]]
) -> None:
    verbs = executor(lambda plan: remove_and_restore(table, plan.groups[1].inputs[0].path))
    status, out, error = call("optimize", table.uri, *POLICY)
    assert (status, out, verbs) == (3, "", ["optimize"])
    (conflict,) = error["error"]["conflicts"]
    assert error["error"]["code"] == "commit_conflict"
    assert (conflict["kind"], conflict["group_id"], conflict["cancelled"]) == ("group", 1, True)
    assert conflict["message"].startswith("group 1: cancelled: version ")
    operations = [one["operation"] for one in table.history(limit=4)]
    assert operations.count("OPTIMIZE") == 2


def test_optimize_says_who_else_is_at_work(
    table: Table, executor: Callable[[Meanwhile], list[str | None]]
) -> None:
    hostile = Origin(verb="optimize", host="host-a\x1b[2J\nerror: b", pid=4711, started_ms=0)
    Run(table.uri, "0123456789ab").begin(hostile)
    executor(lambda _: None)
    for quiet in ("--dry-run", "--json"):
        status, out, error = said("optimize", table.uri, *POLICY, quiet)
        assert (status, "host-a" in out + error) == (0, False)
    status, out, error = said("optimize", table.uri)
    assert (status, "host-a" in out) == (0, False)
    assert "optimize on host-a" in error
    assert "process 4711" in error
    assert "\x1b" not in error
    assert "\nerror" not in error
