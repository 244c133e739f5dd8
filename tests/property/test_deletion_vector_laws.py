"""A file with a vector is the file without those rows, however it is read."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from liquidlog.data.checksum import multiset_checksum
from liquidlog.data.encodings import concat
from liquidlog.data.logical_file import LogicalFile
from liquidlog.plan import InputFile, RowTracking
from liquidlog.spec.arrow import delta_schema
from liquidlog.spec.deletion_vectors import deleted_positions
from support.tables import tables
from support.vectors import MAGIC, write_vector

TRACKING = RowTracking(row_id_column="_id", row_commit_version_column="_version", preserved=True)

runs = st.tuples(st.integers(0, 2**40), st.integers(1, 100_000)).map(
    lambda pair: np.arange(pair[0], pair[0] + pair[1], dtype=np.uint64)
)
scattered = st.lists(st.integers(0, 2**40), max_size=50).map(
    lambda values: np.array(values, np.uint64)
)


@given(parts=st.lists(runs | scattered, max_size=3), optimized=st.booleans())
def test_every_kind_of_container_is_decoded(parts: list[Any], optimized: bool) -> None:  # noqa: FBT001
    wanted = np.unique(np.concatenate([np.empty(0, np.uint64), *parts]))
    bitmap = BitMap64(wanted)
    if optimized:
        bitmap.run_optimize()
    found = deleted_positions(
        MAGIC + bitmap.serialize(), cardinality=len(wanted), num_rows=2**40 + 100_001
    )
    assert np.array_equal(found, wanted)


@given(table=tables(max_rows=40), data=st.data())
def test_a_logical_file_is_its_data_file_without_the_deleted_rows(
    table: pa.Table, data: st.DataObject
) -> None:
    rows = range(len(table))
    deleted = sorted(data.draw(st.sets(st.sampled_from(rows)) if rows else st.just(set())))
    kept = [row for row in rows if row not in set(deleted)]
    offset = data.draw(st.integers(1, 9))
    with TemporaryDirectory() as directory:
        path, vectors = Path(directory) / "f.parquet", Path(directory) / "v.bin"
        pq.write_table(table, path, row_group_size=data.draw(st.integers(1, 50)))
        with LogicalFile.open(
            str(path),
            InputFile(
                path="f.parquet",
                size_bytes=path.stat().st_size,
                num_records=len(table),
                deletion_vector=write_vector(vectors, deleted, offset=offset),
                base_row_id=1000,
                default_row_commit_version=7,
            ),
            schema=delta_schema(table.schema),
            vector_location=str(vectors),
            row_tracking=data.draw(st.sampled_from([None, TRACKING])),
            dictionary=data.draw(st.booleans()),
        ) as file:
            groups = range(file.num_row_groups)
            assert file.num_rows == sum(map(file.row_group_rows, groups)) == len(kept)
            whole = file.read()
            asked = data.draw(
                st.lists(st.sampled_from(groups), unique=True) if groups else st.just([])
            )
            parts = [file.read(row_groups=[group]) for group in sorted(asked)]
            column = file.read(columns=[(table.column_names[0],)])
            together = file.read(row_groups=sorted(asked))
            max_rows = data.draw(st.integers(1, 20))
            bounded = [
                part
                for group in groups
                for part in file.read_in_parts(None, group, max_rows=max_rows)
            ]
    expected = table.take(pa.array(kept, pa.int64()))
    assert multiset_checksum(whole.select(table.column_names)) == multiset_checksum(expected)
    assert multiset_checksum(column) == multiset_checksum(expected.select([0]))
    assert all(len(part) <= max_rows for part in bounded)
    if bounded:
        # As text, in which a NaN is equal to itself.
        assert str(concat(bounded).to_pylist()) == str(whole.to_pylist())
    assert together.num_rows == sum(map(len, parts))
    if parts:
        assert multiset_checksum(pa.concat_tables(parts)) == multiset_checksum(together)
    if "_id" in whole.column_names:
        assert whole["_id"].to_pylist() == [1000 + row for row in kept]
        assert set(whole["_version"].to_pylist()) <= {7}
