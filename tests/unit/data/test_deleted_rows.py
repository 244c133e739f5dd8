"""Finding deleted rows: what is read, what is equal, and what is refused."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from liquidlog.data import deleted_rows, reader
from liquidlog.data.deleted_rows import (
    DeletedRows,
    FileLayout,
    FoundRows,
    Output,
    ProvedRows,
    find_rows,
    require_found,
    write_without,
)
from liquidlog.data.encodings import multiset_checksum, row_lanes, same_bits
from liquidlog.data.reader import Located, write_vector
from liquidlog.data.runs import Run, RunStage
from liquidlog.data.writer import DataFileWriter
from liquidlog.errors import (
    DataFileError,
    ExecutorError,
    ReconcileLimitError,
    ResultMismatchError,
    RowsNotFoundError,
    StorageError,
)
from liquidlog.plan import InputFile, PlannedDeletionVector, WrittenFile
from liquidlog.spec.actions import encoded_payload, vector_file
from liquidlog.spec.schema import parse_schema
from liquidlog.storage.files import put_if_absent
from liquidlog.storage.objects import AmbiguousPutError
from support.deleted import (
    LIMIT,
    layout_of,
    live_rows,
    positions,
    proved_rows,
    write_input,
    write_output,
)
from support.local_tasks import PickledTasks

DIGITS = "0123456789ab"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(str(tmp_path), DIGITS)
    run.begin()
    return run


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


@pytest.mark.parametrize(("slice_bytes", "part_bytes"), [(1, 9_000), (3_000, 1)])
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
    wanted = deleted_rows.WantedRows

    def seen(rows: pa.Table, columns: tuple[Any, ...], *where: str) -> Any:
        sizes.extend([] if where else [len(rows)])
        return wanted(rows, columns, *where)

    monkeypatch.setattr(deleted_rows, "_SLICE_BYTES", slice_bytes)
    monkeypatch.setattr(deleted_rows, "PART_BYTES", part_bytes)
    monkeypatch.setattr(deleted_rows, "WantedRows", seen)
    found = find(gone, outputs, layout)
    assert lists(found) == lists(expected)
    assert (found.rows, found.checksum) == (expected.rows, expected.checksum)
    assert len(sizes) > 1
    assert sum(sizes) == 45


_NAN, _OTHER_NAN = (
    np.array([bits], np.uint64).view(np.float64)[0]
    for bits in (0x7FF8000000000000, 0x7FF8000000000001)
)


def test_statistics_that_are_missing_leave_nothing_out(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2]})
    layout = layout_of(rows.schema, columns=[("x",)])
    one = write_input(tmp_path / "i.parquet", rows)
    output = write_output(tmp_path / "o.parquet", rows, layout)
    bare = replace(output, file=structs.replace(output.file, stats="{}"))
    assert lists(find([replace(one, positions=None)], [bare], layout)) == [[0, 1]]


def test_rows_of_nulls_and_nan_are_found(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2, 3], "y": [None, 5.0, _NAN]})
    layout = layout_of(rows.schema, columns=[("x",), ("y",)])
    one = write_input(tmp_path / "i.parquet", rows)
    output = write_output(tmp_path / "o.parquet", rows, layout)
    for number in range(3):
        gone = replace(one, positions=positions([number]))
        assert lists(find([gone], [output], layout)) == [[number]]


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


def test_other_rows_of_a_hash_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"x": [1, 2]})
    layout = layout_of(rows.schema, columns=[])
    one = write_input(tmp_path / "i.parquet", rows)
    output = write_output(tmp_path / "o.parquet", rows, layout)
    same = [np.ones(2, np.uint64)] * 2
    monkeypatch.setattr(
        deleted_rows, "row_lanes", lambda table: [one[: len(table)] for one in same]
    )
    with pytest.raises(ResultMismatchError, match="other rows of the same checksum"):
        find([replace(one, positions=positions([1]))], [output], layout)


def test_one_equal_hash_is_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"x": list(range(8))})
    layout = layout_of(rows.schema)
    one = write_input(tmp_path / "i.parquet", rows)
    output = write_output(tmp_path / "o.parquet", rows.take(pa.array([7, 3, 5, 1, 0, 2])), layout)
    lanes = lambda table: (row_lanes(table)[0] % np.uint64(2), row_lanes(table)[1])  # noqa: E731
    monkeypatch.setattr(deleted_rows, "row_lanes", lanes)
    gone = [replace(one, positions=positions([0, 1, 3, 7]))]
    assert lists(find(gone, [output], layout)) == [[0, 1, 3, 4]]


def test_rows_that_the_plan_did_not_have_are_a_mistake_of_the_caller(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2]})
    layout = layout_of(rows.schema)
    one = write_input(tmp_path / "i.parquet", rows, planned=[1])
    output = write_output(tmp_path / "o.parquet", rows, layout)
    with pytest.raises(ValueError, match="deleted rows cannot be read"):
        find([replace(one, positions=positions([1]))], [output], layout)
    with pytest.raises(ValueError, match="there is no row 2 of 2"):
        find([replace(one, positions=positions([2]))], [output], layout)


def test_files_that_are_not_what_was_said_of_them_are_refused(tmp_path: Path) -> None:
    rows = pa.table({"x": [1, 2]})
    layout = layout_of(rows.schema)
    one = write_input(tmp_path / "i.parquet", rows)
    output = write_output(tmp_path / "o.parquet", rows, layout)
    gone = [replace(one, positions=None)]
    more = replace(output, file=structs.replace(output.file, num_records=3))
    with pytest.raises(DataFileError, match="has 2 rows, its writer says 3"):
        find(gone, [more], layout)
    longer = replace(output, file=structs.replace(output.file, size_bytes=7))
    with pytest.raises(DataFileError, match="where the log says 7"):
        find(gone, [longer], layout)
    Path(one.address).unlink()
    with pytest.raises(DataFileError, match="does not exist"):
        find(gone, [output], layout)


def test_bits_are_the_same_whatever_encodes_them() -> None:
    plain = pa.table({"s": pa.array(["a", None, "b"]), "l": pa.array([[1.0], None, []])})
    assert same_bits(plain, plain.set_column(0, "s", plain["s"].dictionary_encode()))
    assert not same_bits(plain, plain.slice(1))
    assert not same_bits(plain, plain.select(["s"]))


def test_bits_differ() -> None:
    struct = pa.struct([("a", pa.int8())])
    pairs = [
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.array([_NAN]), pa.array([_OTHER_NAN])),
        (pa.array([[{"b": 0.0}]]), pa.array([[{"b": -0.0}]])),
        (pa.array([{"a": None}], struct), pa.array([None], struct)),
        (pa.array([[]], pa.list_(pa.int8())), pa.array([None], pa.list_(pa.int8()))),
        (pa.array([b""]), pa.array([None], pa.binary())),
    ]
    for left, right in pairs:
        first, second = pa.table({"x": left}), pa.table({"x": right})
        assert not same_bits(first, second)
        assert same_bits(first, first)
        assert multiset_checksum(first) != multiset_checksum(second)


# Finding rows by the tasks of an executor: the same rows, and a limit of its own.


Files = tuple[list[DeletedRows], list[Output], FileLayout]


def found_by(tasks: PickledTasks | None, files: Files, *, limit_bytes: int = 0) -> FoundRows:
    deleted, outputs, layout = files
    return find_rows(deleted, outputs, layout=layout, limit_bytes=limit_bytes, tasks=tasks)


def files_of(path: Path, columns: Sequence[tuple[str]], *, wide: bool = False) -> Files:
    """Two inputs and six outputs; rows repeat, within an output and among them.

    Those of `wide` files do not, but bounds do not say where they are.
    """
    draw = np.random.default_rng(3)
    rows = pa.table(
        {"x": draw.integers(0, 1 if wide else 20, 240), "s": [f"s{n % 3}" for n in range(240)]}
    )
    if wide:
        rows = rows.append_column("payload", [[draw.bytes(300) for _ in range(240)]])
    layout = layout_of(rows.schema, columns=columns)
    deleted = [
        replace(
            write_input(path / f"i{n}.parquet", rows.slice(120 * n, 120), row_group_rows=12),
            positions=positions(range(n, 120, 7)),
        )
        for n in range(2)
    ]
    moved = rows.sort_by("x").take(pa.array(np.argsort(draw.integers(0, 3, 240), kind="stable")))
    outputs = [
        write_output(path / f"o{n}.parquet", moved.slice(40 * n, 40), layout, cuts=[15, 22])
        for n in range(6)
    ]
    return deleted, outputs, layout


@pytest.mark.parametrize(
    ("columns", "sent_bytes"), [([], 1), ([("x",)], 1 << 20), ([("s",), ("x",)], 1)]
)
def test_tasks_find_the_rows_that_are_found_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: list[tuple[str]], sent_bytes: int
) -> None:
    files = files_of(tmp_path, columns)
    here = found_by(None, files, limit_bytes=LIMIT)
    monkeypatch.setattr(deleted_rows, "_SENT_BYTES", sent_bytes)
    tasks = PickledTasks()
    found = found_by(tasks, files, limit_bytes=1 << 11)
    assert lists(found) == lists(here)
    assert (found.rows, found.checksum) == (here.rows, here.checksum) == (35, here.checksum)
    assert tasks.sent


def test_tasks_read_three_times_what_the_outputs_hold_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted, outputs, layout = files_of(tmp_path, [], wide=True)
    monkeypatch.setattr(deleted_rows, "_SENT_BYTES", 1)
    monkeypatch.setattr(deleted_rows, "PART_BYTES", 1)
    with pytest.raises(ReconcileLimitError) as caught:
        found_by(PickledTasks(), (deleted, outputs, layout))
    sizes = [output.file.size_bytes for output in outputs]
    limit_bytes = 3 * sum([*sizes, *(one.source.size_bytes for one in deleted)])
    assert caught.value.limit_bytes == limit_bytes < caught.value.needed_bytes


# Rows read at the positions where they were found, and what refuses them.


ROWS = pa.table({"x": list(range(10)), "s": [None, "a", "b", "a", "", "c", None, "d", "e", "zz"]})
CUTS = [3, 4, 8]


@pytest.fixture
def layout() -> FileLayout:
    return layout_of(ROWS.schema, columns=[("x",)])


@pytest.fixture
def outputs(tmp_path: Path, layout: FileLayout) -> list[Output]:
    return [
        write_output(tmp_path / f"{number}.parquet", ROWS, layout, cuts=CUTS) for number in range(2)
    ]


def found(*rows: list[int]) -> FoundRows:
    """Return rows of each output as a finder does that finds them."""
    taken = ROWS.take(pa.array([row for its in rows for row in its], pa.int64()))
    return FoundRows(
        positions=tuple(positions(its) for its in rows),
        rows=len(taken),
        bytes_read=0,
        checksum=multiset_checksum(taken),
    )


@pytest.mark.parametrize("where", [[1, 7], [1], [1, 7, 8], [1, 1], []])
def test_others_are_refused(outputs: list[Output], layout: FileLayout, where: list[int]) -> None:
    wrong = replace(found([1, 8], [3]), positions=(positions(where), positions([3])))
    with pytest.raises(ResultMismatchError, match="not the rows that other commits deleted"):
        require_found(outputs, wrong, layout=layout, limit_bytes=LIMIT)


def test_rows_deleted_already_are_refused(outputs: list[Output], layout: FileLayout) -> None:
    earlier = [replace(outputs[0], deleted=positions([0, 8])), outputs[1]]
    with pytest.raises(ResultMismatchError):
        require_found(earlier, found([1, 8], [3]), layout=layout, limit_bytes=LIMIT)


def test_a_row_that_is_not_there_is_refused(outputs: list[Output], layout: FileLayout) -> None:
    with pytest.raises(DataFileError, match="has no row 10"):
        proved_rows(outputs[0], positions([1, 10]), layout)


def test_the_limit_counts_all_outputs(outputs: list[Output], layout: FileLayout) -> None:
    rows = found([1, 8], [3])
    proved = require_found(outputs, rows, layout=layout, limit_bytes=LIMIT)
    needed = sum(its.bytes_read for its in proved)
    assert require_found(outputs, rows, layout=layout, limit_bytes=needed)
    with pytest.raises(ReconcileLimitError) as raised:
        require_found(outputs, rows, layout=layout, limit_bytes=needed - 1)
    assert (raised.value.needed_bytes, raised.value.limit_bytes) == (needed, needed - 1)


# Copies of outputs without some rows: what is left, in which order, and what refuses them.


def copy_without(run: Run, output: Output, gone: ProvedRows, layout: FileLayout) -> WrittenFile:
    return write_without(run, output, gone, layout=layout, unique_id="a")


def test_nothing_is_written_of_no_rows(run: Run, outputs: list[Output], layout: FileLayout) -> None:
    earlier = replace(outputs[0], deleted=positions(range(5)))
    with pytest.raises(ValueError, match="no row would be left"):
        copy_without(run, earlier, proved_rows(earlier, positions(range(5, 10)), layout), layout)
    assert run.files() == ()


@pytest.mark.parametrize(
    "changed",
    [
        lambda rows: [rows, rows.slice(0, 1)],
        lambda rows: [rows.slice(1)],
        lambda rows: [rows.slice(2), *[rows.slice(0, 1)] * 2],
    ],
    ids=["more", "less", "other"],
)
def test_a_copy_that_holds_other_rows_is_deleted(
    run: Run,
    outputs: list[Output],
    layout: FileLayout,
    monkeypatch: pytest.MonkeyPatch,
    changed: Callable[[pa.Table], list[pa.Table]],
) -> None:
    class Careless(DataFileWriter):
        def write(self, table: pa.Table) -> None:
            super().write(pa.concat_tables(changed(table)))

    monkeypatch.setattr(deleted_rows, "DataFileWriter", Careless)
    with pytest.raises(ResultMismatchError, match="does not hold the rows that it should"):
        copy_without(run, outputs[0], proved_rows(outputs[0], positions([1]), layout), layout)
    assert run.files() == ()


def test_rows_that_are_not_those_that_were_found_are_not_left_out(
    run: Run, outputs: list[Output], layout: FileLayout
) -> None:
    rows = replace(proved_rows(outputs[0], positions([1, 4]), layout), positions=positions([1, 5]))
    with pytest.raises(ResultMismatchError, match="not the rows that were found"):
        copy_without(run, outputs[0], rows, layout)
    run.discard()
    assert run.files() == ()


# Files of deletion vectors that we write: what is in them, whose they are, what goes wrong.


ROWS_VECTORS = positions([0, 3, 7, 70_000, 2**33])


def planned(kind: str, place: str) -> InputFile:
    vector = PlannedDeletionVector(
        storage_type=kind, path_or_inline_dv=place, offset=1, size_bytes=34, cardinality=1
    )
    return InputFile(path="a.parquet", size_bytes=1, deletion_vector=vector)


def test_a_vector_is_where_the_log_says() -> None:
    name = f"deletion_vector_{UUID(int=0)}.bin"
    assert Located.of("/t", InputFile(path="a.parquet", size_bytes=1)).vector_path is None
    assert Located.of("/t", planned("i", "x")).vector_path is None
    assert Located.of("/t", planned("u", "ab" + "0" * 20)).vector_path == f"/t/ab/{name}"
    assert Located.of("/t", planned("p", "file:///o/a%20b.bin")).vector_path == "/o/a b.bin"
    assert Located.of("s3://b/t", planned("p", "s3://b/v.bin")).vector_path == "s3://b/v.bin"


@pytest.mark.parametrize(
    ("kind", "place"), [("z", "x"), ("u", "\u00e9" * 20), ("p", "file:///%ff"), ("p", "s3://b/v")]
)
def test_a_vector_that_is_nowhere_is_an_error_of_its_data_file(kind: str, place: str) -> None:
    with pytest.raises(DataFileError, match="its deletion vector") as raised:
        Located.of("/t", planned(kind, place))
    assert raised.value.path == "a.parquet"


def test_the_same_id_gives_the_same_name_and_another_gives_another(run: Run) -> None:
    uuids = [run.uuid(unique_id) for unique_id in ("a", "b")]
    assert uuids[0] != uuids[1]
    assert all(uuid.version == 4 and uuid.hex.startswith(DIGITS) for uuid in uuids)
    write_vector(run, ROWS_VECTORS, unique_id="a")
    (written,) = (Path(run.directory) / name for name in run.files())
    before = written.read_bytes()
    with pytest.raises(StorageError, match="is there already"):
        write_vector(run, positions([1]), unique_id="a")
    assert written.read_bytes() == before


@pytest.mark.parametrize("rows", [[], [1, 1], [2, 1]])
def test_rows_that_are_not_increasing_are_refused(run: Run, rows: list[int]) -> None:
    with pytest.raises(ValueError, match="increasing"):
        write_vector(run, np.array(rows, np.uint64), unique_id="a")
    assert run.files() == ()


def test_a_vector_of_a_run_that_ended_is_deleted(run: Run) -> None:
    assert run.retire() is RunStage.RETIRED
    with pytest.raises(ExecutorError, match="ended by another process"):
        write_vector(run, ROWS_VECTORS, unique_id="a")
    assert run.files() == ()


def test_a_vector_that_is_stored_wrong_is_deleted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(_: bytes) -> bytes:
        return vector_file(encoded_payload(positions([0, 3, 7, 70_000, 2**33 - 1])))

    monkeypatch.setattr("liquidlog.data.reader.vector_file", other)
    with pytest.raises(StorageError, match="not what was written"):
        write_vector(run, ROWS_VECTORS, unique_id="a")
    assert run.files() == ()


def test_a_put_without_an_answer_is_read_back(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*arguments: object) -> bool:
        put_if_absent(*arguments)  # type: ignore[arg-type]
        raise AmbiguousPutError

    monkeypatch.setattr(reader, "put_if_absent", lost)
    assert write_vector(run, ROWS_VECTORS, unique_id="a").cardinality == 5

    def nothing(*_: object) -> bool:
        raise AmbiguousPutError

    monkeypatch.setattr(reader, "put_if_absent", nothing)
    with pytest.raises(StorageError, match="cannot be read"):
        write_vector(run, ROWS_VECTORS, unique_id="b")
