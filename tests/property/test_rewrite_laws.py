"""A rewrite of any table keeps its live rows, as DuckDB reads them, whatever way it takes."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, reject
from hypothesis import strategies as st

from liquidlog.curve.curves import Curve
from liquidlog.data.logical_file import Located
from liquidlog.data.runs import Run
from liquidlog.plan import InputFile, WriterOptions
from liquidlog.rewriting.groups import rewrite_alone
from liquidlog.rewriting.sink import TaskFacts
from liquidlog.rewriting.source import GroupWork
from liquidlog.spec.arrow import delta_schema, leaf_column
from liquidlog.spec.bounds import has_bounds, parse_bounds
from liquidlog.spec.schema import leaves, schema_json
from support.deleted import write_vector
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
