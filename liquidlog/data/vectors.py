"""Files of deletion vectors: where one is, reading one vector, and writing one.

Source: PROTOCOL.md, "Deletion Vectors", "Deletion Vector File Storage Format".
"""

import numpy as np

from liquidlog.data.runs import Run
from liquidlog.errors import CorruptLogError, DataFileError, StorageError, UsageError
from liquidlog.plan import InputFile
from liquidlog.spec.actions import DeletionVector
from liquidlog.spec.deletion_vectors import (
    FILE_VERSION,
    DeletionVectorError,
    Positions,
    deleted_positions,
    encoded_payload,
    framed_bytes,
    framed_payload,
    inline_payload,
    stored_vector,
    vector_file,
    vector_file_name,
    vector_path,
)
from liquidlog.storage.addresses import file_address
from liquidlog.storage.clients import AmbiguousPutError
from liquidlog.storage.files import open_input, put_if_absent
from liquidlog.storage.options import NO_OPTIONS, StorageOptions


def vector_location(table_uri: str, file: InputFile) -> str | None:
    """Return where a file's deletion vector is, None if it has none or the log holds it."""
    planned = file.deletion_vector
    vector = None if planned is None else planned.descriptor
    return located_vector(table_uri, vector, data_file=file.path)


def located_vector(table_uri: str, vector: DeletionVector | None, *, data_file: str) -> str | None:
    """Return the local path or URI of the file that holds a vector, None for one in the log."""
    if vector is None:
        return None
    try:
        path = vector_path(vector)
        return None if path is None else file_address(table_uri, path)
    except DeletionVectorError as error:
        raise DataFileError(data_file, error.message) from error
    except (UsageError, CorruptLogError) as error:
        detail = f"its deletion vector has no usable address: {error.message}"
        raise DataFileError(data_file, detail) from error


def read_deletion_vector(
    vector: DeletionVector | None,
    *,
    location: str | None,
    data_file: str,
    num_rows: int,
    storage: StorageOptions = NO_OPTIONS,
) -> Positions:
    """Return the physical rows of a data file that are deleted, (n,) uint64, increasing."""
    if vector is None:
        return np.empty(0, np.uint64)
    try:
        payload = inline_payload(vector) if location is None else _stored(vector, location, storage)
        return deleted_positions(payload, cardinality=vector.cardinality, num_rows=num_rows)
    except ValueError as error:
        raise DataFileError(data_file, str(error)) from error
    except OSError as error:
        detail = f"its deletion vector cannot be read from {location}: {error.strerror or error}"
        raise DataFileError(data_file, detail) from error
    except StorageError as error:
        detail = f"its deletion vector cannot be read: {error.message}"
        raise DataFileError(data_file, detail) from None


def _stored(vector: DeletionVector, location: str, storage: StorageOptions) -> bytes:
    offset, length = framed_bytes(vector)
    with open_input(location, storage) as file:
        version = file.read(1)
        if version != bytes([FILE_VERSION]):
            raise ValueError(f"its deletion vector is in a file of an unknown version: {location}")
        file.seek(offset)
        return framed_payload(vector, file.read(length))


def write_vector(run: Run, positions: Positions, *, unique_id: str) -> DeletionVector:
    """Write a file with one deletion vector into the table's directory and return its descriptor.

    The file is read back before this returns. `run` must have begun, and `unique_id` names no other
    file of it.
    """
    payload = encoded_payload(positions)
    uuid = run.uuid(unique_id)
    vector = stored_vector(uuid, payload, cardinality=len(positions))
    name = vector_file_name(uuid)
    address = f"{run.directory}/{name}"
    try:
        if not put_if_absent(address, vector_file(payload), run.storage):
            raise StorageError(address, "is there already, though its name is unique to one run")
    except AmbiguousPutError:
        pass  # what is there now decides
    with run.accepting(name):
        _require_written(vector, address, positions, run.storage)
    return vector


def _require_written(
    vector: DeletionVector, address: str, positions: Positions, storage: StorageOptions
) -> None:
    most = int(positions[-1]) + 1
    try:
        found = read_deletion_vector(
            vector, location=address, data_file=address, num_rows=most, storage=storage
        )
    except DataFileError as error:
        raise StorageError(address, f"is not what was written: {error.detail}") from error
    if not np.array_equal(found, positions):
        raise StorageError(address, "is not what was written: it deletes other rows")
