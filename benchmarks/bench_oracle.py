"""Compare our layouts with the files that Delta Spark's OPTIMIZE made of the same rows.

    python benchmarks/bench_oracle.py DIRECTORY

DIRECTORY holds `input.parquet` and `expected.json`: for each of the engine's runs the bounds and
row counts of its files, and random predicates, on each column alone and on all together. The same
number of files is laid out here along each curve; printed is the share of all rows in files that a
predicate opens, means over the predicates. Exits with 1 if single-column predicates together,
or those on all columns, open more than the engine's files make them.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from bench_layout import SAMPLE_ROWS, group_work

from liquidlog.curve.curves import Curve
from liquidlog.rewriting.inputs import survey_file
from liquidlog.rewriting.shuffle import build_layout

CURVES = (Curve.HILBERT, Curve.KD)

Predicate = Mapping[str, Sequence[Any]]
"""Smallest and largest value by column."""


class Files(NamedTuple):
    """Bounds of files by column, each (smallest values, largest values), and their rows' shares."""

    bounds: Mapping[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]
    shares: npt.NDArray[np.float64]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    expected = json.loads((directory / "expected.json").read_text())
    worse = False
    sys.stdout.write("| run | files | predicates | Delta Spark | hilbert | kd |\n")
    sys.stdout.write("|---|---|---|---|---|---|\n")
    for name, run in expected["runs"].items():
        columns = run["cluster_by"]
        engine = recorded_files(run["files_after"], columns)
        layouts = [
            engine,
            *(
                our_files(directory / "input.parquet", columns, len(engine.shares), c)
                for c in CURVES
            ),
        ]
        for kind, predicates in predicates_of(expected, name, columns).items():
            found = [opened(files, predicates) for files in layouts]
            worse |= kind in {"single columns", "all columns"} and max(found[1:]) > found[0]
            print_row(name, len(engine.shares), kind, found)
    return int(worse)


def predicates_of(
    expected: Mapping[str, Any], run: str, columns: Sequence[str]
) -> dict[str, list[Predicate]]:
    by_column, by_set = (
        next(value for key, value in expected.items() if key.startswith(prefix))
        for prefix in ("queries_per_column", "conjunctions_per_set")
    )
    alone: dict[str, list[Predicate]] = {
        column: [{column: bounds} for bounds in by_column[column]] for column in columns
    }
    together = next(found for key, found in by_set.items() if run.startswith(key))
    single = [predicate for found in alone.values() for predicate in found]
    return {**alone, "single columns": single, "all columns": together}


def recorded_files(files: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Files:
    rows = np.array([file["numRecords"] for file in files], np.float64)
    bounds = {
        column: (
            np.array([file["minmax"][column][0] for file in files], object),
            np.array([file["minmax"][column][1] for file in files], object),
        )
        for column in columns
    }
    return Files(bounds, rows / rows.sum())


def our_files(path: Path, columns: Sequence[str], files: int, curve: Curve) -> Files:
    rows = pq.read_table(path, columns=list(columns))
    work = group_work([path], columns, files, curve)
    layout = build_layout(work, [survey_file(work, 0, sample_rows=SAMPLE_ROWS)])
    keys = layout.keys_of([rows[column] for column in columns])
    parts = layout.cuts.parts_of(keys, np.arange(len(rows), dtype=np.uint64))
    bounds = {}
    for column in columns:
        values = comparable(rows[column])
        inside = [values[parts == part] for part in range(files)]
        bounds[column] = (
            np.array([found.min() for found in inside], object),
            np.array([found.max() for found in inside], object),
        )
    return Files(bounds, np.bincount(parts, minlength=files) / len(rows))


def comparable(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return values as the recordings have them: timestamps as microseconds."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return np.array(column.to_pylist(), object)


def opened(files: Files, predicates: Sequence[Predicate]) -> float:
    """Return the mean share of rows in the files that a predicate opens."""
    return float(np.mean([files.shares[hits(files, predicate)].sum() for predicate in predicates]))


def hits(files: Files, predicate: Predicate) -> npt.NDArray[np.bool_]:
    met = np.ones(len(files.shares), np.bool_)
    for column, (low, high) in predicate.items():
        smallest, largest = files.bounds[column]
        met &= (largest >= low).astype(np.bool_) & (smallest <= high).astype(np.bool_)
    return met


def print_row(run: str, files: int, kind: str, found: Sequence[float]) -> None:
    engine, *ours = found
    cells = [f"{100 * share:.1f} % ({share / engine - 1:+.0%})" for share in ours]
    sys.stdout.write(f"| {run} | {files} | {kind} | {engine:.1%} | {' | '.join(cells)} |\n")


if __name__ == "__main__":
    sys.exit(main())
