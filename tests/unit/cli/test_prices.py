"""What `plan` says a rewrite costs."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.table import Table
from support.commands import Call

ROWS = 6_000


@pytest.fixture
def table(tmp_path: Path) -> Table:
    random = np.random.default_rng(0)
    schema = pa.schema([("day", pa.int64()), ("part", pa.int64())])
    made = Table.create(str(tmp_path / "t"), schema=schema, cluster_by=["day", "part"])
    for _ in range(4):
        columns = [random.integers(0, most, ROWS) for most in (200, 10**6)]
        made.append(pa.table(columns, schema=schema))
    return made


def test_costs_are_time_and_money_of_the_bytes_foretold(
    table: Table, tmp_path: Path, call: Call
) -> None:
    words = ["plan", table.uri, "--max-file-size", "30000", "--throughput", "50000", "--workload"]
    (tmp_path / "asked.jsonl").write_text('{"where": "day = 42"}\n')
    words.append(str(tmp_path / "asked.jsonl"))
    status, found, _ = call(*words, "--hour-price", "36", "--tib-price", "5")
    assert status == 0
    foretold, costs = found["prediction"], found["costs"]
    assert costs["seconds"] == pytest.approx(foretold["bytes_to_rewrite"] / 50_000)
    assert costs["rewrite_price"] == pytest.approx(costs["seconds"] / 100)
    spared = (foretold["bytes_before"] - foretold["bytes_after"]) / 2**40 * 5
    assert costs["spared_price_per_read"] == pytest.approx(spared)
    assert costs["break_even_reads"] == pytest.approx(costs["rewrite_price"] / spared)
    status, found, _ = call(*words)
    assert found["costs"]["seconds"] == costs["seconds"]
    assert found["costs"]["rewrite_price"] is found["costs"]["break_even_reads"] is None


@pytest.mark.parametrize(
    "words", [["--throughput", "1MiB"], ["--hour-price", "1"], ["--tib-price", "1"]]
)
def test_prices_without_readers_or_throughput_are_refused(
    table: Table, call: Call, words: list[str]
) -> None:
    assert call("plan", table.uri, *words)[0] == 2
