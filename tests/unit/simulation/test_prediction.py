"""What `plan --workload` foretells, against rewrites that are then made."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.predicates.workload import WeightedPredicate
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
