"""What `plan` says a rewrite costs."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.simulation.prices import START_SECONDS
from liquidlog.table import Table
from support.commands import Call, said

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
    prices = ["--hour-price", "36", "--tib-price", "5", "--currency", "EUR"]
    status, found, _ = call(*words, *prices, "--start-seconds", "20")
    assert status == 0
    foretold, costs = found["prediction"], found["costs"]
    assert costs["currency"] == "EUR"
    assert costs["start_seconds"] == 20
    assert costs["seconds"] == pytest.approx(20 + foretold["bytes_to_rewrite"] / 50_000)
    assert costs["rewrite_price"] == pytest.approx(costs["seconds"] / 100)
    spared = (foretold["bytes_before"] - foretold["bytes_after"]) / 2**40 * 5
    assert costs["spared_price_per_read"] == pytest.approx(spared)
    assert costs["break_even_reads"] == pytest.approx(costs["rewrite_price"] / spared)
    for name in ("spared_price_per_read", "break_even_reads"):
        ends = costs[f"{name}_range"]
        assert float(ends["low"]) < costs[name] < float(ends["high"])
    status, found, _ = call(*words)
    assert found["costs"]["seconds"] == pytest.approx(costs["seconds"] - 20 + START_SECONDS)
    assert found["costs"]["rewrite_price"] is found["costs"]["break_even_reads"] is None
    assert found["costs"]["currency"] is None


def test_amounts_are_printed_with_their_currency(table: Table) -> None:
    words = ["plan", table.uri, "--max-file-size", "30000", "--strategy", "overlap"]
    words += ["--where", "day = 42", "--throughput", "50000"]
    prices = ["--hour-price", "36", "--tib-price", "5", "--currency", "CHF"]
    status, shown, _ = said(*words, *prices)
    assert status == 0
    assert " CHF, saves " in shown
    assert "8 s of it until Spark has started" in shown
    assert "in nine of ten cases it saves " in shown


@pytest.mark.parametrize(
    "words",
    [
        ["--hour-price", "1"],
        ["--tib-price", "1"],
        ["--currency", "EUR"],
        ["--hour-price", "1", "--currency", "euro"],
        ["--hour-price", "1", "--currency", "€"],
    ],
)
def test_prices_and_currencies_need_each_other(table: Table, call: Call, words: list[str]) -> None:
    asked = ["--strategy", "overlap", "--where", "day = 42", "--throughput", "50000"]
    status, _, error = call("plan", table.uri, *asked, *words)
    assert status == 2
    assert "currency" in str(error)


@pytest.mark.parametrize(
    "words", [["--throughput", "1MiB"], ["--hour-price", "1"], ["--tib-price", "1"]]
)
def test_prices_without_readers_or_throughput_are_refused(
    table: Table, call: Call, words: list[str]
) -> None:
    assert call("plan", table.uri, *words)[0] == 2
