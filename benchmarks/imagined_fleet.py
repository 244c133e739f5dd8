"""Logs of a fleet of tables of five kinds, which nobody wrote: no data file exists."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from imagined_logs import ADD, HEAD, SCHEMA

KINDS = ("fresh", "ordered", "mixed", "scattered", "plain")
"""New files that overlap; one cube in order; a cube and new files; wide cubes; no clustering."""

COMMITS = 20
MIB = 1 << 20
_DOMAIN = "delta.clustering"
_BOUNDS = ',"minValues":{{"a":{a},"b":"{b}"}},"maxValues":{{"a":{c},"b":"{d}"}}'


def write_fleet(root: Path, tables: int, files: int) -> None:
    """Write so many tables below a directory, each of so many files, the kinds in turn."""
    for number in range(tables):
        kind = KINDS[number % len(KINDS)]
        write_table(root / f"team{number % 7}" / f"{kind}-{number:04d}", kind, files, number)


def write_table(directory: Path, kind: str, files: int, seed: int) -> None:
    """Write a log: a checkpoint with nine tenths of the files, and commits with the rest."""
    log = directory / "_delta_log"
    log.mkdir(parents=True)
    adds = _adds(kind, files, np.random.default_rng(seed))
    in_checkpoint = files - files // 10
    rows = pa.array(adds[:in_checkpoint], ADD)
    parts = [pa.Table.from_pylist([{name: row}], SCHEMA) for name, row in _head(kind).items()]
    columns = [rows if one.name == "add" else pa.nulls(len(rows), one.type) for one in SCHEMA]
    parts.append(pa.Table.from_arrays(columns, schema=SCHEMA))
    name = f"{0:020d}"
    pq.write_table(pa.concat_tables(parts), log / f"{name}.checkpoint.parquet")
    (log / "_last_checkpoint").write_text(json.dumps({"version": 0, "size": in_checkpoint}))
    (log / f"{name}.json").write_text('{"commitInfo":{"operation":"WRITE"}}\n')
    late = adds[in_checkpoint:]
    for number in range(COMMITS):
        lines = [{"commitInfo": {"operation": "WRITE"}}]
        lines += [{"add": _as_json(one)} for one in late[number::COMMITS]]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (log / f"{number + 1:020d}.json").write_text(text)


def _head(kind: str) -> dict[str, object]:
    """Return the head of a table's checkpoint; a plain table is not clustered."""
    return {name: row for name, row in HEAD.items() if kind != "plain" or name != "domainMetadata"}


def _as_json(add: dict[str, object]) -> dict[str, object]:
    maps = {name: dict(add[name] or ()) for name in ("partitionValues", "tags")}  # type: ignore[call-overload]
    return {name: value for name, value in {**add, **maps}.items() if value is not None}


def _adds(kind: str, files: int, random: np.random.Generator) -> list[dict[str, object]]:
    """Return the files as rows of a checkpoint."""
    share = {"ordered": 1.0, "mixed": 0.7, "scattered": 1.0}.get(kind, 0.0)
    clustered = int(files * share)
    low, high = _boxes(kind, clustered, files, random)
    size = random.integers(8 * MIB, 64 * MIB, files)
    size[:clustered] += 64 * MIB
    tags = [("ZCUBE_ID", f"cube-{kind}"), ("ZCUBE_ZORDER_BY", '["a","b"]')]
    return [
        {
            "path": f"part-{number:05d}-{random.integers(1 << 60):016x}.c000.zstd.parquet",
            "partitionValues": [],
            "size": int(size[number]),
            "modificationTime": 10**12,
            "dataChange": False,
            "stats": _stats(low[number], high[number]),
            "tags": tags if number < clustered else None,
            "clusteringProvider": "liquid" if number < clustered else None,
        }
        for number in range(files)
    ]


def _boxes(
    kind: str, clustered: int, files: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of both columns (files, 2) in 0 to 1: cells of a grid, then wide boxes."""
    width = {"scattered": 0.5}.get(kind, 1 / max(1, int(clustered**0.5)))
    side = max(1, int(clustered**0.5))
    number = np.arange(clustered)
    cells = np.stack([number // side % side, number % side], axis=1) / side
    if kind == "scattered":
        cells = random.random((clustered, 2)) * (1 - width)
    new = random.random((files - clustered, 2)) * 0.1
    low = np.concatenate([cells, new])
    high = np.concatenate([cells + width, new + 0.9 * (1 - new) * random.random(new.shape) + 0.01])
    return low, np.minimum(high, 1.0)


def _stats(low: np.ndarray, high: np.ndarray) -> str:
    first, last = (f"{2026 - int((1 - one) * 20)}-01-01T00:00:00Z" for one in (low[1], high[1]))
    ends = _BOUNDS.format(a=int(low[0] * 10**9), b=first, c=int(high[0] * 10**9), d=last)
    return f'{{"numRecords":100000{ends},"nullCount":{{"a":0,"b":0}}}}'
