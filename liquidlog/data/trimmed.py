"""An output without some of its rows, for tables that have no deletion vectors."""

import numpy as np
import numpy.typing as npt

from liquidlog.data.checksum import add_checksums, multiset_checksum, subtract_checksums
from liquidlog.data.deletion_proof import ProvedRows
from liquidlog.data.output_rows import FileLayout, Output
from liquidlog.data.runs import Run
from liquidlog.data.writer import ROW_GROUP_BYTES, DataFileWriter
from liquidlog.errors import ResultMismatchError
from liquidlog.plan import WrittenFile
from liquidlog.spec.deletion_vectors import Positions
from liquidlog.storage.options import NO_OPTIONS, StorageOptions


def write_without(
    run: Run,
    output: Output,
    deleted: ProvedRows,
    *,
    layout: FileLayout,
    unique_id: str,
    storage: StorageOptions = NO_OPTIONS,
) -> WrittenFile:
    """Write a copy of an output without some rows, in the same order; return what it holds.

    What is written is read back: its checksum must be that of all rows of the output without that
    of the rows left out.

    Args:
        run: Whose file the copy is; it must have begun.
        output: The file; its `deleted` rows are left out too.
        deleted: Rows to leave out.
        layout: Of both files.
        unique_id: Text that names no other file of the run, such as a new id.
        storage: Opens and creates the files.
    """
    gone = np.union1d(output.deleted, deleted.positions)
    if len(gone) >= output.file.num_records:
        raise ValueError(f"{output.file.path}: no row would be left")
    attempt = str(run.uuid(unique_id))[len("01234567-0123-") :]
    name = run.path(run.file_name(0, attempt, layout.options.compression))
    address = f"{run.directory}/{name}"
    with DataFileWriter(
        address, schema=layout.file_schema, options=layout.options, storage=storage
    ) as writer:
        expected = _copy(output, gone, deleted, writer, layout, storage)
        written = writer.finish(name)
    with run.accepting(name):
        _require(written, address, expected, layout, storage)
    return written


def _copy(
    output: Output,
    gone: Positions,
    deleted: ProvedRows,
    writer: DataFileWriter,
    layout: FileLayout,
    storage: StorageOptions,
) -> int:
    """Write the rows of an output that are not gone; return the checksum that they should have.

    The `deleted` rows are those that are gone now.
    """
    whole = left_out = proved = start = 0
    with output.opened(layout, storage, dictionary=True) as file:
        for group in range(file.num_row_groups):
            for part in file.read_bounded(None, group, max_bytes=ROW_GROUP_BYTES):
                doomed = _mask(gone, start, len(part))
                new = _mask(deleted.positions, start, len(part))
                whole = add_checksums(whole, multiset_checksum(part))
                left_out = add_checksums(left_out, multiset_checksum(part.filter(doomed)))
                proved = add_checksums(proved, multiset_checksum(part.filter(new)))
                writer.write(part.filter(~doomed))
                start += len(part)
    if proved != deleted.checksum:
        problem = f"the rows to leave out of {output.file.path} are not those that were found"
        raise ResultMismatchError((problem,))
    return subtract_checksums(whole, left_out)


def _mask(positions: Positions, start: int, rows: int) -> npt.NDArray[np.bool_]:
    """Return which of some rows, numbered from `start`, are among increasing positions."""
    mask = np.zeros(rows, np.bool_)
    first, last = np.searchsorted(positions, np.array([start, start + rows], np.uint64)).tolist()
    mask[positions[first:last] - np.uint64(start)] = True
    return mask


def _require(
    written: WrittenFile, address: str, checksum: int, layout: FileLayout, storage: StorageOptions
) -> None:
    """Read a file back and refuse it if its rows do not have a checksum."""
    found = 0
    copy = Output(address=address, file=written, deleted=np.empty(0, np.uint64))
    with copy.opened(layout, storage, dictionary=True) as file:
        for group in range(file.num_row_groups):
            for part in file.read_bounded(None, group, max_bytes=ROW_GROUP_BYTES):
                found = add_checksums(found, multiset_checksum(part))
    if found != checksum:
        problem = f"{written.path} does not hold the rows that it should"
        raise ResultMismatchError((problem,))
