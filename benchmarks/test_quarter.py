"""The simulated quarter in short: what it counts adds up, and upkeep earns its cost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.repository import ROOT

DAYS = 12


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[dict[str, float]]]]:
    where = tmp_path_factory.mktemp("quarter")
    script = str(ROOT / "benchmarks" / "bench_quarter.py")
    words = ["--days", str(DAYS), "--save", str(where / "all.json"), "--plots", str(where)]
    for only in ("hourly, random, 2", "mostly idle"):
        one = where / f"{len(list(where.iterdir()))}.json"
        words[words.index("--save") + 1] = str(one)
        done = subprocess.run([sys.executable, script, *words, "--only", only], check=False)
        assert done.returncode == 0
    assert Path(where, "quarter.svg").read_text(encoding="utf-8").startswith("<svg")
    made: dict[str, dict[str, list[dict[str, float]]]] = {}
    for path in where.glob("*.json"):
        made |= json.loads(path.read_bytes())
    return made


def total(rows: list[dict[str, float]], name: str) -> float:
    return sum(row[name] for row in rows)


def test_all_keepers_have_the_same_table(
    found: dict[str, dict[str, list[dict[str, float]]]],
) -> None:
    assert len(found) == 2
    for by in found.values():
        sizes = [[row["bytes"] for row in by[keeper]] for keeper in ("tick", "nightly", "never")]
        assert len(sizes[0]) == DAYS
        for one, other, third in zip(*sizes, strict=True):
            # Sizes of outputs are whole bytes.
            assert one == pytest.approx(other, rel=1e-4) == pytest.approx(third, rel=1e-4)


def test_never_writes_nothing_and_reads_most_of_overlapping_files(
    found: dict[str, dict[str, list[dict[str, float]]]],
) -> None:
    by = found["hourly, random, 2 columns"]
    assert total(by["never"], "written") == 0
    assert total(by["never"], "cost") > 2 * total(by["tick"], "cost")
    assert 0 < total(by["tick"], "written") < total(by["nightly"], "written")
    assert total(by["tick"], "cost") < 1.3 * total(by["nightly"], "cost")


def test_an_idle_table_is_seldom_rewritten(
    found: dict[str, dict[str, list[dict[str, float]]]],
) -> None:
    by = found["mostly idle, random"]
    assert total(by["tick"], "rewrites") <= 2
    assert total(by["tick"], "cost") < total(by["never"], "cost")
