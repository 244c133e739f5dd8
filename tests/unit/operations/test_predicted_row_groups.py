"""What `plan --workload --row-groups` foretells, against the footers of rewrites then made."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.clustering.planning.readers import fitted_to
from liquidlog.data.runs import Run
from liquidlog.data.vectors import write_vector
from liquidlog.errors import UsageError
from liquidlog.local.executor import LocalExecutor
from liquidlog.operations import row_groups, sampling
from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import WeightedPredicate, Workload
from liquidlog.simulation.inside import PredictedRowGroups
from liquidlog.simulation.prediction import Prediction
from liquidlog.table import Table
from support.commands import caller, said
from support.deleted import commit_vectors, positions
from support.partitioned import partitioned_table

ROWS = 300_000
APPENDS = 4
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64()), ("s", pa.string())])

TOLERANCE = 0.2
"""By how much the mean number of row groups may be missed, as a share; seen were 0.00 to 0.09."""

BYTES_TOLERANCE = 0.2
"""The same of the share of the table's bytes: how well sorted rows compress is not foretold."""


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor({}) as started:
        yield started


def rows(seed: int, count: int = ROWS) -> pa.Table:
    random = np.random.default_rng(seed)
    a = random.integers(0, 10**6, count)
    return pa.table(
        {
            "a": a,
            "b": (random.pareto(1.5, count) * 1000).astype(np.int64),
            "c": a // 7 + random.integers(0, 20_000, count),
            "s": pa.array([f"user {number:05d}" for number in random.integers(0, 200, count)]),
        },
        schema=SCHEMA,
    )


def table(path: Path, columns: list[str], *, appends: int = APPENDS, count: int = ROWS) -> Table:
    made = Table.create(str(path / "t"), schema=SCHEMA, cluster_by=columns)
    for seed in range(appends):
        made.append(rows(seed, count))
    return made


def workload(*texts: str) -> Workload:
    return tuple(map(WeightedPredicate, texts))


ON_A = [f"a between {n * 90_000} and {n * 90_000 + 15_000}" for n in range(11)]
ON_B = [f"b = {n}" for n in range(10, 3000, 271)]
ON_C = [f"c between {n} and {n + 900}" for n in range(9_000, 140_000, 13_000)]
ON_S = [f"s = 'user {n:05d}'" for n in range(7, 200, 19)]
BOTH = [f"a > {n * 80_000} and a < {n * 80_000 + 200_000} and b < {n * 40}" for n in range(1, 9)]

CASES: Mapping[str, tuple[list[str], list[str], Mapping[str, Any]]] = {
    "hilbert": (["a", "b"], [*ON_A, *ON_B, *BOTH], {}),
    "kd": (["a", "b"], [*ON_A, *ON_B, *BOTH], {"curve": "kd"}),
    "one column": (["a"], ON_A, {}),
    "texts": (["s", "a"], [*ON_S, *ON_A], {}),
    "correlated": (["a", "s"], ON_C, {}),
}


def commit(made: Table, plan: ClusteringPlan, executor: LocalExecutor) -> None:
    groups = [group.group_id for group in plan.groups]
    report = made.commit_each(plan, executor(plan, groups, lambda *_: None))
    assert len(report.finished) == len(groups)


@pytest.mark.parametrize("fitted", [False, True], ids=["even", "fitted"])
@pytest.mark.parametrize("case", CASES)
def test_row_groups_that_are_opened_are_those_foretold(
    tmp_path: Path, executor: LocalExecutor, case: str, *, fitted: bool
) -> None:
    columns, texts, policy = CASES[case]
    asked = workload(*texts)
    made = table(tmp_path, columns)
    plan = made.plan(max_file_size=size_of(made) // 5, **policy)
    if fitted:
        plan = fitted_to(plan, asked)
    before = made.scan(workload=asked, row_groups=True).row_groups
    found = made.predict(plan, asked, row_groups=True)
    commit(made, plan, executor)
    after = made.scan(workload=asked, row_groups=True)
    assert before is not None
    _check_before(found.row_groups, before)
    assert after.row_groups is not None
    _check_after(found.row_groups, after.row_groups, plan.size_bytes / size_of(made))
    # Most readers are within their own ranges, too.
    assert _within(found, [one.row_groups for one in after.predicates]) >= 0.75
    assert after.row_groups.bytes_opened is not None
    assert after.row_groups.bytes_opened < after.bytes_read


def size_of(made: Table) -> int:
    return int(made.detail()["sizeInBytes"])


def _check_before(found: PredictedRowGroups | None, truth: row_groups.OpenedRowGroups) -> None:
    assert found is not None
    assert found.unknown is None
    assert found.opened_before == pytest.approx(truth.opened)
    assert found.bytes_before == pytest.approx(truth.bytes_opened)
    assert found.files_sampled == truth.files_sampled


def _check_after(
    found: PredictedRowGroups | None, truth: row_groups.OpenedRowGroups, shrunk: float
) -> None:
    """Compare with what is opened after the rewrite, of a table that is `shrunk` times smaller."""
    assert found is not None
    assert truth.opened is not None
    assert truth.bytes_opened is not None
    opened_bytes = truth.bytes_opened * shrunk
    assert found.opened_after == pytest.approx(truth.opened, rel=TOLERANCE)
    assert found.bytes_after == pytest.approx(opened_bytes, rel=BYTES_TOLERANCE)
    assert found.opened_after_range is not None
    assert found.opened_after_range.low <= truth.opened <= found.opened_after_range.high


def _within(found: Prediction, truths: list[row_groups.OpenedRowGroups | None]) -> float:
    held = 0
    for row, truth in zip(found.predicates, truths, strict=True):
        assert row.row_groups is not None
        assert truth is not None
        ends = row.row_groups.opened_after_range
        assert ends is not None
        assert truth.opened is not None
        # Numbers of row groups are whole.
        held += ends.low - 0.5 <= truth.opened <= ends.high + 0.5
    return held / len(truths)


def small(path: Path) -> tuple[Table, Workload]:
    return table(path, ["a", "b"], appends=3, count=500), workload("a < 90000", "b > 2000")


def test_files_that_a_plan_keeps_open_what_their_footers_say(tmp_path: Path) -> None:
    made, asked = small(tmp_path)
    plan = made.plan(strategy="overlap", tolerance=100.0)
    assert not plan.groups
    found = made.predict(plan, asked, row_groups=True)
    assert found.row_groups is not None
    assert found.row_groups.opened_after == found.row_groups.opened_before == 3.0
    assert found.row_groups.bytes_after == found.row_groups.bytes_before
    ends = found.row_groups.opened_after_range
    assert ends is not None
    assert ends.low == ends.high == 3.0


def test_small_files_have_one_row_group_each(tmp_path: Path, executor: LocalExecutor) -> None:
    made, asked = small(tmp_path)
    plan = made.plan(max_file_size=size_of(made) // 4)
    found = made.predict(plan, asked, row_groups=True)
    commit(made, plan, executor)
    truth = made.scan(workload=asked, row_groups=True).row_groups
    assert found.row_groups is not None
    assert truth is not None
    # All rows are in the sample, so the rows of each file are known.
    assert found.row_groups.opened_after == truth.opened
    assert found.row_groups.opened_after == pytest.approx(found.files_after)


def test_too_few_sampled_rows_foretell_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, asked = small(tmp_path)
    plan = made.plan(max_file_size=size_of(made) // 20)
    monkeypatch.setattr(sampling, "_ROWS_OF_A_GROUP", 60)
    monkeypatch.setattr(sampling, "_MOST_ROWS_OF_A_GROUP", 60)
    found = made.predict(plan, asked, row_groups=True)
    assert found.row_groups is not None
    assert found.row_groups.unknown is not None
    assert found.row_groups.opened_before == 3.0
    assert found.row_groups.opened_after is None
    assert found.row_groups.opened_after_range is None
    assert found.row_groups.bytes_after is None
    assert {one.row_groups and one.row_groups.unknown for one in found.predicates} == {
        found.row_groups.unknown
    }
    assert found.files_after > 0


def test_what_rests_on_sampled_footers_has_no_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, asked = small(tmp_path)
    plan = made.plan(strategy="overlap", tolerance=100.0)
    monkeypatch.setattr(row_groups.sample_files, "__defaults__", (2,))
    found = made.predict(plan, asked, row_groups=True)
    assert found.row_groups is not None
    assert found.row_groups.files_sampled == 1
    assert found.row_groups.opened_after == found.row_groups.opened_before
    assert found.row_groups.opened_after_range is None
    monkeypatch.setattr(row_groups.sample_files, "__defaults__", (1,))
    several = workload("a < 90000", "a % 2 = 0 and b < -1", "b >= 0")
    rest = made.predict(plan, several, row_groups=True)
    assert rest.row_groups is not None


def test_nobody_asks_for_row_groups_unless_they_say_so(tmp_path: Path) -> None:
    made, asked = small(tmp_path)
    found = made.predict(made.plan(), asked, sample=True)
    assert found.row_groups is None
    assert {one.row_groups for one in found.predicates} == {None}


def test_row_groups_take_a_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, _ = small(tmp_path)
    with pytest.raises(UsageError) as refused:
        made.predict(made.plan(), row_groups=True)
    assert refused.value.fields["option"] == "row_groups"
    for words in ([], ["--where", "a < 9", "--strategy", "overlap"], ["--sample"]):
        status, _, error = caller(capsys)("plan", made.uri, "--row-groups", *words)
        assert status == 2
        assert error["error"]["option"] == "row_groups"


def test_the_command_says_what_is_opened_inside(tmp_path: Path) -> None:
    made, _ = small(tmp_path)
    path = tmp_path / "w.sql"
    path.write_text("a < 90000;\n")
    words = ["plan", made.uri, "--workload", str(path), "--row-groups"]
    status, out, error = said(*words)
    assert (status, error) == (0, "")
    assert "inside files the mean read goes from 3 row groups" in out
    assert "row groups before" in out
    assert "inside files" not in said(*words[:-1])[1]


def test_deleted_rows_are_not_among_those_foretold(tmp_path: Path) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    made = Table.create(
        str(tmp_path / "t"), schema=SCHEMA, cluster_by=["a", "b"], properties=properties
    )
    made.append(rows(0, 500))
    run = Run(made.uri, "0123456789ab")
    run.begin()
    vector = write_vector(run, positions(range(400)), unique_id="a")
    commit_vectors(Path(made.uri), {made.snapshot().paths()[0].as_py(): vector})
    made = Table.open(made.uri)
    plan = made.plan(full=True)
    assert plan.live_rows == 100
    asked = workload("a >= 0", "b > 1000")
    found = made.predict(plan, asked, row_groups=True).row_groups
    assert found is not None
    assert found.unknown is None
    assert (found.opened_before, found.opened_after) == (1.0, 1.0)


def test_migrations_and_orders_of_partitions_are_foretold(tmp_path: Path) -> None:
    partitioned_table(tmp_path / "t", files={"a": 2, None: 1})
    made = Table.open(str(tmp_path / "t"))
    asked = workload("id = 3", "p = 'a'")
    before = made.scan(workload=asked, row_groups=True).row_groups
    assert before is not None
    for plan in (made.plan_migration(["p", "id"]), made.plan(zorder_by="id")):
        found = made.predict(plan, asked, row_groups=True).row_groups
        assert found is not None
        assert found.unknown is None
        assert found.opened_before == pytest.approx(before.opened)
        assert found.opened_after == 1.0
