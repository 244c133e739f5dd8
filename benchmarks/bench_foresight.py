"""Compare predictions of full rewrites with what readers open afterwards, on tables of many shapes.

Each table is appended in some files, planned, predicted by sampled rows and by the log alone,
rewritten by the local executor, and asked again, for points of each column. Printed are, per shape,
how many predictions hold: means within their ranges, and within 25 %, and ratios just after.

python benchmarks/bench_foresight.py [SHAPE ...]
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from liquidlog import Table
from liquidlog.foresee.verdict import Range
from liquidlog.predicates.workload import WeightedPredicate

ROWS = 40_000
POINTS = 12
LARGE = 1 << 30
NEAR = 0.25
LEAST_RATIO, MOST_RATIO = 0.85, 1.2
DIMENSIONS_AND_FILES = ((1, 16), (2, 4), (2, 40), (2, 150), (3, 64), (4, 30))

Random = np.random.Generator
Columns = Mapping[str, Any]


def _each(made: Callable[[Random, int], Any]) -> Callable[[Random, int], Columns]:
    return lambda random, d: {f"c{n}": made(random, n) for n in range(d)}


def _dependent(random: Random, d: int) -> Columns:
    x = random.integers(0, LARGE, ROWS)
    more = {f"c{n}": x + random.integers(0, 1 << (30 - 6 * n), ROWS) for n in range(1, d)}
    return {"c0": x, **more}


def _hierarchy(random: Random, d: int) -> Columns:
    x = random.integers(0, 1_000_000, ROWS)
    return {f"c{n}": x // 10 ** (2 * (d - 1 - n)) for n in range(d)}


def _text_hierarchy(random: Random, d: int) -> Columns:
    x = random.integers(0, 10_000, ROWS)
    return {f"c{n}": [f"eu/{v // 1000}/{v // 10 ** (3 - n)}" for v in x] for n in range(d)}


def _text(random: Random, number: int) -> Any:  # noqa: ANN401  values of a column
    found = random.integers(0, 10**7, ROWS)
    return found if number % 2 else [f"user-{one:08d}" for one in found]


def _zipf(random: Random, number: int) -> Any:  # noqa: ANN401
    if number % 2:
        return random.integers(0, LARGE, ROWS)
    return np.minimum(random.zipf(1.3, ROWS), 10**6)


def _nulls(share: float) -> Callable[[Random, int], Any]:
    return lambda random, number: pa.array(
        random.integers(0, LARGE, ROWS), mask=random.random(ROWS) < share * (number % 2 == 0) + 0.01
    )


def _dates(random: Random, d: int) -> Columns:
    start = date(2026, 1, 1)
    days = [start + timedelta(days=int(one)) for one in np.arange(ROWS) // 220]
    country = np.array(["de", "fr", "us", "br", "in", "jp"])[random.zipf(1.6, ROWS) % 6]
    found = {"c0": days, "c1": country, "c2": random.integers(0, 5_000, ROWS)}
    return dict(list({**found, "c3": random.random(ROWS)}.items())[:d])


def _booleans(random: Random, d: int) -> Columns:
    start = datetime(2026, 1, 1)  # noqa: DTZ001  without a zone, as in many tables
    times = [start + timedelta(seconds=int(one)) for one in random.integers(0, 10**7, ROWS)]
    found = {"c0": times, "c1": random.integers(0, 2, ROWS), "c2": random.integers(0, 900, ROWS)}
    return dict(list({**found, "c3": random.random(ROWS)}.items())[:d])


SHAPES: Mapping[str, Callable[[Random, int], Columns]] = {
    "independent": _each(lambda random, _: random.integers(0, LARGE, ROWS)),
    "dependent": _dependent,
    "hierarchy": _hierarchy,
    "text": _each(_text),
    "zipf": _each(_zipf),
    "few values": _each(lambda random, n: random.integers(0, [7, 40, 300, 5_000][n], ROWS)),
    "nulls": _each(_nulls(0.3)),
    "dates": _dates,
    "text hierarchy": _text_hierarchy,
    "zipf pairs": _each(lambda random, _: np.minimum(random.zipf(1.2, ROWS), 10**5)),
    "mostly null": _each(_nulls(0.95)),
    "booleans": _booleans,
    "decimals": _each(
        lambda random, n: [Decimal(int(v)) / 100 for v in random.integers(0, 10 ** (4 + n), ROWS)]
    ),
    "beside ids in order": lambda random, d: {
        **{f"c{n}": random.integers(0, LARGE, ROWS) for n in range(d)},
        "id": np.arange(ROWS),
    },
}
"""The first seven, and others; all columns but `id` are queried and clustered by."""


@dataclass(frozen=True)
class Outcome:
    """What was predicted of one table, beside what came true."""

    files: bool
    bytes: bool
    from_log: bool
    is_near: bool
    ratios: bool


def main() -> None:
    """Print a row per table, and per shape how many predictions hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", nargs="*", default=list(SHAPES))
    names = ("files", "bytes", "from_log", "is_near", "ratios")
    summed = []
    for shape in parser.parse_args().shapes:
        found = [outcome(shape, d, files) for d, files in DIMENSIONS_AND_FILES]
        counts = [sum(getattr(one, name) for one in found) for name in names]
        summed.append(
            f"| {shape} | " + " | ".join(f"{one} of {len(found)}" for one in counts) + " |"
        )
    print("\n| shape | files in range | bytes in range | files from the log in range", end="")
    print(" | bytes within 25 % | ratios 0.85 to 1.2 or none |\n|---|---|---|---|---|---|")
    print("\n".join(summed))


def outcome(shape: str, dimensions: int, files: int) -> Outcome:
    """Make a table, predict its rewrite, and rewrite it."""
    number = list(SHAPES).index(shape)
    random = np.random.default_rng(1_000 * number + 100 * dimensions + files)
    rows = pa.table(dict(SHAPES[shape](random, dimensions)))
    keys = [name for name in rows.column_names if name != "id"]
    asked = []
    for name in keys:
        values = rows[name].take(random.integers(0, ROWS, POINTS)).drop_null().to_pylist()
        asked += [WeightedPredicate(f"{name} = {literal(value)}") for value in values]
    with tempfile.TemporaryDirectory() as home:
        uri = str(Path(home, "t"))
        table = Table.create(uri, schema=rows.schema, cluster_by=keys)
        # Sizes differ, the largest file has about twice as many rows as the smallest.
        ends = np.cumsum(np.linspace(1, 2, files))
        ends = (ends / ends[-1] * ROWS).astype(int)
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            table.append(rows.slice(start, end - start))
        plan = table.plan(full=True, max_file_size=max(2_000, table.snapshot().size_bytes // files))
        found = table.predict(plan, asked)
        from_log = table.predict(plan, asked, sample=False)
        table.optimize(executor="local", plan=plan)
        true, health = table.scan(workload=asked), table.health()
    ratios = (health.depth_ratio, health.read_ratio)
    print(
        f"{shape} {dimensions}x{files}: files {found.files_after:.2f}, true {true.files_read:.2f};"
        f" bytes {found.bytes_after:.0f}, true {true.bytes_read:.0f}; ratios {ratios}",
        flush=True,
    )
    return Outcome(
        files=holds(found.files_after_range, true.files_read),
        bytes=holds(found.bytes_after_range, true.bytes_read),
        from_log=holds(from_log.files_after_range, true.files_read),
        is_near=abs(found.bytes_after / true.bytes_read - 1) <= NEAR
        and abs(found.files_after / true.files_read - 1) <= NEAR,
        ratios=all(one is None or LEAST_RATIO <= one <= MOST_RATIO for one in ratios),
    )


def literal(value: object) -> str:
    """Return a value in SQL."""
    if isinstance(value, datetime):
        return f"TIMESTAMP_NTZ '{value}'"
    if isinstance(value, date):
        return f"DATE '{value}'"
    return f"'{value}'" if isinstance(value, str) else str(value)


def holds(found: Range, number: float) -> bool:
    """Return whether a range has a number."""
    return found.low <= number <= found.high


if __name__ == "__main__":
    main()
