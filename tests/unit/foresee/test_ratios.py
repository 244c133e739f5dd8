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
from support.laid_out import (
    DATA,
    Numbers,
    bounds_by_file,
    file_of_rows,
    files_of,
    fresh,
    never_clustered,
    rows_of,
)
from support.snapshots import FileSpec, bounds_of, snapshot_of

TEXT = StructType((StructField("s", PrimitiveType("string")),))


def measured(table: tuple[Bounds, Numbers], **options: Any) -> tuple[float, float]:
    """Return the depth ratio and the read ratio."""
    bounds, size_bytes = table
    mask = options.get("mask", np.ones(len(bounds), np.bool_))
    ranges = [column_ranges(one.low, one.high).selected(mask) for one in bounds.columns]
    found = ratios(
        files_of(bounds, size_bytes.astype(np.float64)),
        average_depth=float(depths(key_ranges(ranges)).mean()),
        **options,
    )
    assert found.depth is not None
    assert found.read is not None
    return found.depth, found.read


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_a_table_of_one_file_is_what_a_rewrite_makes(data: str, columns: int) -> None:
    assert measured(fresh(data, columns, 1)) == (1.0, 1.0)


@pytest.mark.parametrize(("data", "columns"), [*product(DATA, [1, 2, 3, 4])])
def test_both_ratios_are_about_one_after_a_full_rewrite(data: str, columns: int) -> None:
    # Rows of correlated columns fill less of a file's box than its bounds say. Depths are those of
    # the first column, and of few values a curve may part all or none.
    least_read = 0.5 if data == "correlated" else 0.75
    least_depth = 0.25 if data == "flags first" else 0.5
    for curve in ("hilbert", "kd", "zorder") if columns > 1 else ("linear",):
        depth, read = measured(fresh(data, columns, 24, curve=curve))
        assert least_depth <= depth <= (2.5 if data == "flags first" else 1.5)
        assert least_read <= read <= 1.3


@pytest.mark.parametrize(("columns", "files"), [*product([1, 2, 3, 4], [2, 3, 5, 8, 64, 264])])
def test_ratios_do_not_depend_on_how_many_files_there_are(columns: int, files: int) -> None:
    # Of few files, chance decides which column they part: one of two columns gives 1 or 2.
    allowed = 0.2 if columns == 1 or files > 24 else 0.5
    for curve in ("hilbert", "kd"):
        depth, read = measured(fresh("uniform", columns, files, curve=curve, rows_per_file=200))
        assert depth == pytest.approx(1.0, abs=allowed)
        assert read == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("data", "columns", "files", "curve"),
    [
        ("uniform", 2, 1_000, "hilbert"),
        ("mixed", 4, 1_000, "kd"),
        ("skewed", 2, 4_000, "hilbert"),
        ("dates", 1, 10_000, "linear"),
        ("uniform", 2, 10_000, "hilbert"),
        ("uniform", 3, 10_000, "hilbert"),
    ],
)
def test_large_tables_are_about_one_too(data: str, columns: int, files: int, curve: str) -> None:
    depth, read = measured(fresh(data, columns, files, curve=curve, rows_per_file=40))
    assert 0.8 <= depth <= 1.4
    assert 0.8 <= read <= 1.3


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


def test_a_part_is_compared_with_the_same_part() -> None:
    bounds, size_bytes = fresh("uniform", 2, 264)
    low = np.asarray(bounds.low(0))
    part = low < 2 * 10**8
    assert 20 < part.sum() < 132
    depth, read = measured((bounds, size_bytes), mask=part)
    assert depth == pytest.approx(1.0, abs=0.2)
    assert read == pytest.approx(1.0, abs=0.1)
    whole = np.ones(len(low), np.bool_)
    assert measured((bounds, size_bytes), mask=whole) == measured((bounds, size_bytes))


def test_groups_that_are_clustered_apart_are_what_a_rewrite_reaches() -> None:
    made = rows_of("uniform", 2, 40_000)
    halves = [[column.slice(start, 20_000) for column in made] for start in (0, 20_000)]
    files = [file_of_rows(half, 50, curve="hilbert") for half in halves]
    bounds, rows = bounds_by_file(made, np.concatenate([files[0], 50 + files[1]]))
    together = measured((bounds, rows))
    assert together[1] == pytest.approx(2**0.5, abs=0.15)
    apart = measured((bounds, rows), group_bytes=int(rows.sum() * 0.6))
    assert apart == pytest.approx((1.0, 1.0), abs=0.2)


def judged(snapshot: Snapshot, mask: pa.BooleanArray | None = None) -> Health:
    columns = clustering_state(snapshot).columns
    bounds = bounds_of(snapshot)([column.leaf for column in columns])
    health = measure_health(snapshot, columns, bounds, min_cube_bytes=150, mask=mask)
    return with_ratios(health, snapshot, columns, bounds, min_cube_bytes=150, mask=mask)


def dependent(files: int) -> pa.Table:
    """Return rows whose second column is the first one, and a little noise."""
    x = np.random.default_rng(5).integers(0, 1 << 30, 1_000 * files)
    return pa.table({"x": x, "y": x + np.random.default_rng(6).integers(0, 1 << 20, len(x))})


def test_what_was_clustered_together_is_what_a_rewrite_reaches(tmp_path: Path) -> None:
    rows = dependent(24)
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


def test_sampled_rows_tell_what_the_log_does_not(tmp_path: Path) -> None:
    rows = dependent(24).sort_by("x")
    table = Table.create(str(tmp_path / "t"), schema=rows.schema, cluster_by=["x", "y"])
    for start in range(0, len(rows), 1_000):
        table.append(rows.slice(start, 1_000))
    unknown = table.health()
    assert (unknown.depth_ratio, unknown.read_ratio) == (None, None)
    assert "sample rows" in unknown.notes[-1]
    known = table.health(sample=True)
    assert known.read_ratio == pytest.approx(1.0, abs=0.2)
    assert known.depth_ratio is not None
    assert 0.5 < known.depth_ratio < 1.2
    assert "rows of 24 files" in known.notes[-1]


def test_rows_that_cannot_be_read_are_made_up(tmp_path: Path) -> None:
    rows = dependent(4)
    table = Table.create(str(tmp_path / "t"), schema=rows.schema, cluster_by=["x", "y"])
    for start in range(0, len(rows), 1_000):
        table.append(rows.slice(start, 1_000))
    for path in table.files()["path"].to_pylist():
        (tmp_path / "t" / path).unlink()
    found = table.health(sample=True)
    assert found.read_ratio == table.health().read_ratio
    assert "are from the log alone" in found.notes[-1]


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


def test_texts_whose_bounds_are_cut_say_nothing() -> None:
    start = "https://example.com/articles/202"
    files = [FileSpec(path=str(n), bounds={"s": (start, start + "\x7f")}) for n in range(4)]
    found = judged(snapshot_of(files, cluster_by=[["s"]], schema=TEXT))
    assert (found.depth_ratio, found.read_ratio) == (None, None)


@pytest.mark.parametrize(
    "ends",
    [
        [(float("nan"), float("nan")), (float("-inf"), float("inf")), (1.0, 2.0)],
        [(-(2**63), 2**63 - 1), (-(2**63), -5), (5, 2**63 - 1)],
    ],
)
def test_extreme_values_are_compared(ends: list[tuple[Any, Any]]) -> None:
    kind = "double" if isinstance(ends[0][0], float) else "long"
    schema = StructType((StructField("v", PrimitiveType(kind)),))
    files = [FileSpec(path=str(n), bounds={"v": pair}) for n, pair in enumerate(ends)]
    found = judged(snapshot_of(files, cluster_by=[["v"]], schema=schema))
    assert found.depth_ratio is None or found.depth_ratio > 0
