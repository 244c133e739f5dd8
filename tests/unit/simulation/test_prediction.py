"""What `plan --workload` foretells, against rewrites that are then made."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.simulation.after import Known
from liquidlog.simulation.prediction import predict
from liquidlog.table import Table
from support.arrow_executor import execute

ROWS = 6_000


def rows(seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    day = random.integers(0, 200, ROWS)
    return pa.table(
        {
            "day": pa.array(day.astype(np.int32)).cast(pa.date32()),
            "part": pa.array(random.integers(0, 10**6, ROWS)),
            "name": pa.array([f"n{number:04d}" for number in random.integers(0, 5000, ROWS)]),
            "price": pa.array(random.random(ROWS)),
        }
    )


WORKLOADS: list[tuple[list[str], list[str]]] = [
    (
        ["day", "part"],
        [
            *(f"day = '1970-0{n}-11'" for n in (1, 2, 3, 4, 5, 6)),
            *(f"part BETWEEN {n}00000 AND {n}20000" for n in range(10)),
        ],
    ),
    (["name"], [f"name = 'n{number:04d}'" for number in range(37, 5000, 250)]),
    (["price", "name"], [f"price > {n / 10} AND price < {n / 10 + 0.01}" for n in range(10)]),
]


@pytest.mark.parametrize(("columns", "predicates"), WORKLOADS)
def test_predicted_reads_are_near_those_after_the_rewrite(
    tmp_path: Path, columns: list[str], predicates: list[str]
) -> None:
    table = Table.create(str(tmp_path / "t"), schema=rows(0).schema, cluster_by=columns)
    for seed in range(4):
        table.append(rows(seed))
    asked = tuple(WeightedPredicate(text) for text in predicates)
    plan = table.plan(max_file_size=30_000)
    predicted = table.predict(plan, asked)
    sampled = table.predict(plan, asked, sample=True)
    assert predicted.bytes_before == pytest.approx(table.scan(workload=asked).bytes_read)
    table.commit(plan, execute(plan))
    after = table.scan(workload=asked)
    size_before, size_after = plan.size_bytes, table.detail()["sizeInBytes"]
    found, promised = after.bytes_read / size_after, predicted.bytes_after / size_before
    # Names of files are random and cuts depend on their order: ratios were seen from 0.68 to 0.92.
    assert promised >= 0.5 * found
    # Of texts only the ends of files are known, so their files are predicted wider than they come.
    if columns != ["name"]:
        assert promised <= 1.5 * found
    # Who looks at rows knows how they lie, texts too; this executor cuts less well than Spark's.
    assert 0.7 * found <= sampled.bytes_after / size_before <= 1.2 * found
    assert predicted.bytes_after < 0.6 * predicted.bytes_before
    assert predicted.gain_per_byte == pytest.approx(
        (predicted.bytes_before - predicted.bytes_after) / size_before
    )


def test_a_plan_of_nothing_changes_no_read(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), schema=rows(0).schema, cluster_by=["day"])
    table.append(rows(0))
    plan = table.plan(strategy="overlap")
    predicted = table.predict(plan, (WeightedPredicate("name = 'n0007'"),))
    assert not plan.groups
    assert predicted.bytes_after == predicted.bytes_before > 0
    assert predicted.break_even_reads is None


def test_what_can_match_is_predicted_to_open_a_file(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), schema=rows(0).schema, cluster_by=["part", "day"])
    for seed in range(3):
        table.append(rows(seed))
    plan = table.plan(max_file_size=3_000)
    texts = [f"part = {number} AND day = '1970-03-01'" for number in range(1000, 990_000, 9973)]
    for sample in (False, True):
        found = table.predict(plan, tuple(map(WeightedPredicate, texts)), sample=sample)
        assert all(row.files_before > 0 for row in found.predicates)
        assert min(row.files_after for row in found.predicates) >= 1
        assert min(row.bytes_after for row in found.predicates) > 0


def test_predictions_name_what_cannot_prune_and_what_is_left_out(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), schema=rows(0).schema, cluster_by=["day"])
    table.append(rows(0))
    asked = [WeightedPredicate(text) for text in ("lower(name) = 'x' AND part > 1", "nope = 1")]
    found = table.predict(table.plan(), tuple(asked))
    assert found.cannot_prune == found.predicates[0].cannot_prune == ("lower(name) = 'x'",)
    assert [one.where for one in found.not_usable] == ["nope = 1"]
    assert [row.share for row in found.predicates] == [1.0]


def test_readers_of_single_values_are_predicted_without_a_workload(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), schema=rows(0).schema, cluster_by=["day", "part"])
    for seed in range(4):
        table.append(rows(seed))
    for options in ({}, {"strategy": "overlap"}, {"prefix": ["day"]}, {"skip_clustered": True}):
        plan = table.plan(max_file_size=30_000, **options)
        for sample in (False, True):
            found = table.predict(plan, sample=sample)
            assert found.readers == "narrow"
            assert found.is_sampled == sample
            assert [one.where for one in found.predicates] == [
                "one value of day",
                "one value of part",
            ]
            assert [one.share for one in found.predicates] == [0.5, 0.5]
            assert found.bytes_after_range.low <= found.bytes_after <= found.bytes_after_range.high
            assert (found.bytes_after < 0.6 * found.bytes_before) == bool(plan.groups)
            assert found.files_after_range.low >= 1


def test_readers_of_what_a_plan_leaves_alone_are_certain(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), schema=rows(0).schema, cluster_by=["day"])
    table.append(rows(0))
    plan = table.plan(strategy="overlap")
    for workload in ((), (WeightedPredicate("name = 'n0007'"),)):
        found = table.predict(plan, workload)
        assert not plan.groups
        assert found.bytes_after_range.low == found.bytes_after_range.high == found.bytes_after
        assert found.files_after_range.low == found.files_after_range.high == found.files_after
        assert found.break_even_reads_range is None


def test_compaction_changes_only_the_number_of_files_for_readers_of_everything(
    tmp_path: Path,
) -> None:
    table = Table.create(str(tmp_path / "t"), schema=rows(0).schema)
    for seed in range(4):
        table.append(rows(seed))
    found = table.predict(table.plan())
    assert [one.where for one in found.predicates] == ["every row"]
    assert (found.files_before, found.files_after) == (4, 1)
    assert found.bytes_after == pytest.approx(found.bytes_before, abs=4)
    assert found.files_after_range.low == found.files_after_range.high == 1
    assert found.bytes_after_range.low < found.bytes_after < found.bytes_after_range.high


def test_an_empty_table_is_predicted_to_stay_empty(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), schema=rows(0).schema, cluster_by=["day"])
    found = table.predict(table.plan())
    assert found.bytes_before == found.bytes_after == found.bytes_after_range.high == 0
    found = table.predict(table.plan(), (WeightedPredicate("part = 3"),))
    assert found.files_after == found.files_after_range.high == 0


def test_columns_that_run_along_are_known_from_rows_only(tmp_path: Path) -> None:
    made = [rows(seed) for seed in range(4)]
    made = [one.set_column(1, "part", one["day"].cast(pa.int32()).cast(pa.int64())) for one in made]
    table = Table.create(str(tmp_path / "t"), schema=made[0].schema, cluster_by=["day"])
    for one in made:
        table.append(one)
    plan = table.plan(max_file_size=20_000)
    asked = (WeightedPredicate("part = 42"),)
    guessed, sampled = (table.predict(plan, asked, sample=sample) for sample in (False, True))
    table.commit(plan, execute(plan))
    true = table.scan(workload=asked).bytes_read
    assert guessed.bytes_after > 3 * true
    for found in (guessed, sampled):
        assert found.bytes_after_range.low <= true <= found.bytes_after_range.high
    assert sampled.bytes_after_range.high < guessed.bytes_after


def test_what_is_known_is_predicted_alike(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), schema=rows(0).schema, cluster_by=["day", "part"])
    for seed in range(3):
        table.append(rows(seed))
    plan, snapshot = table.plan(max_file_size=30_000), table.snapshot()
    known: Known = {}
    few = predict(snapshot, plan, (), table.opened.bounds_of(snapshot), most_drawn=0, known=known)
    made = dict(known)
    more = predict(snapshot, plan, (), table.opened.bounds_of(snapshot), most_drawn=2, known=known)
    assert all(known[place] is files for place, files in made.items())
    assert len(known) == 2 * len(made) == 4 * len(plan.groups)
    assert more == predict(snapshot, plan, (), table.opened.bounds_of(snapshot), most_drawn=2)
    assert few.bytes_after == more.bytes_after
