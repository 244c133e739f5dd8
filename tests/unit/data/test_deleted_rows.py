"""Finding deleted rows: what is read, what is equal, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data import deleted_rows, output_rows, wanted_rows
from liquidlog.data.checksum import multiset_checksum, row_lanes, same_bits
from liquidlog.data.deleted_rows import DeletedRows, FoundRows, find_rows
from liquidlog.data.output_rows import FileLayout, Output
from liquidlog.errors import (
    DataFileError,
    ReconcileLimitError,
    ResultMismatchError,
    RowsNotFoundError,
)
from liquidlog.plan import RowTracking
from liquidlog.spec.arrow import VARIANT
from liquidlog.spec.schema import MappingMode, parse_schema
from support.deleted import (
    LIMIT,
    layout_of,
    live_rows,
    physical_rows,
    positions,
    write_input,
    write_output,
)

TRACKING = RowTracking(row_id_column="_id", row_commit_version_column="_version", preserved=True)


def find(
    deleted: list[DeletedRows], outputs: list[Output], layout: FileLayout, *, limit: int = LIMIT
) -> FoundRows:
    return find_rows(deleted, outputs, layout=layout, limit_bytes=limit)


def lists(found: FoundRows) -> list[list[int]]:
    return [rows.tolist() for rows in found.positions]


def stored_bytes(output: Output, *row_groups: int) -> int:
    footer = pq.read_metadata(output.address)
    return sum(
        footer.row_group(group).column(column).total_compressed_size
        for group in row_groups
        for column in range(footer.num_columns)
    )


@pytest.fixture
def sorted_files(tmp_path: Path) -> tuple[DeletedRows, list[Output], FileLayout]:
    """One input and two outputs of two row groups each, of keys 0 to 399 with wide payloads."""
    generator = np.random.default_rng(1)
    payload = [generator.bytes(200) for _ in range(400)]
    rows = pa.table({"x": np.arange(400), "y": np.arange(400) % 7, "payload": payload})
    layout = layout_of(rows.schema, columns=[("x",)])
    shuffled = rows.take(pa.array(generator.permutation(400)))
    outputs = [
        write_output(tmp_path / f"o{n}.parquet", rows.slice(200 * n, 200), layout, cuts=[100])
        for n in range(2)
    ]
    return write_input(tmp_path / "i.parquet", shuffled, row_group_rows=50), outputs, layout


def place_of(deleted: DeletedRows, layout: FileLayout, value: int) -> int:
    return int(np.flatnonzero(live_rows(deleted, layout)["x"].to_numpy() == value)[0])


def test_only_row_groups_that_may_hold_the_rows_are_read(
    sorted_files: tuple[DeletedRows, list[Output], FileLayout],
) -> None:
    one, outputs, layout = sorted_files
    place = place_of(one, layout, 250)
    found = find([replace(one, positions=positions([place]))], outputs, layout)
    assert lists(found) == [[], [50]]
    footer = pq.read_metadata(one.address)
    chunks = [footer.row_group(place // 50).column(n).total_compressed_size for n in range(3)]
    keys = pq.read_metadata(outputs[1].address).row_group(0).column(0).total_compressed_size
    assert found.bytes_read == sum(chunks) + keys + stored_bytes(outputs[1], 0)
    assert found.rows == 1
    row = live_rows(one, layout).slice(place, 1)
    assert found.checksum == multiset_checksum(row)


def test_row_groups_without_the_keys_are_not_read_whole(tmp_path: Path) -> None:
    payload = [np.random.default_rng(n).bytes(500) for n in range(100)]
    rows = pa.table({"x": np.arange(100) * 2, "payload": payload})
    layout = layout_of(rows.schema, columns=[("x",)])
    even = write_output(tmp_path / "o.parquet", rows, layout)
    other = pa.table({"x": [51], "payload": [b"z"]})
    one = write_input(tmp_path / "i.parquet", other)
    with pytest.raises(RowsNotFoundError):
        find([replace(one, positions=None)], [even], layout)
    last = write_output(tmp_path / "last.parquet", other, layout)
    found = find([replace(one, positions=None)], [even, last], layout)
    assert lists(found) == [[], [0]]
    assert found.bytes_read < stored_bytes(even, 0) // 2


def test_more_bytes_than_allowed_are_refused_before_they_are_read(
    sorted_files: tuple[DeletedRows, list[Output], FileLayout],
) -> None:
    one, outputs, layout = sorted_files
    gone = [replace(one, positions=positions([place_of(one, layout, 250)]))]
    needed = find(gone, outputs, layout).bytes_read
    assert find(gone, outputs, layout, limit=needed).bytes_read == needed
    with pytest.raises(ReconcileLimitError) as caught:
        find(gone, outputs, layout, limit=needed - 1)
    assert (caught.value.needed_bytes, caught.value.limit_bytes) == (needed, needed - 1)
    Path(outputs[0].address).unlink()  # not even opened
    assert find(gone, outputs, layout).rows == 1
    Path(outputs[1].address).unlink()
    with pytest.raises(ReconcileLimitError):
        find(gone, [], layout, limit=0)


@pytest.mark.parametrize("slice_bytes", [1, 3_000])
@pytest.mark.parametrize("part_bytes", [1, 9_000])
def test_memory_is_bounded_by_slices_and_parts(
    sorted_files: tuple[DeletedRows, list[Output], FileLayout],
    monkeypatch: pytest.MonkeyPatch,
    slice_bytes: int,
    part_bytes: int,
) -> None:
    one, outputs, layout = sorted_files
    gone = [replace(one, positions=positions(range(0, 400, 9)))]
    expected = find(gone, outputs, layout)
    sizes = []

    def seen(rows: pa.Table, *arguments: Any) -> Any:
        sizes.append(rows.num_rows)
        return wanted_rows.WantedRows(rows, *arguments)

    monkeypatch.setattr(deleted_rows, "_SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(deleted_rows, "PART_BYTES", part_bytes)
    monkeypatch.setattr(output_rows, "PART_BYTES", part_bytes)
    monkeypatch.setattr(deleted_rows, "WantedRows", seen)
    found = find(gone, outputs, layout)
    assert lists(found) == lists(expected)
    assert (found.rows, found.checksum) == (expected.rows, expected.checksum)
    assert len(sizes) > 1
    assert sum(sizes) == 45


def test_equal_rows_with_other_ids_are_not_taken(tmp_path: Path) -> None:
    rows = pa.table({"x": [5, 5, 5, 5]})
    layout = layout_of(rows.schema, columns=[("x",)], row_tracking=TRACKING)
    one = write_input(tmp_path / "i.parquet", rows, first=100)
    tracked = live_rows(one, layout)
    assert tracked["_id"].to_pylist() == [100, 101, 102, 103]
    output = write_output(tmp_path / "o.parquet", tracked.take(pa.array([3, 1, 0, 2])), layout)
    found = find([replace(one, positions=positions([2]))], [output], layout)
    assert lists(found) == [[3]]
    lost = write_output(tmp_path / "l.parquet", tracked.take(pa.array([3, 1, 0])), layout)
    with pytest.raises(RowsNotFoundError):
        find([replace(one, positions=positions([2]))], [lost], layout)


def test_ids_that_are_not_preserved_do_not_matter(tmp_path: Path) -> None:
    rows = pa.table({"x": [5, 6]})
    hidden = rows.append_column("_id", [[1, 2]]).append_column("_version", [[1, 1]])
    tracking = RowTracking(
        row_id_column="_id", row_commit_version_column="_version", preserved=False
    )
    layout = layout_of(rows.schema, row_tracking=tracking)
    one = write_input(tmp_path / "i.parquet", hidden)
    output = write_output(tmp_path / "o.parquet", rows, layout)
    assert lists(find([replace(one, positions=positions([1]))], [output], layout)) == [[1]]


_NAN, _OTHER_NAN = (
    np.array([bits], np.uint64).view(np.float64)[0]
    for bits in (0x7FF8000000000000, 0x7FF8000000000001)
)


@pytest.mark.parametrize("number", range(6))
def test_numbers_are_compared_by_their_bits(tmp_path: Path, number: int) -> None:
    values = np.array([0.0, -0.0, _NAN, _OTHER_NAN, np.inf, 1.5])
    rows = pa.table({"x": values, "n": [{"f": value} for value in values.astype(np.float32)]})
    layout = layout_of(rows.schema, columns=[("x",)])
    one = write_input(tmp_path / "i.parquet", rows)
    outputs = [
        write_output(tmp_path / f"o{n}.parquet", rows.slice(n, 1), layout)
        for n in reversed(range(6))
    ]
    found = find([replace(one, positions=positions([number]))], outputs, layout)
    assert lists(found) == [[0] if n == number else [] for n in reversed(range(6))]


def test_nan_is_found_where_footers_do_not_tell(tmp_path: Path) -> None:
    rows = pa.table({"x": [1.0, float("nan"), 2.0]})
    layout = layout_of(rows.schema, columns=[("x",)])
    one = write_input(tmp_path / "i.parquet", rows)
    output = write_output(tmp_path / "o.parquet", rows, layout)
    assert lists(find([replace(one, positions=positions([1]))], [output], layout)) == [[1]]


def test_statistics_that_are_missing_leave_nothing_out(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2]})
    layout = layout_of(rows.schema, columns=[("x",)])
    one = write_input(tmp_path / "i.parquet", rows)
    output = write_output(tmp_path / "o.parquet", rows, layout)
    bare = replace(output, file=_with(output.file, stats="{}"))
    assert lists(find([replace(one, positions=None)], [bare], layout)) == [[0, 1]]


def _with(file: Any, **changes: Any) -> Any:
    from msgspec import structs

    return structs.replace(file, **changes)


def schema_of(text: str) -> Any:
    return parse_schema(f'{{"type":"struct","fields":[{text}]}}', where="test")


def field(name: str, kind: str, metadata: str = "{}") -> str:
    return f'{{"name":"{name}","type":"{kind}","nullable":true,"metadata":{metadata}}}'


WIDENED = '{"delta.typeChanges":[{"fromType":"integer","toType":"long","tableVersion":1}]}'


def test_rows_of_inputs_are_compared_as_the_table_has_them(tmp_path: Path) -> None:
    stored = pa.table({"x": pa.array([1, 2, 3], pa.int32())})
    schema = schema_of(f"{field('x', 'long', WIDENED)},{field('added', 'string')}")
    layout = replace(layout_of(stored.schema), schema=schema, columns=(("x",),))
    one = write_input(tmp_path / "i.parquet", stored)
    moved = pa.table(
        {"x": pa.array([3, 2, 1, 2], pa.int64()), "added": pa.array(["a", "", None, None])}
    )
    output = write_output(tmp_path / "o.parquet", moved, layout)
    assert lists(find([replace(one, positions=positions([1]))], [output], layout)) == [[3]]
    with pytest.raises(RowsNotFoundError):  # null is not the empty string
        find([replace(one, positions=positions([2]))], [output], layout)


def test_variants_are_compared_by_their_bytes(tmp_path: Path) -> None:
    layout = replace(layout_of(pa.schema([])), schema=schema_of(field("v", "variant")))
    parts = [{"value": b"\x0c\x01", "metadata": b"\1"}, None, {"value": b"", "metadata": b""}]
    rows = pa.table({"v": pa.array(parts, VARIANT)})
    one = write_input(tmp_path / "i.parquet", rows)
    output = write_output(tmp_path / "o.parquet", rows.take(pa.array([2, 1, 0])), layout)
    for row in range(3):
        found = find([replace(one, positions=positions([row]))], [output], layout)
        assert lists(found) == [[2 - row]]


@pytest.mark.parametrize("mode", [MappingMode.NAME, MappingMode.ID])
def test_columns_are_found_as_the_table_maps_them(tmp_path: Path, mode: MappingMode) -> None:
    mapped = [
        f'{{"delta.columnMapping.id":{number},"delta.columnMapping.physicalName":"p{number}"}}'
        for number in (1, 2)
    ]
    schema = schema_of(f"{field('x', 'long', mapped[0])},{field('s', 'string', mapped[1])}")
    layout = replace(
        layout_of(pa.schema([("p1", pa.int64())])), schema=schema, mapping=mode, columns=(("p1",),)
    )
    ids = [{b"PARQUET:field_id": str(n).encode()} for n in (1, 2)]
    names = ["p1", "p2"] if mode is MappingMode.NAME else ["old", "older"]
    stored = pa.Table.from_arrays(
        [pa.array([1, 2]), pa.array(["a", "b"])],
        schema=pa.schema(
            [
                pa.field(names[0], pa.int64(), metadata=ids[0]),
                pa.field(names[1], pa.string(), metadata=ids[1]),
            ]
        ),
    )
    one = write_input(tmp_path / "i.parquet", stored)
    moved = live_rows(one, layout)
    output = write_output(tmp_path / "o.parquet", moved.take(pa.array([1, 0])), layout)
    assert lists(find([replace(one, positions=positions([1]))], [output], layout)) == [[0]]


def test_rows_of_equal_hashes_that_differ_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"x": [1, 2]})
    layout = layout_of(rows.schema, columns=[])
    one = write_input(tmp_path / "i.parquet", rows)
    output = write_output(tmp_path / "o.parquet", rows, layout)
    gone = [replace(one, positions=positions([1]))]
    ones = np.ones

    def same(table: pa.Table) -> Any:
        return ones(len(table), np.uint64), ones(len(table), np.uint64)

    monkeypatch.setattr(wanted_rows, "row_lanes", same)
    with pytest.raises(ResultMismatchError, match="other rows of the same checksum"):
        find(gone, [output], layout)


def test_one_hash_that_is_equal_is_not_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"x": list(range(8))})
    layout = layout_of(rows.schema)
    one = write_input(tmp_path / "i.parquet", rows)
    output = write_output(tmp_path / "o.parquet", rows.take(pa.array([7, 3, 5, 1, 0, 2])), layout)

    def weak(table: pa.Table) -> Any:
        first, second = row_lanes(table)
        return first % np.uint64(2), second

    monkeypatch.setattr(wanted_rows, "row_lanes", weak)
    gone = [replace(one, positions=positions([0, 1, 3, 7]))]
    assert lists(find(gone, [output], layout)) == [[0, 1, 3, 4]]


def test_a_row_that_lacks_a_partner_is_an_error_with_numbers(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 1, 1, 2]})
    layout = layout_of(rows.schema, columns=[("x",)])
    one = write_input(tmp_path / "i.parquet", rows)
    output = write_output(tmp_path / "o.parquet", pa.table({"x": [1, 2, 2]}), layout)
    with pytest.raises(RowsNotFoundError, match="2 of 3 rows deleted") as caught:
        find([replace(one, positions=positions([0, 1, 2]))], [output], layout)
    assert (caught.value.rows, caught.value.missing) == (3, 2)
    taken = replace(output, deleted=positions([0]))
    with pytest.raises(RowsNotFoundError, match="1 of 1 rows deleted"):
        find([replace(one, positions=positions([0]))], [taken], layout)


def test_rows_that_an_earlier_attempt_took_are_left_out(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 1, 2, 3]})
    layout = layout_of(rows.schema, columns=[("x",)])
    one = write_input(tmp_path / "i.parquet", rows, planned=[3])
    output = write_output(tmp_path / "o.parquet", pa.table({"x": [2, 1, 1]}), layout)
    rest = replace(one, positions=None, already=positions([0]))
    later = replace(output, deleted=positions([1]))
    assert lists(find([rest], [later], layout)) == [[0, 2]]


def test_rows_that_the_plan_did_not_have_are_a_mistake_of_the_caller(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2]})
    layout = layout_of(rows.schema)
    one = write_input(tmp_path / "i.parquet", rows, planned=[1])
    output = write_output(tmp_path / "o.parquet", rows, layout)
    with pytest.raises(ValueError, match="rows that are deleted are asked for"):
        find([replace(one, positions=positions([1]))], [output], layout)
    with pytest.raises(ValueError, match="row 2 is asked for, of 2"):
        find([replace(one, positions=positions([2]))], [output], layout)


def test_files_that_are_not_what_was_said_of_them_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2]})
    layout = layout_of(rows.schema)
    one = write_input(tmp_path / "i.parquet", rows)
    output = write_output(tmp_path / "o.parquet", rows, layout)
    gone = [replace(one, positions=None)]
    more = replace(output, file=_with(output.file, num_records=3))
    with pytest.raises(DataFileError, match="has 2 rows, its writer says 3"):
        find(gone, [more], layout)
    longer = replace(output, file=_with(output.file, size_bytes=7))
    with pytest.raises(DataFileError, match="where the log says 7"):
        find(gone, [longer], layout)
    Path(one.address).unlink()
    with pytest.raises(DataFileError, match="does not exist"):
        find(gone, [output], layout)


def test_bits_are_the_same_whatever_encodes_them() -> None:
    plain = pa.table({"s": pa.array(["a", None, "b"]), "l": pa.array([[1.0], None, []])})
    encoded = plain.set_column(0, "s", plain["s"].dictionary_encode())
    assert same_bits(plain, encoded)
    assert same_bits(plain.slice(1), pa.concat_tables([encoded.slice(1, 1), encoded.slice(2)]))
    assert not same_bits(plain, plain.slice(1))
    assert not same_bits(plain, plain.select(["s"]))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.array([_NAN]), pa.array([_OTHER_NAN])),
        (pa.array([[0.0]]), pa.array([[-0.0]])),
        (pa.array([{"a": {"b": 0.0}}]), pa.array([{"a": {"b": -0.0}}])),
        (
            pa.array([{"a": None}], pa.struct([("a", pa.int8())])),
            pa.array([None], pa.struct([("a", pa.int8())])),
        ),
        (pa.array([[]], pa.list_(pa.int8())), pa.array([None], pa.list_(pa.int8()))),
        (pa.array([b""]), pa.array([None], pa.binary())),
        (
            pa.array([[("k", 0.0)]], pa.map_(pa.string(), pa.float32())),
            pa.array([[("k", -0.0)]], pa.map_(pa.string(), pa.float32())),
        ),
    ],
)
def test_bits_differ(left: pa.Array, right: pa.Array) -> None:
    first, second = pa.table({"x": left}), pa.table({"x": right})
    assert not same_bits(first, second)
    assert same_bits(first, first)
    assert same_bits(second, second)
    assert multiset_checksum(first) != multiset_checksum(second)


def test_outputs_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Texts that the file keeps in dictionaries are compared as texts."""
    rows = pa.table({"x": list(range(1000)), "s": [f"text {n % 3}" for n in range(1000)]})
    layout = layout_of(rows.schema, columns=[("s",)])
    one = write_input(tmp_path / "i.parquet", rows, row_group_rows=100)
    output = write_output(tmp_path / "o.parquet", rows, layout)
    found = find([replace(one, positions=positions(range(0, 1000, 3)))], [output], layout)
    assert found.positions[0].tolist() == list(range(0, 1000, 3))
    assert len(physical_rows(output.address, layout)) == 1000
