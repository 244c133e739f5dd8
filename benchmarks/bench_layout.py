"""What narrow predicates read: equal cuts, chosen cuts and k-d boxes, beside the floor.

Rows are placed by the executor's own layout; a file's bounds are those of the rows in it, all rows
count the same. No file is written and no Spark is needed.

python benchmarks/bench_layout.py FILE.parquet ... --columns l_shipdate,l_partkey --files 24,100
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from liquidlog.curve.curves import (
    Curve,
    CurveSample,
    coordinate_bits,
    equal_cuts,
    range_boundaries,
    range_ids,
)
from liquidlog.curve.layouts import CurveGrid, Layout
from liquidlog.data.reader import Located
from liquidlog.plan import InputFile, WriterOptions
from liquidlog.rewriting.inputs import GroupWork, Survey, rows_to_sample, survey_file
from liquidlog.rewriting.shuffle import build_layout, first_ordinals
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.schema import schema_json

SEED = 20261121
PREDICATES = 300
RANGE_SHARE = 0.01
SAMPLE_ROWS = 200_000
EVERY_VALUE = 1 << 31

Ranks = npt.NDArray[np.int64]


class Shares(NamedTuple):
    """Shares of all rows that a reader opens, means over predicates."""

    point: list[float]
    one_percent: list[float]
    all_points: float
    all_one_percent: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("inputs", nargs="+", type=Path)
    parser.add_argument("--columns", required=True)
    parser.add_argument("--files", default="24,100")
    arguments = parser.parse_args()
    columns = arguments.columns.split(",")
    table = pq.ParquetDataset([str(path) for path in arguments.inputs]).read(columns=columns)
    table = table.cast(pa.schema([plain(field) for field in table.schema]))
    ranks = np.column_stack([ranks_of(table[name]) for name in columns])
    print("| files | layout | point | 1 % range | all points | all 1 % ranges |")
    print("|---|---|---|---|---|---|")
    for files in map(int, arguments.files.split(",")):
        floor = files ** (-1 / len(columns))
        for name, parts in layouts(arguments.inputs, table, columns, files):
            print(f"| {files} | {name} | {rendered(shares(ranks, parts))} |")
        print(f"| {files} | floor | {100 * floor:.1f} % | | {100 / files:.2f} % | |")


def layouts(
    inputs: Sequence[Path], table: pa.Table, columns: Sequence[str], files: int
) -> list[tuple[str, npt.NDArray[np.int64]]]:
    work = group_work(inputs, columns, files, Curve.HILBERT)
    sizes = work.sizes_bytes
    wanted = rows_to_sample(sizes, max(SAMPLE_ROWS, 2_000 * files))
    surveys = [survey_file(work, file, sample_rows=rows) for file, rows in enumerate(wanted)]
    hilbert = build_layout(work, surveys)
    boxes = build_layout(replace(work, curve=Curve.KD), surveys)
    arrays = [table[name] for name in columns]
    rows = np.arange(len(table), dtype=np.uint64)
    plain_grid = CurveGrid(Curve.HILBERT, coordinate_bits(len(columns)), (1,) * len(columns))
    whole = replace(hilbert, order=plain_grid)
    even = equal_cuts(sample_of(whole, surveys), files)
    return [
        ("equal cuts", even.parts_of(whole.keys_of(arrays), rows)),
        ("hilbert", hilbert.cuts.parts_of(hilbert.keys_of(arrays), rows)),
        ("kd", boxes.cuts.parts_of(boxes.keys_of(arrays), rows)),
    ]


def sample_of(layout: Layout, surveys: Sequence[Survey]) -> CurveSample:
    d = len(layout.axes)
    columns = [pa.concat_arrays([survey.columns[j] for survey in surveys]) for j in range(d)]
    firsts = first_ordinals(surveys)
    rows = [survey.rows + np.uint64(first) for survey, first in zip(surveys, firsts, strict=True)]
    unused = np.zeros((len(columns[0]), d))
    return CurveSample.sort(
        layout.keys_of(columns), np.concatenate(rows), lows=unused, highs=unused
    )


def group_work(
    inputs: Sequence[Path], columns: Sequence[str], files: int, curve: Curve
) -> GroupWork:
    return GroupWork(
        directory="",
        inputs=tuple(
            Located(InputFile(path=str(path), size_bytes=path.stat().st_size), str(path))
            for path in inputs
        ),
        outputs=files,
        schema_string=schema_json(delta_schema(pq.read_schema(inputs[0]))),
        columns=tuple((name,) for name in columns),
        curve=curve,
        writer_options=WriterOptions(indexed=()),
        token="",
        slice_bytes=1 << 62,
    )


def plain(field: pa.Field) -> pa.Field:
    return field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field


def ranks_of(column: pa.ChunkedArray) -> Ranks:
    ids: Ranks = range_ids(column, range_boundaries(column, EVERY_VALUE)).astype(np.int64)
    return ids


def shares(
    ranks: Ranks, parts: npt.NDArray[np.int64], weight: npt.NDArray[np.float64] | None = None
) -> Shares:
    """Return what predicates open of parts that weigh so much, else their shares of the rows."""
    order = np.argsort(parts, kind="stable")
    starts = np.flatnonzero(np.diff(parts[order], prepend=-1))
    low = np.minimum.reduceat(ranks[order], starts)
    high = np.maximum.reduceat(ranks[order], starts)
    if weight is None:
        weight = np.diff(np.append(starts, len(order))) / len(order)
    rng = np.random.default_rng(SEED)
    points = ranks[rng.integers(0, len(ranks), PREDICATES)]
    ordered = np.sort(ranks, axis=0)
    width = int(len(ranks) * RANGE_SHARE)
    first = rng.integers(0, len(ranks) - width, (PREDICATES, ranks.shape[1]))
    froms, to = (np.take_along_axis(ordered, at, axis=0) for at in (first, first + width))
    # A box of one percent per column around a row, so that all columns together meet rows.
    half = np.ceil(width / 2).astype(np.int64)
    places = np.column_stack(
        [np.searchsorted(ordered[:, j], points[:, j]) for j in range(ranks.shape[1])]
    )
    box_from = np.take_along_axis(ordered, np.maximum(places - half, 0), axis=0)
    box_to = np.take_along_axis(ordered, np.minimum(places + half, len(ranks) - 1), axis=0)
    point_hits, range_hits = hits(low, high, points, points), hits(low, high, froms, to)
    return Shares(
        point=[float((point_hits[:, :, j] @ weight).mean()) for j in range(ranks.shape[1])],
        one_percent=[float((range_hits[:, :, j] @ weight).mean()) for j in range(ranks.shape[1])],
        all_points=float((point_hits.all(axis=2) @ weight).mean()),
        all_one_percent=float((hits(low, high, box_from, box_to).all(axis=2) @ weight).mean()),
    )


def hits(low: Ranks, high: Ranks, froms: Ranks, to: Ranks) -> npt.NDArray[np.bool_]:
    """Whether a file can hold what a predicate selects (predicates, files, columns)."""
    met: npt.NDArray[np.bool_] = (high[None] >= froms[:, None]) & (low[None] <= to[:, None])
    return met


def rendered(found: Shares) -> str:
    point = ", ".join(f"{100 * share:.1f}" for share in found.point)
    one_percent = ", ".join(f"{100 * share:.1f}" for share in found.one_percent)
    return (
        f"{point} % | {one_percent} % | {100 * found.all_points:.2f} % |"
        f" {100 * found.all_one_percent:.2f} %"
    )


if __name__ == "__main__":
    main()
