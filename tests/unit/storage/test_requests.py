"""How many requests reading a data file costs, and what a wrong size in the log comes to."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.data.logical_file import LogicalFile
from liquidlog.errors import DataFileError
from liquidlog.plan import InputFile
from liquidlog.spec.arrow import delta_schema
from liquidlog.storage.files import OtherSizeError, StoredFile, create
from liquidlog.storage.options import StorageOptions
from support.emulators import Emulator

ROWS = pa.table({"a": np.arange(300_000), "s": [f"{n % 7}" for n in range(300_000)]})


def content(tmp_path: Path, table: pa.Table) -> bytes:
    pq.write_table(table, tmp_path / "f", row_group_size=100_000, compression="none")
    return (tmp_path / "f").read_bytes()


def stored(emulator: Emulator, body: bytes) -> tuple[str, StorageOptions]:
    options = StorageOptions.of(emulator.options)
    address = f"{emulator.new_table()}/part.parquet"
    output = create(address, options)
    output.write(body)
    output.finish()
    emulator.proxy.clear()
    return address, options


def opened(address: str, size_bytes: int, options: StorageOptions) -> LogicalFile:
    source = InputFile(path="part.parquet", size_bytes=size_bytes)
    schema = delta_schema(ROWS.schema)
    return LogicalFile.open(address, source, schema=schema, dictionary=True, storage=options)


def test_a_small_input_costs_one_request(tmp_path: Path, emulator: Emulator) -> None:
    body = content(tmp_path, ROWS)
    assert 1 << 20 < len(body) < 4 << 20
    address, options = stored(emulator, body)
    with opened(address, len(body), options) as file:
        rows = [file.read(None, [group]) for group in range(file.num_row_groups)]
        parts = list(file.read_in_parts(None, 0, max_rows=30_000))
    assert sum(map(len, rows)) == len(ROWS)
    assert sum(map(len, parts)) == 100_000
    assert pa.concat_tables(rows)["a"].to_pylist() == ROWS["a"].to_pylist()
    assert [request.method for request in emulator.proxy.requests] == ["GET"]


def test_the_footer_of_a_larger_input_is_read_once(tmp_path: Path, emulator: Emulator) -> None:
    many = ROWS.set_column(0, "a", pa.array(np.random.default_rng(1).random(len(ROWS)) * 1e15))
    many = pa.concat_tables([many.set_column(0, "a", many["a"].cast(pa.int64(), safe=False))] * 3)
    body = content(tmp_path, many)
    assert len(body) > 4 << 20
    address, options = stored(emulator, body)
    with opened(address, len(body), options) as file:
        assert len(file.read(None, [0])) == 100_000
    methods = [request.method for request in emulator.proxy.requests]
    assert set(methods) == {"GET"}
    assert len(methods) <= 3


def sizes_in(error: DataFileError) -> tuple[int, int]:
    """Return the size that the object has, and the one that it should have."""
    cause = error.__context__
    assert isinstance(cause, OtherSizeError)
    return cause.size_bytes, cause.expected_bytes


@pytest.mark.parametrize("extra", [-(1 << 20), -100, -1, 1, 100, 5 << 20])
def test_an_object_of_another_size_is_refused(
    tmp_path: Path, emulator: Emulator, extra: int
) -> None:
    body = content(tmp_path, ROWS)
    said = max(1, len(body) + extra)
    address, options = stored(emulator, body)
    with pytest.raises(DataFileError) as caught:
        opened(address, said, options)
    assert sizes_in(caught.value) == (len(body), said)


def test_a_longer_object_that_begins_with_the_file_is_refused(
    tmp_path: Path, emulator: Emulator
) -> None:
    body = content(tmp_path, ROWS)
    address, options = stored(emulator, body + body)
    with pytest.raises(DataFileError) as caught:
        opened(address, len(body), options)
    assert sizes_in(caught.value) == (2 * len(body), len(body))


def test_a_missing_object_is_missing(emulator: Emulator) -> None:
    options = StorageOptions.of(emulator.options)
    with pytest.raises(DataFileError) as caught:
        opened(f"{emulator.new_table()}/part.parquet", 1000, options)
    assert isinstance(caught.value.__context__, FileNotFoundError)


def test_a_local_file_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    with pytest.raises(OtherSizeError) as caught:
        StoredFile(str(tmp_path / "f"), size_bytes=4).open()
    assert (caught.value.size_bytes, caught.value.expected_bytes) == (5, 4)
    StoredFile(str(tmp_path / "f"), size_bytes=5).open().close()
