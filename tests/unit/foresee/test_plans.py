"""What plans bring, held against what readers open once the local executor has rewritten."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from liquidlog.foresee.plans import Foresight, asked_readers, assumed_readers, joined_files
from liquidlog.foresee.reads import EVERYTHING, LOCAL_DISK, Prediction
from liquidlog.predicates.workload import WeightedPredicate, Workload
from liquidlog.table import Table

FILES, ROWS, SIZE = 8, 4_000, "24KiB"
Make = Callable[[np.random.Generator], pa.Table]


def _x(random: np.random.Generator) -> np.ndarray:
    return random.integers(0, 1 << 30, ROWS)


def noisy(random: np.random.Generator) -> pa.Table:
    x = _x(random)
    return pa.table({"x": x, "y": x + random.integers(0, 1 << 20, ROWS)})


def zipf(random: np.random.Generator) -> pa.Table:
    return pa.table({"x": np.minimum(random.zipf(1.3, ROWS), 10**6), "y": _x(random)})


def texts(random: np.random.Generator) -> pa.Table:
    return pa.table({"x": [f"user-{one:08d}" for one in _x(random) % 10**7], "y": _x(random)})


def nulls(random: np.random.Generator) -> pa.Table:
    x = pa.array(_x(random), mask=random.random(ROWS) < 0.4)
    return pa.table({"x": x, "y": _x(random)})


def made(path: Path, make: Make) -> tuple[Table, Workload]:
    random = np.random.default_rng(7)
    data = [make(random) for _ in range(FILES)]
    names = data[0].column_names
    table = Table.create(path, schema=data[0].schema, cluster_by=names)
    for some in data:
        table.append(some)
    every = pa.concat_tables(data)
    asked = []
    for name in names:
        values = every[name].take(random.integers(0, len(every), 30)).drop_null().to_pylist()
        quote = "'" if isinstance(values[0], str) else ""
        asked += [WeightedPredicate(f"{name} = {quote}{one}{quote}") for one in values]
    return table, tuple(asked)


def foreseen(table: Table, workload: Workload, *, reads_rows: bool = True) -> Prediction:
    snapshot = table.snapshot()
    bounds_of = table.opened.bounds_of(snapshot)
    readers = (
        asked_readers(snapshot, workload, bounds_of, None)
        if workload
        else assumed_readers(snapshot, bounds_of)
    )
    is_clustered = bool(table.detail()["clusteringColumns"])
    plan = table.plan(full=is_clustered or None, max_file_size=SIZE if is_clustered else None)
    return Foresight(
        table.opened.store,
        snapshot,
        bounds_of,
        readers,
        [plan],
        profile=LOCAL_DISK,
        reads_rows=reads_rows,
    ).prediction(0)


@pytest.mark.parametrize("make", [noisy, zipf, texts, nulls], ids=lambda one: one.__name__)
def test_what_readers_open_after_a_rewrite_is_foreseen(tmp_path: Path, make: Make) -> None:
    table, workload = made(tmp_path / "t", make)
    by_rows = foreseen(table, workload)
    by_log = foreseen(table, workload, reads_rows=False)
    assumed = foreseen(table, ())
    table.optimize(executor="local", full=True, max_file_size=SIZE)
    found = table.scan(workload=workload)
    truth = sum(one.share * one.files for one in found.predicates)
    assert by_rows.is_sampled
    assert by_rows.sampled_files == FILES
    assert by_rows.files_after == pytest.approx(truth, rel=0.25)
    assert by_rows.files_after_range.low <= truth <= by_rows.files_after_range.high
    assert by_rows.bytes_after == pytest.approx(found.bytes_read, rel=0.25)
    size_bytes = by_rows.bytes_after_range
    assert size_bytes.low <= found.bytes_read <= size_bytes.high
    # By the log alone nothing is known of how columns depend on each other.
    assert not by_log.is_sampled
    assert by_log.files_after_range.low <= truth <= by_log.files_after_range.high
    of_values = [one.files_after for one in assumed.predicates if one.where != EVERYTHING]
    if make is not zipf:  # Every value is asked for as often as it has rows: few are, of most.
        assert np.mean(of_values) == pytest.approx(truth, rel=0.25)


def foreseen_bytes(table: Table, asked: list[str]) -> float:
    """Return the predicted bytes of a full rewrite into as many files, divided by the true ones."""
    size = table.snapshot().size_bytes
    workload = [WeightedPredicate(one) for one in asked]
    plan = table.plan(full=True, max_file_size=max(2_000, size // table.snapshot().files.num_rows))
    found = table.predict(plan, workload)
    table.optimize(executor="local", plan=plan)
    true = table.scan(workload=workload).bytes_read
    assert found.bytes_after_range.low <= true <= found.bytes_after_range.high
    return found.bytes_after / true


@pytest.mark.parametrize("kinds", [1, 16], ids=["shared", "own"])
def test_dictionaries_of_other_columns_are_united(tmp_path: Path, kinds: int) -> None:
    random = np.random.default_rng(5)
    schema = pa.schema([("x", pa.int64()), ("text", pa.string())])
    table = Table.create(tmp_path / "t", schema=schema, cluster_by=["x"])
    for number in range(16):
        words = np.random.default_rng(number % kinds).bytes(200 * 20).hex()
        texts = [words[start : start + 40] for start in range(0, len(words), 40)]
        x = random.integers(0, 1 << 20, 2_000)
        text = pa.array(texts).take(pa.array(random.integers(0, 200, 2_000)))
        table.append(pa.table([x, text], schema=schema))
    assert foreseen_bytes(table, [f"x > {start << 17}" for start in range(8)]) == pytest.approx(
        1.0, abs=0.2
    )


@pytest.mark.parametrize("keys", [[], ["text"]], ids=["joined", "clustered"])
def test_one_file_takes_what_its_rows_take_together(tmp_path: Path, keys: list[str]) -> None:
    """No query says which rows lie together, but they are packed anew."""
    random = np.random.default_rng(5)
    rows = pa.table(
        {
            "id": random.integers(0, 1 << 40, 16_000),
            "text": [f"user-{value:07d}" for value in random.integers(0, 400, 16_000)],
        }
    )
    for start in range(0, 16_000, 2_000):
        write_deltalake(str(tmp_path / "t"), rows.slice(start, 2_000), mode="append")
    table = Table.open(tmp_path / "t")
    if keys:
        table.cluster_by(keys)
    before = table.snapshot().size_bytes
    plan = table.plan()
    found = table.predict(plan, [WeightedPredicate("id >= 0"), WeightedPredicate("text = 'a'")])
    table.optimize(executor="local", plan=plan)
    (true,) = table.snapshot().files["size"].to_pylist()
    assert true < 0.8 * before
    (whole, _) = found.predicates
    assert whole.bytes_after == pytest.approx(true, rel=0.2)
    assert whole.bytes_after_range.low <= true <= whole.bytes_after_range.high


def test_neighbours_of_a_group_are_joined_to_files_of_one_size() -> None:
    group, sizes = np.array([0, 0, 0, 0, 1, 1, 1]), np.array([1.0, 1, 1, 1, 6, 1, 1])
    found = joined_files(group, sizes, np.array([2, 2]))
    assert found.tolist() == [0, 0, 1, 1, 2, 3, 3]
