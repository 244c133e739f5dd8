"""Statistics read as text from recorded checkpoints say what they say read as columns."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.errors import LiquidlogError
from liquidlog.log import statistics
from liquidlog.log.loader import load_snapshot, open_store
from liquidlog.log.statistics import load_bounds, raw_statistics, rendered_statistics
from liquidlog.snapshot import STATISTICS_TYPE
from liquidlog.spec.bounds import indexed_leaves, parse_bounds
from support.plain_bounds import plain_bounds
from support.repository import ROOT

CHECKPOINTED = sorted(
    {
        path.parents[1]
        for pattern in ("*.checkpoint*.parquet", "*.checkpoint*.json")
        for path in (ROOT / "fixtures" / "logs").glob(f"*/table/_delta_log/{pattern}")
    }
)


@pytest.mark.parametrize("table", CHECKPOINTED, ids=lambda table: table.parent.name)
def test_texts_have_the_bounds_that_columns_have(table: Path) -> None:
    store = open_store(str(table))
    try:
        snapshot = load_snapshot(store)
    except LiquidlogError:
        pytest.skip("cannot be read at all")
    leaves = indexed_leaves(snapshot.schema, snapshot.metadata.configuration)
    texts = pa.array(raw_statistics(store, snapshot, snapshot.files), STATISTICS_TYPE)
    expected = load_bounds(store, snapshot, leaves)
    assert plain_bounds(parse_bounds(texts, leaves)) == plain_bounds(expected)


@pytest.mark.parametrize("table", CHECKPOINTED, ids=lambda path: path.parent.name)
def test_bounds_of_some_files_are_those_among_all(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(str(table))
    try:
        snapshot = load_snapshot(store)
    except LiquidlogError:
        pytest.skip("cannot be read at all")
    columns = indexed_leaves(snapshot.schema, snapshot.metadata.configuration)
    among_all = load_bounds(store, snapshot, columns)
    monkeypatch.setattr(statistics, "_FEW_SHARE", 1.0)
    for step in (1, 2, 3):
        rows = pa.array(range(0, snapshot.files.num_rows, step), pa.int64())
        some = replace(snapshot, files=snapshot.files.take(rows), plain_files=None)
        found = load_bounds(store, some, columns)
        assert plain_bounds(found) == plain_bounds(among_all.take(rows))


def test_there_are_checkpoints() -> None:
    assert len(CHECKPOINTED) > 5


def test_rendered_values_are_the_protocols() -> None:
    text = rendered_statistics(
        {
            "numRecords": 2,
            "minValues": {
                "d": Decimal("12345678901234567890.123456789012345678"),
                "f": float("-inf"),
                "n": None,
            },
            "maxValues": {"f": float("nan"), "t": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)},
        }
    )
    assert text == (
        '{"numRecords":2,"minValues":{"d":12345678901234567890.123456789012345678,'
        '"f":"-Infinity"},"maxValues":{"f":"NaN","t":"2026-01-02T03:04:05.678Z"}}'
    )
