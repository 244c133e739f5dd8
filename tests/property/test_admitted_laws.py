"""What holds a row is admitted; little else is."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.data.reader import DataFile
from liquidlog.data.row_group_bounds import read_row_group_bounds
from liquidlog.data.wanted_rows import SoughtRows
from liquidlog.spec.bounds import has_bounds, parse_bounds
from liquidlog.spec.schema import MappingMode, leaves
from support.deleted import as_texts, layout_of, write_output
from support.tables import tables


@given(table=tables(max_rows=10), data=st.data())
def test_files_and_row_groups_that_hold_a_row_are_admitted(
    table: pa.Table, data: st.DataObject
) -> None:
    rows = st.lists(st.integers(0, max(len(table) - 1, 0)), max_size=6 if len(table) else 0)
    wanted, held = (table.take(pa.array(data.draw(rows), pa.int64())) for _ in range(2))
    cuts = data.draw(st.lists(st.integers(0, 6), max_size=3))
    layout = layout_of(table.schema)
    bounded = [leaf for leaf in leaves(layout.schema) if has_bounds(leaf.data_type)]
    sought = SoughtRows.of(wanted, bounded)
    texts = set(as_texts(wanted))
    with TemporaryDirectory() as directory:
        output = write_output(Path(directory) / "o.parquet", held, layout, cuts=cuts)
        bounds = parse_bounds(pa.array([output.file.stats]), bounded)
        assert sought.admitted(bounds)[0] or not texts & set(as_texts(held))
        with DataFile.open(output.address, schema=layout.schema) as file:
            groups = read_row_group_bounds(
                file.parquet, schema=layout.schema, mapping=MappingMode.NONE, wanted=bounded
            )
            admitted = sought.admitted(groups)
            for number in range(file.num_row_groups):
                found = file.read(row_groups=[number])
                assert admitted[number] or not texts & set(as_texts(found))


numbers = st.integers(-20, 20)


@given(
    rows=st.lists(st.tuples(numbers | st.none(), numbers), max_size=8),
    boxes=st.lists(
        st.lists(st.tuples(numbers | st.none(), numbers), min_size=1, max_size=3), max_size=5
    ),
)
def test_boxes_are_admitted_that_reach_to_a_row_or_to_the_box_before_it(
    rows: list[tuple[int | None, int]], boxes: list[list[tuple[int | None, int]]]
) -> None:
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    layout = layout_of(schema)
    bounded = list(leaves(layout.schema))
    stats = [_stats(box) for box in boxes]
    bounds = parse_bounds(pa.array(stats, pa.string()), bounded)
    columns = list(zip(*rows, strict=True)) or [(), ()]
    table = pa.table([pa.array(column, pa.int64()) for column in columns], schema=schema)
    found = SoughtRows.of(table, bounded).admitted(bounds)
    edges = [sorted({edge for box in boxes for edge in _edges(box, axis)}) for axis in (0, 1)]
    for box, is_admitted in zip(boxes, found, strict=True):
        inside = [all(_holds(box, row, axis) for axis in (0, 1)) for row in rows]
        near = [all(_holds(box, row, axis, edges[axis]) for axis in (0, 1)) for row in rows]
        assert is_admitted >= any(inside)
        assert is_admitted <= any(near)
    assert found.dtype == np.bool_


def _edges(box: list[tuple[int | None, int]], axis: int) -> list[int]:
    values = [row[axis] for row in box]
    there = [value for value in values if value is not None]
    return [min(there), max(there)] if there else []


def _holds(
    box: list[tuple[int | None, int]],
    row: tuple[int | None, int],
    axis: int,
    edges: list[int] | None = None,
) -> bool:
    """Whether the value of a row is in a box, or, with edges, above the last edge before it."""
    value, values = row[axis], [one[axis] for one in box]
    if value is None:
        return None in values
    ends = _edges(box, axis)
    if not ends:
        return edges is not None  # a box of nulls has no ends, so any value is admitted
    low = ends[0]
    if edges is not None:
        low = max([edge for edge in edges if edge < low], default=-(10**9)) + 1
    return low <= value <= ends[1]


def _stats(box: list[tuple[int | None, int]]) -> str:
    import json

    names = "xy"
    ends = {name: _edges(box, axis) for axis, name in enumerate(names)}
    return json.dumps(
        {
            "numRecords": len(box),
            "minValues": {name: pair[0] for name, pair in ends.items() if pair},
            "maxValues": {name: pair[1] for name, pair in ends.items() if pair},
            "nullCount": {
                name: sum(row[axis] is None for row in box) for axis, name in enumerate(names)
            },
        }
    )
