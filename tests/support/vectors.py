"""Deletion vectors written with an encoder that is not ours."""

import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

from pyroaring import BitMap64

from liquidlog.plan import PlannedDeletionVector

MAGIC = struct.pack("<i", 1681511377)


def write_vector(path: Path, deleted: Iterable[int], *, offset: int = 1) -> PlannedDeletionVector:
    """Write a file with one vector and return what the log would say of it, but for its name."""
    content, planned = vector_file(deleted, offset=offset)
    path.write_bytes(content)
    return planned


def vector_file(deleted: Iterable[int], *, offset: int = 1) -> tuple[bytes, PlannedDeletionVector]:
    """Return a file with one vector, and what the log would say of it, but for its name."""
    bitmap = BitMap64(deleted)
    payload = MAGIC + bitmap.serialize()
    frame = struct.pack(">i", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))
    content = b"\x01" + b"?" * (offset - 1) + frame + b"what follows"
    return content, PlannedDeletionVector(
        storage_type="u",
        path_or_inline_dv="0" * 20,
        offset=offset,
        size_bytes=len(payload),
        cardinality=len(bitmap),
    )
