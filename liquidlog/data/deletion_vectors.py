"""Reading the deletion vector of a data file from where it is stored."""

import numpy as np

from liquidlog.errors import DataFileError, StorageError
from liquidlog.spec.actions import DeletionVector
from liquidlog.spec.deletion_vectors import (
    FILE_VERSION,
    Positions,
    deleted_positions,
    framed_bytes,
    framed_payload,
    inline_payload,
)
from liquidlog.storage.files import open_input
from liquidlog.storage.options import NO_OPTIONS, StorageOptions


def read_deletion_vector(
    vector: DeletionVector | None,
    *,
    location: str | None,
    data_file: str,
    num_rows: int,
    storage: StorageOptions = NO_OPTIONS,
) -> Positions:
    """Return the rows of a data file that are deleted; none without a vector.

    Args:
        vector: As the log describes it.
        location: Local path or URI of the file that holds it; None for one in the log.
        data_file: The data file, which errors name.
        num_rows: Its physical rows.
        storage: Opens the location.

    Raises:
        DataFileError: If the vector is missing, is damaged, or is not what the log says.
    """
    if vector is None:
        return np.empty(0, np.uint64)
    try:
        payload = _payload(vector, location, storage)
        return deleted_positions(payload, cardinality=vector.cardinality, num_rows=num_rows)
    except ValueError as error:
        raise DataFileError(data_file, str(error)) from error
    except OSError as error:
        detail = f"its deletion vector cannot be read from {location}: {error.strerror or error}"
        raise DataFileError(data_file, detail) from error
    except StorageError as error:
        detail = f"its deletion vector cannot be read: {error.message}"
        raise DataFileError(data_file, detail) from None


def _payload(vector: DeletionVector, location: str | None, storage: StorageOptions) -> bytes:
    if location is None:
        return inline_payload(vector)
    return _stored(vector, location, storage)


def _stored(vector: DeletionVector, location: str, storage: StorageOptions) -> bytes:
    """Return the bitmap in a file of vectors, reading no more of it than the vector.

    Raises:
        ValueError: If the file has another version, or the vector is damaged.
        OSError: If the file cannot be read.
    """
    offset, length = framed_bytes(vector)
    with open_input(location, storage) as file:
        version = file.read(1)
        if version != bytes([FILE_VERSION]):
            raise ValueError(f"its deletion vector is in a file of an unknown version: {location}")
        file.seek(offset)
        return framed_payload(vector, file.read(length))
