"""Inputs of compactions that copy row groups: files of three columns, in row groups of 500 rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from liquidlog.plan import ClusteringPlan, CopiedRowGroups, InputFile, RewriteMode, RewrittenGroup
from support.plans import make_plan, schema_json_of

COLUMNS = {"a": "long", "b": "string", "d": "double"}
ROWS = 6_000
GROUP_ROWS = 500


def table(rows: int = ROWS) -> pa.Table:
    random = np.random.default_rng(2)
    return pa.table(
        {
            "a": pa.array(random.integers(0, 50, rows)),
            "b": pa.array([f"name {number}" for number in random.integers(0, 400, rows)]),
            "d": pa.array(random.random(rows)),
        }
    )


def inputs_of(directory: Path, groups: list[int], **options: Any) -> tuple[InputFile, ...]:
    """Write one file for each number of rows; rows of at most 500 make a row group."""
    inputs, start = [], 0
    for number, rows in enumerate(groups):
        path = directory / f"input {number}.parquet"
        settings = {"compression": "zstd", "write_page_index": True, "write_page_checksum": True}
        part = table(sum(groups)).slice(start, rows)
        pq.write_table(part, path, row_group_size=GROUP_ROWS, **(settings | options))
        inputs.append(InputFile(path=path.name, size_bytes=path.stat().st_size))
        start += rows
    return tuple(inputs)


def compaction(directory: Path, inputs: tuple[InputFile, ...], outputs: int = 1) -> ClusteringPlan:
    return make_plan(
        directory, schema_json_of(COLUMNS), [(inputs, outputs)], mode=RewriteMode.COMPACTION
    )


def copies(group: RewrittenGroup) -> CopiedRowGroups:
    assert isinstance(group.copied, CopiedRowGroups)
    return group.copied
