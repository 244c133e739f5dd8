"""The curve kernels: nanoseconds per row for range ids, curve keys, row orders and cuts.

python benchmarks/bench_curve.py --rows 2000000
"""

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from liquidlog.curve.curves import (
    Curve,
    CurveSample,
    choose_cuts,
    coordinate_bits,
    curve_index,
    equal_cuts,
    range_boundaries,
    range_ids,
    sort_rows,
    stable_order,
)
from liquidlog.curve.layouts import CurveRows, fit_curve

SEED = 20261121
REPEATS = 3
RANGES = 4096
FILES = 100

Case = tuple[str, Callable[[], object]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    rows = parser.parse_args().rows
    print(f"{rows} rows, best of {REPEATS}\n\n| kernel | ns per row |\n|---|---|")
    for name, run in cases(rows):
        best = min(seconds(run) for _ in range(REPEATS))
        print(f"| {name} | {best / rows * 1e9:.1f} |")


def seconds(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


def cases(rows: int) -> Iterator[Case]:
    rng = np.random.default_rng(SEED)
    numbers = rng.integers(0, 1 << 40, rows)
    columns = {
        "long": pa.array(numbers),
        "double": pa.array(rng.normal(size=rows)),
        "date": pa.array((numbers % 2526).astype(np.int32), pa.date32()),
        "string": pa.array(np.char.add("customer-", (numbers % 100_000).astype(str))),
        "dictionary string": pa.array(np.array(list("abcdefg"))[numbers % 7]).dictionary_encode(),
    }
    sampled = pa.array(np.arange(0, rows, max(1, rows // 200_000)))
    for name, column in columns.items():
        sample = column.take(sampled)
        plain = sample.dictionary_decode() if isinstance(sample, pa.DictionaryArray) else sample
        bounds = range_boundaries(plain, RANGES)
        yield f"range_ids, {name}", lambda c=column, b=bounds: range_ids(c, b)
    for d in (1, 2, 3, 4, 6):
        bits = coordinate_bits(d)
        coords = np.asfortranarray(rng.integers(0, 1 << bits, (rows, d)).astype(np.uint32))
        for curve in Curve:
            name = f"{curve}, {d} columns of {bits} bits"
            yield name, lambda c=coords, b=bits, k=curve: curve_index(c, b, k)
    grid = rng.integers(0, 1 << 16, (rows, 2)).astype(np.uint32)
    keys = curve_index(grid, 16, Curve.HILBERT)
    ordinals = np.arange(rows, dtype=np.uint64)
    pair = [columns["long"], columns["date"]]
    yield "stable_order of 32-bit keys", lambda: stable_order(keys)
    yield "argsort of the same, for scale", lambda: np.argsort(keys, kind="stable")
    yield "order_rows, hilbert, 2 columns", lambda: sort_rows(pair, "hilbert")
    some = slice(None, None, max(1, rows // 200_000))
    sampled, numbers = grid[some], ordinals[some]
    shares = sampled / (1 << 16)
    sample = CurveSample.sort(keys[some], numbers, lows=shares, highs=shares)
    cuts = choose_cuts(sample, FILES)
    yield f"equal_cuts, {FILES} files", lambda: equal_cuts(sample, FILES)
    yield f"choose_cuts, {FILES} files", lambda: choose_cuts(sample, FILES)
    fitted = partial(fit_curve, CurveRows.of(sampled, numbers, 16), FILES, Curve.HILBERT)
    yield f"fit_curve, {FILES} files", fitted
    yield f"parts_of, {FILES} files", lambda: cuts.parts_of(keys, ordinals)


if __name__ == "__main__":
    main()
