"""A rewrite of any table keeps its live rows, as DuckDB reads them, whatever way it takes."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from pyroaring import BitMap64

from liquidlog.curve.curves import Curve
from liquidlog.data.deleted_rows import DeletedRows, FileLayout, FoundRows, Output, find_rows
from liquidlog.data.encodings import concat, multiset_checksum
from liquidlog.data.reader import DataLayout, Located, LogicalFile
from liquidlog.data.runs import Run
from liquidlog.errors import RowsNotFoundError
from liquidlog.plan import InputFile, RowTracking, WriterOptions
from liquidlog.rewriting.groups import rewrite_alone
from liquidlog.rewriting.inputs import GroupWork
from liquidlog.rewriting.outputs import TaskFacts
from liquidlog.spec.actions import (
    deleted_positions,
    encode_z85,
    encoded_payload,
    framed_bytes,
    framed_payload,
    stored_vector,
    vector_codes,
    vector_file,
    vector_file_name,
    vector_path,
)
from liquidlog.spec.arrow import delta_schema, leaf_column
from liquidlog.spec.bounds import has_bounds, parse_bounds
from liquidlog.spec.schema import leaves, schema_json
from support.deleted import (
    MAGIC,
    NONE,
    as_texts,
    bag,
    layout_of,
    live_rows,
    physical_rows,
    positions,
    without,
    write_input,
    write_output,
    write_vector,
)
from support.tables import ordered, tables
from support.tasks import shuffled

RUN = "0123456789ab"


@dataclass(frozen=True)
class Case:
    """A table, which of its rows each file gets and has deleted, and how it is rewritten."""

    table: pa.Table
    edges: Sequence[int]
    deleted: Sequence[frozenset[int]]
    row_group_rows: int
    dictionaries: Sequence[bool]
    columns: tuple[tuple[str, ...], ...]
    curve: Curve | None
    outputs: int
    slice_bytes: int
    by_shuffle: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    table = draw(tables(max_rows=40))
    rows, files = table.num_rows, draw(st.integers(1, 4))
    cuts = sorted(draw(st.lists(st.integers(0, rows), min_size=files - 1, max_size=files - 1)))
    edges = [0, *cuts, rows]
    sizes = [high - low for low, high in pairwise(edges)]
    deleted = [
        draw(st.frozensets(st.integers(0, max(size - 1, 0)), max_size=size)) for size in sizes
    ]
    known = delta_schema(table.schema)
    eligible = [leaf.physical for leaf in leaves(known) if has_bounds(leaf.data_type)]
    columns = draw(st.lists(st.sampled_from(eligible), max_size=3, unique=True)) if eligible else []
    return Case(
        table=table,
        edges=edges,
        deleted=deleted,
        row_group_rows=draw(st.integers(1, 20)),
        dictionaries=[draw(st.booleans()) for _ in sizes],
        columns=tuple(columns),
        curve=draw(st.sampled_from(Curve)) if columns else None,
        outputs=draw(st.integers(1, 4)),
        slice_bytes=draw(st.sampled_from([1, 1000, 1 << 30])),
        by_shuffle=draw(st.booleans()) and bool(columns),
    )


def written(case: Case, directory: Path) -> GroupWork:
    schema = delta_schema(case.table.schema)
    inputs = []
    Run(str(directory), RUN).begin()
    for number, deleted in enumerate(case.deleted):
        start, stop = case.edges[number], case.edges[number + 1]
        path = directory / f"input {number}.parquet"
        pq.write_table(
            case.table.slice(start, stop - start),
            path,
            row_group_size=case.row_group_rows,
            use_dictionary=case.dictionaries[number],
            store_schema=False,
        )
        vector = directory / f"vector {number}" if deleted else None
        file = InputFile(
            path=path.name,
            size_bytes=path.stat().st_size,
            num_records=stop - start,
            deletion_vector=None if vector is None else write_vector(vector, deleted),
        )
        inputs.append(Located(file, str(path), None if vector is None else str(vector)))
    return GroupWork(
        directory=str(directory),
        inputs=tuple(inputs),
        outputs=case.outputs,
        schema_string=schema_json(schema),
        columns=case.columns,
        curve=case.curve,
        writer_options=WriterOptions(indexed=tuple(leaf.physical for leaf in leaves(schema))),
        token=RUN,
        slice_bytes=case.slice_bytes,
    )


def rewritten(case: Case, work: GroupWork) -> TaskFacts:
    live = case.table.num_rows - sum(map(len, case.deleted))
    if case.by_shuffle and live:
        return shuffled(work, sample_rows=10, split_rows=7)
    return rewrite_alone((work, 10))


def duckdb_rows(path: Path, deleted: frozenset[int] = frozenset()) -> Counter[str]:
    """Return the live rows of a file as DuckDB reads them; repr tells -0.0 from 0.0."""
    query = "select * from read_parquet(?, file_row_number=true)"
    try:
        rows = duckdb.execute(query, [str(path)]).fetchall()
    except duckdb.InvalidInputException as error:
        # DuckDB refuses maps that name a key twice, which Parquet and Delta do not forbid.
        if "Map keys must be unique" not in str(error):
            raise
        reject()
    return Counter(repr(row[:-1]) for row in rows if row[-1] not in deleted)


@given(case=cases())
def test_live_rows_are_the_same_multiset_and_statistics_bound_them(case: Case) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        work = written(case, directory)
        expected = Counter[str]()
        for path, deleted in zip(work.paths, case.deleted, strict=True):
            expected.update(duckdb_rows(Path(path), deleted))
        facts = rewritten(case, work)
        assert facts.failure is None
        assert facts.read == facts.written
        found = Counter[str]()
        for output in facts.outputs:
            found.update(duckdb_rows(directory / output.path))
            check_statistics(case, pq.read_table(directory / output.path), output.stats)
        assert found == expected
        assert len(facts.outputs) <= case.outputs


def check_statistics(case: Case, rows: pa.Table, stats: str) -> None:
    """Check that no value of a file is outside of the bounds that a reader takes from the log."""
    columns = [
        leaf for leaf in leaves(delta_schema(case.table.schema)) if has_bounds(leaf.data_type)
    ]
    bounds = parse_bounds(pa.array([stats]), columns)
    assert bounds.num_records[0].as_py() == rows.num_rows
    for number, leaf in enumerate(columns):
        column = leaf_column(rows, leaf.physical)
        assert bounds.null_count(number)[0].as_py() == column.null_count
        values = [v for v in column.drop_null().to_pylist() if v == v]  # noqa: PLR0124  not NaN
        low, high = (ends[0].as_py() for ends in (bounds.low(number), bounds.high(number)))
        if values and low is not None:
            assert ordered(low) <= min(map(ordered, values))
        if values and high is not None and high == high:  # noqa: PLR0124
            assert ordered(high) >= max(map(ordered, values))


# Deleted rows are found in outputs: what is left of both is the same, and nothing else passes.


TRACKING = RowTracking(row_id_column="_id", row_commit_version_column="_version", preserved=True)
LIMIT = 1 << 30


@dataclass(frozen=True)
class Rewrite:
    """Files of a rewrite; `live` are the physical rows of each input that the plan had."""

    layout: FileLayout
    inputs: list[DeletedRows]
    live: list[list[int]]
    outputs: list[Output]

    def find(self, inputs: list[DeletedRows], outputs: list[Output]) -> FoundRows:
        return find_rows(inputs, outputs, layout=self.layout, limit_bytes=LIMIT)


@st.composite
def rewrites(draw: st.DrawFn, directory: Path, *, tracked: bool | None = None) -> Rewrite:
    """Rewrites of tables in which rows occur several times."""
    distinct = draw(tables(max_rows=5).filter(len))
    number = st.integers(0, len(distinct) - 1)
    tracked = draw(st.booleans()) if tracked is None else tracked
    layout = layout_of(distinct.schema, row_tracking=TRACKING if tracked else None)
    bounded = [leaf.physical for leaf in leaves(layout.schema) if has_bounds(leaf.data_type)]
    columns = draw(st.lists(st.sampled_from(bounded), max_size=2, unique=True)) if bounded else []
    layout = replace(layout, columns=tuple(columns))
    inputs, live, first = [], [], 0
    for n in range(draw(st.integers(1, 3))):
        rows = distinct.take(pa.array(draw(st.lists(number, min_size=1, max_size=9))))
        planned = draw(st.sets(st.integers(0, len(rows) - 1), max_size=2))
        path = directory / f"in{n}.parquet"
        inputs.append(write_input(path, rows, planned=planned, first=first))
        live.append([row for row in range(len(rows)) if row not in planned])
        first += len(rows)
    moved = pa.concat_tables([live_rows(one, layout) for one in inputs])
    moved = moved.take(pa.array(draw(st.permutations(range(len(moved)))), pa.int64()))
    parts = draw(st.integers(1, 3))
    cuts = st.lists(st.integers(0, 9), max_size=2)
    size = -(-len(moved) // parts)
    outputs = [
        write_output(
            directory / f"out{n}.parquet", moved.slice(n * size, size), layout, cuts=draw(cuts)
        )
        for n in range(parts)
    ]
    return Rewrite(layout, inputs, live, outputs)


def left_of_inputs(rewrite: Rewrite, gone: list[set[int]]) -> pa.Table:
    parts = []
    for one, live, rows in zip(rewrite.inputs, rewrite.live, gone, strict=True):
        numbers = [place for place, row in enumerate(live) if row in rows]
        parts.append(without(live_rows(one, rewrite.layout), numbers))
    return pa.concat_tables(parts)


def left_of_outputs(rewrite: Rewrite, outputs: list[Output]) -> pa.Table:
    return pa.concat_tables(
        without(physical_rows(one.address, rewrite.layout), one.deleted) for one in outputs
    )


def subsets(rows: list[int]) -> st.SearchStrategy[set[int]]:
    return st.sets(st.sampled_from(rows)) if rows else st.just(set())


@given(data=st.data())
def test_outputs_without_found_rows_are_inputs_without_deleted_ones(data: st.DataObject) -> None:
    with TemporaryDirectory() as directory:
        rewrite = data.draw(rewrites(Path(directory)))
        gone: list[set[int]] = [set() for _ in rewrite.inputs]
        outputs = rewrite.outputs
        for _ in range(data.draw(st.integers(1, 3), label="attempts")):
            deleted = []
            for number, live in enumerate(rewrite.live):
                already = positions(gone[number])
                if data.draw(st.integers(0, 4), label="whole") == 0:
                    new, now = None, set(live)
                else:
                    now = data.draw(subsets(live)) - gone[number]
                    new = positions(now)
                deleted.append(replace(rewrite.inputs[number], positions=new, already=already))
                gone[number] |= now
            found = rewrite.find(deleted, outputs)
            assert found == found_again(rewrite, deleted, outputs, found)
            outputs = [
                replace(one, deleted=np.union1d(one.deleted, rows))
                for one, rows in zip(outputs, found.positions, strict=True)
            ]
            assert all(one.deleted.dtype == np.uint64 for one in outputs)
            expected, actual = left_of_inputs(rewrite, gone), left_of_outputs(rewrite, outputs)
            assert bag(actual) == bag(expected)
            assert multiset_checksum(actual) == multiset_checksum(expected)


def found_again(
    rewrite: Rewrite, deleted: list[DeletedRows], outputs: list[Output], found: FoundRows
) -> FoundRows:
    """What brute force finds: of equal rows the first, in the order of the outputs."""
    wanted: list[str] = []
    tables_deleted = []
    for one, live in zip(deleted, rewrite.live, strict=True):
        new = set(live) if one.positions is None else set(one.positions.tolist())
        new -= set(one.already.tolist())
        rows = live_rows(one, rewrite.layout)
        taken = rows.take(pa.array([live.index(row) for row in sorted(new)], pa.int64()))
        wanted += as_texts(taken)
        tables_deleted.append(taken)
    left = list(wanted)
    places: list[list[int]] = []
    for output in outputs:
        places.append([])
        for row, text in enumerate(as_texts(physical_rows(output.address, rewrite.layout))):
            if row not in output.deleted.tolist() and text in left:
                left.remove(text)
                places[-1].append(row)
    assert not left
    for expected, actual in zip(places, found.positions, strict=True):
        assert actual.tolist() == expected
    return FoundRows(
        positions=found.positions,
        rows=len(wanted),
        bytes_read=found.bytes_read,
        checksum=multiset_checksum(pa.concat_tables(tables_deleted)),
    )


@given(data=st.data())
def test_rows_that_are_missing_or_changed_are_refused(data: st.DataObject) -> None:
    with TemporaryDirectory() as directory:
        rewrite = data.draw(rewrites(Path(directory)))
        rows = pa.concat_tables(
            physical_rows(one.address, rewrite.layout) for one in rewrite.outputs
        )
        if not len(rows):
            return
        number = data.draw(st.integers(0, len(rows) - 1), label="sabotaged row")
        lost = without(rows, [number])
        other = data.draw(st.none() | st.integers(0, len(rows) - 1), label="there instead")
        texts = as_texts(rows)
        if other is not None and texts[other] == texts[number]:
            return
        added = [] if other is None else [rows.slice(other, 1)]
        path = Path(directory) / "sabotaged.parquet"
        output = write_output(path, pa.concat_tables([lost, *added]), rewrite.layout)
        whole = [replace(one, positions=None) for one in rewrite.inputs]
        with pytest.raises(RowsNotFoundError) as caught:
            rewrite.find(whole, [output])
        assert (caught.value.rows, caught.value.missing) == (len(rows), 1)


def test_there_is_nothing_to_find_where_nothing_was_deleted(tmp_path: Path) -> None:
    layout = layout_of(pa.schema([("x", pa.int64())]))
    rows = pa.table({"x": [1, 2]})
    output = write_output(tmp_path / "o.parquet", rows, layout)
    gone = replace(write_input(tmp_path / "i.parquet", rows), address="/nowhere", positions=NONE)
    found = find_rows([gone], [output], layout=layout, limit_bytes=0)
    assert (found.rows, found.bytes_read, found.checksum) == (0, 0, 0)


# A file with a vector is the file without those rows, however it is read.


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
def test_a_logical_file_is_a_file_without_deleted_rows(
    table: pa.Table, data: st.DataObject
) -> None:
    rows = range(len(table))
    deleted = sorted(data.draw(st.sets(st.sampled_from(rows)) if rows else st.just(set())))
    kept = [row for row in rows if row not in set(deleted)]
    offset = data.draw(st.integers(1, 9))
    with TemporaryDirectory() as directory:
        path, vectors = Path(directory) / "f.parquet", Path(directory) / "v.bin"
        pq.write_table(table, path, row_group_size=data.draw(st.integers(1, 50)))
        source = InputFile(
            path="f.parquet",
            size_bytes=path.stat().st_size,
            num_records=len(table),
            deletion_vector=write_vector(vectors, deleted, offset=offset),
            base_row_id=1000,
            default_row_commit_version=7,
        )
        with LogicalFile.open(
            Located(source, str(path), str(vectors)),
            DataLayout(
                schema=delta_schema(table.schema),
                row_tracking=data.draw(st.sampled_from([None, TRACKING])),
            ),
            dictionary=data.draw(st.booleans()),
        ) as file:
            groups = range(file.file.num_row_groups)
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


# What is encoded is decoded: vectors and the text of their names.


LAST = 2**40
rows = st.sets(st.integers(0, LAST), min_size=1, max_size=60)
runs_written_vectors_laws = st.tuples(st.integers(0, LAST), st.integers(1, 70_000)).map(
    lambda run: set(range(run[0], min(run[0] + run[1], LAST + 1)))
)


@given(wanted=rows | runs_written_vectors_laws, name=st.uuids())
def test_a_vector_is_read_as_it_is_written(wanted: set[int], name: UUID) -> None:
    gone = positions(wanted)
    payload = encoded_payload(gone)
    vector = stored_vector(name, payload, cardinality=len(gone))
    assert vector_path(vector) == vector_file_name(name)
    offset, length = framed_bytes(vector)
    content = vector_file(payload)[offset : offset + length]
    found = deleted_positions(
        framed_payload(vector, content), cardinality=vector.cardinality, num_rows=LAST + 1
    )
    assert np.array_equal(found, gone)


@given(name=st.uuids())
def test_the_code_of_a_name_is_the_end_of_its_path(name: UUID) -> None:
    path = vector_file_name(name)
    assert vector_codes([path]) == {encode_z85(name.bytes): path}
