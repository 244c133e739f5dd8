"""A row group that holds a matching row is never ruled out; DuckDB says which rows match."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from liquidlog.data.parquet_file import ParquetFile
from liquidlog.data.row_group_bounds import read_row_group_bounds
from liquidlog.predicates.conditions import referenced_leaves
from liquidlog.predicates.matching import may_match_each
from liquidlog.spec.bounds import Bounds, concat_bounds
from liquidlog.spec.schema import MappingMode
from support.effort import effort
from support.snapshots import FileSpec, snapshot_of
from support.sql_predicates import ARROW, FILES, PREDICATES, SCHEMA

CONNECTION = duckdb.connect()

_options = st.fixed_dictionaries(
    {
        "row_group_size": st.integers(1, 3),
        "use_dictionary": st.booleans(),
        "store_decimal_as_integer": st.booleans(),
        "version": st.sampled_from(["1.0", "2.6"]),
        "write_statistics": st.sampled_from([True, True, True, ["i", "s", "z"], False]),
        "store_schema": st.booleans(),
    }
)


@settings(max_examples=effort(60, 2_000), deadline=None)
@given(files=FILES, predicate=PREDICATES, options=_options)
def test_row_groups_with_a_matching_row_are_never_ruled_out(
    files: list[list[dict[str, Any]]], predicate: str, options: dict[str, Any]
) -> None:
    snapshot = snapshot_of(
        [FileSpec(path=str(number)) for number in range(len(files))], schema=SCHEMA
    )
    wanted = referenced_leaves(snapshot, [predicate])
    parts, tables, owners, first = [], [], [], 0
    for number, rows in enumerate(files):
        table = pa.Table.from_pylist(rows, ARROW.remove(0))
        groups = np.arange(len(rows)) // options["row_group_size"]
        tables.append(table.add_column(0, "row_group", pa.array(groups + first)))
        parts.append(_read(table, options, wanted))
        owners += [number] * len(parts[-1])
        first += int(groups[-1]) + 1
    found = concat_bounds(parts)
    assert len(found) == first
    inside = replace(snapshot, files=snapshot.files.take(pa.array(owners)), plain_files=None)
    (mask,) = may_match_each(
        inside,
        [predicate],
        lambda leaves: found.select([wanted.index(leaf) for leaf in leaves]),
    )
    CONNECTION.register("rows", pa.concat_tables(tables))
    query = f"SELECT DISTINCT row_group FROM rows WHERE {predicate}"
    matching = {number for (number,) in CONNECTION.execute(query).fetchall()}
    assert matching <= {number for number, may in enumerate(mask.to_pylist()) if may}


def _read(table: pa.Table, options: dict[str, Any], wanted: Any) -> Bounds:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "f.parquet"
        pq.write_table(table, path, **options)
        with ParquetFile(str(path)) as file:
            return read_row_group_bounds(
                file, schema=SCHEMA, mapping=MappingMode.NONE, wanted=wanted
            )
