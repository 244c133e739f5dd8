from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.health import Health, measure_health
from liquidlog.clustering.keyspace import column_ranges, depths, key_ranges
from liquidlog.foresee import ratios as module
from liquidlog.foresee.ratios import MOST_UNMEASURED, ratios, with_ratios
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Bounds
from liquidlog.spec.schema import PrimitiveType, StructField, StructType
from liquidlog.table import Table
from support.laid_out import Numbers, files_of, fresh, never_clustered
from support.snapshots import FileSpec, bounds_of, snapshot_of


def measured(table: tuple[Bounds, Numbers], **options: Any) -> tuple[float, float]:
    """Return the depth ratio and the read ratio."""
    bounds, size_bytes = table
    ranges = [column_ranges(one.low, one.high) for one in bounds.columns]
    depth = float(depths(key_ranges(ranges)).mean())
    found = ratios(files_of(bounds, size_bytes.astype(np.float64)), average_depth=depth, **options)
    assert found.depth is not None
    assert found.read is not None
    return found.depth, found.read


def test_more_files_than_boxes_are_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    table = fresh("uniform", 2, 2_000, curve="kd")
    exact = measured(table)
    monkeypatch.setattr(module, "MOST_FILES", 800)
    assert measured(table) == pytest.approx(exact, rel=0.15)


def test_a_table_ordered_by_its_columns_in_turn_has_an_order_of_its_own() -> None:
    table = fresh("uniform", 2, 264, curve="linear")
    assert measured(table, curve="linear") == pytest.approx((1.0, 1.0), abs=0.05)
    # Readers of the second column open everything.
    assert measured(table)[1] > 5


@pytest.mark.parametrize(("data", "files"), [*product(["uniform", "texts", "mixed"], [30, 264])])
def test_a_table_that_was_never_clustered_is_far_from_a_rewrite(data: str, files: int) -> None:
    depth, read = measured(never_clustered(data, 2, files))
    assert depth > 0.8 * files**0.5
    assert read > 2.5


@pytest.mark.parametrize("top", [20, 179, 10**6])
def test_files_that_all_have_the_same_ends_are_thought_to_hold_what_is_between(top: int) -> None:
    files = [FileSpec(path=f"{n:02d}", bounds={"b": (0, top), "a": (0, 5_000)}) for n in range(16)]
    schema = StructType(tuple(StructField(name, PrimitiveType("integer")) for name in "ba"))
    found = judged(snapshot_of(files, cluster_by=[["b"], ["a"]], schema=schema))
    assert found.depth_ratio == pytest.approx(4.0, abs=1.0)
    assert found.read_ratio is not None
    assert found.read_ratio > 3


def judged(snapshot: Snapshot, mask: pa.BooleanArray | None = None) -> Health:
    columns = clustering_state(snapshot).columns
    bounds = bounds_of(snapshot)([column.leaf for column in columns])
    health = measure_health(snapshot, columns, bounds, min_cube_bytes=150, mask=mask)
    return with_ratios(health, snapshot, columns, bounds, min_cube_bytes=150, mask=mask)


def test_what_was_clustered_together_is_what_a_rewrite_reaches(tmp_path: Path) -> None:
    # The second column is the first one, and a little noise.
    x = np.random.default_rng(5).integers(0, 1 << 30, 24_000)
    rows = pa.table({"x": x, "y": x + np.random.default_rng(6).integers(0, 1 << 20, len(x))})
    table = Table.create(str(tmp_path / "t"), schema=rows.schema, cluster_by=["x", "y"])
    table.append(rows)
    table.optimize(executor="local", max_file_size=table.snapshot().size_bytes // 24)
    found = table.health()
    assert (found.depth_ratio, found.read_ratio) == (1.0, 1.0)
    table.append(rows.slice(0, 1_000))
    # The log does not say that the rows of the wide file are where all others are.
    assert table.health().read_ratio is None
    sampled = table.health(sample=True)
    assert sampled.depth_ratio == pytest.approx(2.64 / 1.84, abs=0.2)
    # All readers open it: a twentieth of the bytes, as many as they open of all other files.
    assert sampled.read_ratio == pytest.approx(2.0, abs=0.3)
    for path in table.files()["path"].to_pylist():
        (tmp_path / "t" / path).unlink()
    unread = table.health(sample=True)
    assert unread.read_ratio is None
    assert "are from the log alone" in unread.notes[-1]


def spec(number: int, size: int = 100) -> FileSpec:
    return FileSpec(path=f"{number:02d}", size=size, bounds={"x": (number, number)})


def test_without_columns_or_files_nothing_is_known() -> None:
    for snapshot in (snapshot_of([spec(1)], cluster_by=None), snapshot_of()):
        found = judged(snapshot)
        assert (found.depth_ratio, found.read_ratio) == (None, None)
    assert judged(snapshot_of()).notes == ("there are no files to measure",)


def test_too_many_bytes_without_ranges_make_ratios_unknown() -> None:
    known = [spec(number) for number in range(10)]
    few = judged(snapshot_of([*known, FileSpec(path="b", size=int(1_000 * MOST_UNMEASURED))]))
    assert few.depth_ratio == 1.0
    # Readers have to open the file without statistics.
    assert few.read_ratio is not None
    assert few.read_ratio > 1.5
    many = judged(snapshot_of([*known, FileSpec(path="b", size=500)]))
    assert (many.depth_ratio, many.read_ratio) == (None, None)
    assert many.average_depth == 1.0
    assert "depth_ratio and read_ratio are not measured" in many.notes[-1]
    part = pa.array([True] * 10 + [False])
    alone = judged(snapshot_of([*known, FileSpec(path="b", size=500)]), part)
    assert (alone.depth_ratio, alone.read_ratio) == (1.0, 1.0)
