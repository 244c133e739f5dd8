"""Files of deletion vectors that we write: what is in them, whose they are, what goes wrong."""

from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from pyroaring import BitMap64

from liquidlog.data import vectors
from liquidlog.data.runs import Run, RunStage
from liquidlog.data.vectors import read_deletion_vector, vector_location, write_vector
from liquidlog.errors import DataFileError, ExecutorError, StorageError
from liquidlog.plan import InputFile, PlannedDeletionVector
from liquidlog.spec.deletion_vectors import (
    DeletionVectorError,
    Positions,
    decode_z85,
    encode_z85,
    encoded_payload,
    vector_codes,
    vector_file,
    vector_path,
)
from liquidlog.storage.clients import AmbiguousPutError
from liquidlog.storage.files import put_if_absent
from support.deleted import positions
from support.vectors import MAGIC

DIGITS = "0123456789ab"
ROWS = positions([0, 3, 7, 70_000, 2**33])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(str(tmp_path), DIGITS)
    run.begin()
    return run


def test_a_vector_that_was_written_is_read(run: Run) -> None:
    vector = write_vector(run, ROWS, unique_id="a")
    name = vector_path(vector)
    assert name is not None
    assert run.files() == (name,)
    assert name.startswith("deletion_vector_01234567-89ab-4")
    assert (vector.storage_type, vector.offset, vector.cardinality) == ("u", 1, 5)
    location = str(Path(run.directory) / name)
    found = read_deletion_vector(vector, location=location, data_file="f", num_rows=2**33 + 1)
    assert found.tolist() == ROWS.tolist()
    content = Path(location).read_bytes()
    assert content[0] == 1
    assert int.from_bytes(content[1:5], "big") == vector.size_in_bytes == len(content) - 9
    assert content[5:9] == MAGIC
    assert BitMap64.deserialize(content[9:-4]) == BitMap64(ROWS.tolist())


def planned(kind: str, place: str) -> InputFile:
    vector = PlannedDeletionVector(
        storage_type=kind, path_or_inline_dv=place, offset=1, size_bytes=34, cardinality=1
    )
    return InputFile(path="a.parquet", size_bytes=1, deletion_vector=vector)


def test_a_vector_is_where_the_log_says() -> None:
    name = f"deletion_vector_{UUID(int=0)}.bin"
    assert vector_location("/t", InputFile(path="a.parquet", size_bytes=1)) is None
    assert vector_location("/t", planned("i", "x")) is None
    assert vector_location("/t", planned("u", "ab" + "0" * 20)) == f"/t/ab/{name}"
    assert vector_location("/t", planned("p", "file:///o/a%20b.bin")) == "/o/a b.bin"
    assert vector_location("s3://b/t", planned("p", "s3://b/v.bin")) == "s3://b/v.bin"


@pytest.mark.parametrize(
    ("kind", "place"),
    [("z", "x"), ("u", "x"), ("u", "\u00e9" * 20), ("p", "file:///%ff"), ("p", "s3://b/v.bin")],
)
def test_a_vector_that_is_nowhere_is_an_error_of_its_data_file(kind: str, place: str) -> None:
    with pytest.raises(DataFileError, match="its deletion vector") as raised:
        vector_location("/t", planned(kind, place))
    assert raised.value.path == "a.parquet"


def test_the_same_id_gives_the_same_name_and_another_gives_another(run: Run) -> None:
    uuids = [run.uuid(unique_id) for unique_id in ("a", "b")]
    assert uuids[0] != uuids[1]
    assert all(uuid.version == 4 and uuid.hex.startswith(DIGITS) for uuid in uuids)
    write_vector(run, ROWS, unique_id="a")
    before = {name: (Path(run.directory) / name).read_bytes() for name in run.files()}
    with pytest.raises(StorageError, match="is there already"):
        write_vector(run, positions([1]), unique_id="a")
    assert {name: (Path(run.directory) / name).read_bytes() for name in run.files()} == before


@pytest.mark.parametrize("rows", [[], [1, 1], [2, 1]])
def test_rows_that_are_not_increasing_are_refused(run: Run, rows: list[int]) -> None:
    with pytest.raises(ValueError, match="increasing"):
        write_vector(run, np.array(rows, np.uint64), unique_id="a")
    assert run.files() == ()


def test_a_vector_of_a_run_that_ended_is_deleted(run: Run) -> None:
    assert run.retire() is RunStage.RETIRED
    with pytest.raises(ExecutorError, match="ended by another process"):
        write_vector(run, ROWS, unique_id="a")
    assert run.files() == ()


def test_a_vector_that_is_not_stored_as_written_is_deleted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(_: bytes) -> bytes:
        return vector_file(encoded_payload(positions([0, 3, 7, 70_000, 2**33 - 1])))

    monkeypatch.setattr("liquidlog.data.vectors.vector_file", other)
    with pytest.raises(StorageError, match="not what was written"):
        write_vector(run, ROWS, unique_id="a")
    assert run.files() == ()


@pytest.mark.parametrize("broken", [b"", b"\2", b"\1\0\0\0"])
def test_so_is_one_that_is_cut_off(
    run: Run, broken: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("liquidlog.data.vectors.vector_file", lambda _: broken)
    with pytest.raises(StorageError, match="not what was written"):
        write_vector(run, ROWS, unique_id="a")
    assert run.files() == ()


def test_a_put_of_which_the_answer_is_lost_is_read_back(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*arguments: object) -> bool:
        put_if_absent(*arguments)  # type: ignore[arg-type]
        raise AmbiguousPutError

    monkeypatch.setattr(vectors, "put_if_absent", lost)
    assert write_vector(run, ROWS, unique_id="a").cardinality == 5

    def nothing(*_: object) -> bool:
        raise AmbiguousPutError

    monkeypatch.setattr(vectors, "put_if_absent", nothing)
    with pytest.raises(StorageError, match="cannot be read"):
        write_vector(run, ROWS, unique_id="b")


def test_files_of_a_run_are_of_both_kinds_through_all_its_stages(run: Run) -> None:
    data = run.file_name(0, "x", "zstd")
    (Path(run.directory) / data).write_bytes(b"")
    other = Run(run.directory, "ba9876543210")
    other.begin()
    write_vector(other, ROWS, unique_id="a")
    kept, lost = (write_vector(run, ROWS, unique_id=name) for name in "ab")
    names = {vector_path(kept), vector_path(lost), data}
    assert set(run.files()) == names
    run.finish("digest", keep={str(vector_path(kept)), data})
    assert set(run.files()) == names - {vector_path(lost)}
    run.forget(named={data})
    assert run.stage() is RunStage.FINISHED  # its vector would never be listed without a trace
    run.delete_files([str(vector_path(kept))])
    run.forget(named={data})
    assert run.stage() is RunStage.GONE
    assert run.files() == (data,)
    assert len(other.files()) == 1
    other.discard()
    assert other.files() == ()


def test_z85_is_that_of_the_standard() -> None:
    # Source: ZeroMQ RFC 32, "Test Case".
    content = bytes([0x86, 0x4F, 0xD2, 0x6F, 0xB5, 0x59, 0xF7, 0x5B])
    assert encode_z85(content) == "HelloWorld"
    assert decode_z85("HelloWorld") == content
    assert encode_z85(b"") == ""
    assert encode_z85(b"\xff" * 4) == "%nSc0"
    with pytest.raises(ValueError, match="multiple of four"):
        encode_z85(b"abc")
    with pytest.raises(DeletionVectorError):
        decode_z85("%nSc1")


def test_codes_are_of_names_that_vectors_have() -> None:
    # Source: PROTOCOL.md, "Deletion Vector Descriptor Schema", the example of a relative path.
    name = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    others = ["deletion_vector_x.bin", f"{name}.crc", "part-0.parquet", name.upper()]
    assert vector_codes([name, *others]) == {"^-aqEH.-t@S}K{vb[*k^": name}
    assert UUID(name[16:-4]).bytes == decode_z85("^-aqEH.-t@S}K{vb[*k^")


def test_rows_in_runs_take_few_bytes() -> None:
    dense: Positions = np.arange(10**6, dtype=np.uint64)
    assert len(encoded_payload(dense)) < 400
