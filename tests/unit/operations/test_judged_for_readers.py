"""Which files are kept or merged where readers are known: by what these open."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.plan import ClusteringPlan
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.table import Table

ROWS = 4_000
ON_X = tuple(WeightedPredicate(f"x = {value}") for value in range(30, 8_000, 370))
ON_Y = tuple(WeightedPredicate(f"y = {value}") for value in range(30, 8_000, 370))
OVERLAP: dict[str, Any] = {"strategy": "overlap", "tolerance": 1.1}
KEEPING: dict[str, Any] = {"skip_clustered": True}


def table(path: Path, **properties: str) -> Table:
    """Return a table of files that are narrow in `x` only, and of others that are evenly narrow.

    Twelve files have three quarters of `x` in twelve slices, each with all of `y`. Four have the
    rest of `x`, in four slices of `y`.
    """
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    made = Table.create(
        str(path / "t"), schema=schema, cluster_by=["x", "y"], properties=properties
    )
    random = np.random.default_rng(0)
    ranges = [((n * 500, (n + 1) * 500), (0, 8_000)) for n in range(12)]
    ranges += [((6_000, 8_000), (n * 2_000, (n + 1) * 2_000)) for n in range(4)]
    for x, y in ranges:
        columns = {"x": random.integers(*x, ROWS), "y": random.integers(*y, ROWS)}
        made.append(pa.table(columns, schema=schema))
    return made


def planned(made: Table, **options: Any) -> ClusteringPlan:
    return made.plan(max_file_size=made.detail()["sizeInBytes"] // 16, **options)


def slices(made: Table, plan: ClusteringPlan) -> set[str]:
    """Return of which kinds files are rewritten, "x" or "even"."""
    lows = {file["path"]: file["min"]["x"] for file in made.files().to_pylist()}
    taken = [file.path for group in plan.groups for file in group.inputs]
    return {"x" if lows[path] < 6_000 else "even" for path in taken}


@pytest.mark.parametrize("options", [KEEPING, OVERLAP], ids=["keeping", "overlap"])
def test_files_are_judged_by_the_columns_that_readers_ask_for(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    made = table(tmp_path)
    even = planned(made, **options)
    known = planned(made, **options, workload=ON_X)
    # Without readers, files that have all of `y` are the worst; who asks for `x` alone opens one.
    assert "x" in slices(made, even)
    assert slices(made, known) == {"even"}
    assert known.size_bytes < even.size_bytes


@pytest.mark.parametrize("options", [KEEPING, OVERLAP], ids=["keeping", "overlap"])
def test_remembered_weights_are_readers(tmp_path: Path, options: dict[str, Any]) -> None:
    made = table(tmp_path, **{"liquidlog.weights": "x=1"})
    assert slices(made, planned(made, **options)) == {"even"}
    # A workload wins over what the table remembers.
    assert "x" in slices(made, planned(made, **options, workload=ON_Y))
