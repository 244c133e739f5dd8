"""What the readers of a workload open: today's even layout beside the one fitted to them.

A layout is fitted to one half of the predicates of a mix and judged by them (`own`), then by the
other half, which has other constants (`other`). It may have an eighth more files than the even one.
Rows are placed by the executor's own layout; a file's bounds are those of the rows in it, all rows
count the same. No file is written and no Spark is needed.

python benchmarks/bench_fitted.py FILE.parquet ... --files 24,100
"""

import argparse
import datetime as dt
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench_layout import SAMPLE_ROWS, group_work, plain

from liquidlog.curve.curves import Curve
from liquidlog.curve.layouts import Layout
from liquidlog.plan import FittedWorkload, parsed_as
from liquidlog.predicates.matching import fitted_workload
from liquidlog.predicates.workload import WeightedPredicate, Workload
from liquidlog.rewriting.inputs import GroupWork, Survey, rows_to_sample, survey_file
from liquidlog.rewriting.shuffle import build_layout
from liquidlog.spec.arrow import delta_schema

SEED = 20261122
PREDICATES = 150

Random = np.random.Generator
Predicate = Callable[[Random, pa.Table], str]
Bounds = tuple[list[pa.Array], list[pa.Array], npt.NDArray[np.float64]]


def day(random: Random, table: pa.Table) -> str:
    return f"l_shipdate = DATE '{_one(random, table, 'l_shipdate')}'"


def part(random: Random, table: pa.Table) -> str:
    return f"l_partkey = {_one(random, table, 'l_partkey')}"


def mode(random: Random, table: pa.Table) -> str:
    return f"l_shipmode = '{_one(random, table, 'l_shipmode')}'"


def days(length: int) -> Predicate:
    def where(random: Random, table: pa.Table) -> str:
        first = _one(random, table, "l_shipdate")
        return f"l_shipdate BETWEEN DATE '{first}' AND DATE '{first + dt.timedelta(length - 1)}'"

    return where


def year(random: Random, _: pa.Table) -> str:
    first = int(random.integers(1992, 1998))
    return f"l_shipdate >= DATE '{first}-01-01' AND l_shipdate < DATE '{first + 1}-01-01'"


def parts(random: Random, table: pa.Table) -> str:
    first = _one(random, table, "l_partkey")
    return f"l_partkey BETWEEN {first} AND {first + 20_000}"


def some_parts(random: Random, table: pa.Table) -> str:
    chosen = ", ".join(str(_one(random, table, "l_partkey")) for _ in range(3))
    return f"l_partkey IN ({chosen})"


def both(one: Predicate, other: Predicate) -> Predicate:
    return lambda random, table: f"{one(random, table)} AND {other(random, table)}"


def _one(random: Random, table: pa.Table, column: str) -> object:
    return table[column][int(random.integers(len(table)))].as_py()


@dataclass(frozen=True, slots=True)
class Mix:
    columns: tuple[str, ...]
    asked: tuple[tuple[float, Predicate], ...]

    def workload(self, random: Random, table: pa.Table) -> Workload:
        return tuple(
            WeightedPredicate(where(random, table), share / PREDICATES)
            for share, where in self.asked
            for _ in range(PREDICATES)
        )


TWO = ("l_shipdate", "l_partkey")
THREE = ("l_shipdate", "l_partkey", "l_shipmode")
MIXES = {
    "80 % days, 20 % parts": Mix(TWO, ((0.8, day), (0.2, part))),
    "half days, half parts": Mix(TWO, ((0.5, day), (0.5, part))),
    "95 % days, 5 % parts": Mix(TWO, ((0.95, day), (0.05, part))),
    "10 % days, 90 % parts": Mix(TWO, ((0.1, day), (0.9, part))),
    "70 % years, 30 % parts": Mix(TWO, ((0.7, year), (0.3, part))),
    "60 % 30 days, 40 % ranges of parts": Mix(TWO, ((0.6, days(30)), (0.4, parts))),
    "70 % a day and a part, 30 % three parts": Mix(
        TWO, ((0.7, both(day, part)), (0.3, some_parts))
    ),
    "a mode and 7 days, always": Mix(THREE, ((1.0, both(mode, days(7))),)),
    "40 % modes, 40 % days, 20 % parts": Mix(THREE, ((0.4, mode), (0.4, day), (0.2, part))),
    "20 % modes, 60 % years, 20 % parts": Mix(THREE, ((0.2, mode), (0.6, year), (0.2, part))),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inputs", nargs="+", type=Path)
    parser.add_argument("--files", default="24,100")
    parser.add_argument("--curves", default="hilbert,kd")
    parser.add_argument("--prefix", action="store_true", help="measure a prefix instead")
    arguments = parser.parse_args()
    table = pq.ParquetDataset([str(path) for path in arguments.inputs]).read(columns=list(THREE))
    table = table.cast(pa.schema([plain(field) for field in table.schema]))
    if arguments.prefix:
        print(
            "| files | curve | mean | most | files of one mode | with prefix: mean | most | files |"
        )
        print("|---:|---|---:|---:|---:|---:|---:|---:|")
        for files in map(int, arguments.files.split(",")):
            for curve in map(Curve, arguments.curves.split(",")):
                found = prefixed(arguments.inputs, table, files, curve)
                print(f"| {files} | {curve.value} | {found} |", flush=True)
        return
    print("| mix | files | curve | even | fitted | its files | own | other | fitted in |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|")
    for files in map(int, arguments.files.split(",")):
        for curve in map(Curve, arguments.curves.split(",")):
            for name, mix in MIXES.items():
                found = row(arguments.inputs, table, mix, files, curve)
                print(f"| {name} | {files} | {curve.value} |{found}", flush=True)


def prefixed(inputs: Sequence[Path], table: pa.Table, files: int, curve: Curve) -> str:
    """Return what readers of one mode open, in multiples of its rows, without and with a prefix."""
    columns = ("l_shipmode", "l_shipdate", "l_partkey")
    work = group_work(inputs, columns, files, curve)
    counts = pc.value_counts(table["l_shipmode"])
    modes = list(zip(counts.field("values"), counts.field("counts").to_pylist(), strict=True))
    found = []
    for prefix in ((), (0,)):
        layout, _ = layout_of(replace(work, prefix=prefix))
        lows, highs, shares = bounds_of(layout, table.select(list(columns)))
        met = [
            np.asarray(pc.and_(pc.less_equal(lows[0], mode), pc.greater_equal(highs[0], mode)))
            for mode, _ in modes
        ]
        opens = [
            float(shares[mask].sum()) * len(table) / count
            for mask, (_, count) in zip(met, modes, strict=True)
        ]
        single = int(np.asarray(pc.equal(lows[0], highs[0])).sum())
        found.append(f"{np.mean(opens):.2f} | {max(opens):.2f} | {single} of {len(shares)}")
    return " | ".join(found)


def row(inputs: Sequence[Path], table: pa.Table, mix: Mix, files: int, curve: Curve) -> str:
    random = np.random.default_rng(SEED)
    own, other = mix.workload(random, table), mix.workload(random, table)
    schema = delta_schema(pq.read_schema(inputs[0]))
    paths = [(name,) for name in mix.columns]
    work = group_work(inputs, mix.columns, files, curve)
    even_layout, _ = layout_of(work)
    readers = fitted_workload(own, paths, schema)
    fitted_layout, seconds = layout_of(replace(work, readers=readers))
    columns = table.select(list(mix.columns))
    even, fitted = bounds_of(even_layout, columns), bounds_of(fitted_layout, columns)
    found = [
        (opened(even, asked), opened(fitted, asked))
        for asked in (readers, fitted_workload(other, paths, schema))
    ]
    changes = " | ".join(f"{after / before - 1:+.1%}" for before, after in found)
    before, after = found[0]
    return f" {before:.2%} | {after:.2%} | {fitted_layout.outputs} | {changes} | {seconds:.1f} s |"


def layout_of(work: GroupWork) -> tuple[Layout, float]:
    wanted = rows_to_sample(work.sizes_bytes, max(SAMPLE_ROWS, 2_000 * work.outputs))
    surveys: list[Survey] = [
        survey_file(work, file, sample_rows=rows) for file, rows in enumerate(wanted)
    ]
    began = time.process_time()
    layout = build_layout(work, surveys)
    return layout, time.process_time() - began


def bounds_of(layout: Layout, table: pa.Table) -> Bounds:
    """Return the bounds of each column per file, and the files' shares of the rows."""
    rows = np.arange(len(table), dtype=np.uint64)
    keys = layout.keys_of([table[name] for name in table.column_names])
    files = layout.cuts.parts_of(keys, rows)
    grouped = table.append_column("file", pa.array(files)).group_by("file")
    found = grouped.aggregate(
        [(name, end) for name in table.column_names for end in ("min", "max")] + [([], "count_all")]
    )
    lows, highs = (
        [found[f"{name}_{end}"].combine_chunks() for name in table.column_names]
        for end in ("min", "max")
    )
    return lows, highs, found["count_all"].to_numpy() / len(table)


def opened(bounds: Bounds, asked: FittedWorkload) -> float:
    """Return the share of the rows that is in the files that the mean reader opens."""
    lows, highs, shares = bounds
    total = 0.0
    for predicate in asked.predicates:
        met = np.zeros(len(shares), np.bool_)
        for terms in predicate.any_of:
            here = np.ones(len(shares), np.bool_)
            for term in terms:
                low, high = lows[term.column], highs[term.column]
                ends = [parsed_as(low.type, [one.low, one.high]) for one in term.intervals]
                inside = [
                    np.asarray(pc.and_(pc.less_equal(low, end[1]), pc.greater_equal(high, end[0])))
                    for end in ends
                ]
                here &= np.logical_or.reduce(inside)
            met |= here
        total += predicate.weight * float(shares[met].sum())
    return total / sum(predicate.weight for predicate in asked.predicates)


if __name__ == "__main__":
    main()
