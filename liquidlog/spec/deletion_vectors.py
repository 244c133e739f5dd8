"""Deletion vectors as bytes: where a vector is stored, which rows it deletes. Opens no file.

Source: PROTOCOL.md, "Deletion Vectors", "Deletion Vector Format" and "Deletion Vector File Storage
Format"; ZeroMQ RFC 32 (Z85).
"""

import base64
import re
import struct
import zlib
from collections.abc import Iterable
from typing import Final, TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from liquidlog.spec.actions import DeletionVector
from liquidlog.spec.paths import canonical_path

Positions: TypeAlias = npt.NDArray[np.uint64]
"""Physical rows of a data file, counted from 0: increasing and distinct."""

RELATIVE: Final = "u"
ABSOLUTE: Final = "p"

FILE_VERSION: Final = 1
VECTOR_OFFSET: Final = 1
"""The version in the first byte of a file of vectors, and the offset of the first vector."""

ENCODED_UUID_CHARS: Final = 20
"""The length of the uuid, as Z85, at the end of a relative vector's path."""

VECTOR_PREFIX: Final = "deletion_vector_"
_VECTOR_SUFFIX: Final = ".bin"
_VECTOR_NAME: Final = re.compile(
    rf"{VECTOR_PREFIX}(?P<uuid>[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}){_VECTOR_SUFFIX}"
)

_PORTABLE_MAGIC: Final = 1681511377
_WORD_BYTES: Final = 4

_Z85: Final = (
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)
_B85: Final = (
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
)
"""The digits of Z85 and of Python's b85; the encodings differ in nothing else."""
_OTHERS: Final = bytes(set(range(256)) - set(_Z85))
_DIGITS: Final = bytes.maketrans(_Z85, _B85)


class DeletionVectorError(ValueError):
    """A deletion vector cannot be trusted; the message says why."""


def _fault(problem: str) -> DeletionVectorError:
    return DeletionVectorError(f"its deletion vector {problem}")


def vector_path(vector: DeletionVector) -> str | None:
    """Return the decoded path of a vector's file, None for an inline vector."""
    match vector.storage_type:
        case "i":
            return None
        case "p":
            return canonical_path(vector.path_or_inline_dv)
        case "u":
            prefix = vector.path_or_inline_dv[:-ENCODED_UUID_CHARS]
            encoded = vector.path_or_inline_dv[-ENCODED_UUID_CHARS:]
            if len(encoded) != ENCODED_UUID_CHARS:
                raise _fault(f"has no file name: {encoded!r}")
            name = vector_file_name(UUID(bytes=decode_z85(encoded)))
            return f"{prefix}/{name}" if prefix else name
        case other:
            raise _fault(f"has the unknown storage type {other!r}")


def inline_payload(vector: DeletionVector) -> bytes:
    content = decode_z85(vector.path_or_inline_dv)
    padding_bytes = len(content) - vector.size_in_bytes
    if not 0 <= padding_bytes < _WORD_BYTES:
        raise _fault(f"has {len(content)} bytes, the log says {vector.size_in_bytes}")
    return content[: vector.size_in_bytes]


def framed_bytes(vector: DeletionVector) -> tuple[int, int]:
    """Return the offset and the length in bytes of a stored vector in its file, with its frame."""
    offset = vector.offset or 0
    if offset < 0 or vector.size_in_bytes < 0:
        raise _fault("has a negative offset or size")
    return offset, vector.size_in_bytes + 2 * _WORD_BYTES


def framed_payload(vector: DeletionVector, content: bytes) -> bytes:
    """Return the bitmap inside the frame, the bytes at `framed_bytes`."""
    if len(content) < vector.size_in_bytes + 2 * _WORD_BYTES:
        raise _fault("is cut off")
    (size_bytes,) = struct.unpack_from(">i", content)
    if size_bytes != vector.size_in_bytes:
        raise _fault(f"has {size_bytes} bytes, the log says {vector.size_in_bytes}")
    payload = content[_WORD_BYTES : _WORD_BYTES + size_bytes]
    (checksum,) = struct.unpack_from(">I", content, _WORD_BYTES + size_bytes)
    if zlib.crc32(payload) != checksum:
        raise _fault("is damaged: the checksum differs")
    return payload


def deleted_positions(payload: bytes, *, cardinality: int, num_rows: int) -> Positions:
    if payload[:_WORD_BYTES] != struct.pack("<i", _PORTABLE_MAGIC):
        raise _fault("is in a format this release does not know")
    try:
        bitmap = BitMap64.deserialize(payload[_WORD_BYTES:])
    except (ValueError, IndexError) as error:
        raise _fault("is not a roaring bitmap") from error
    if len(bitmap) != cardinality:
        raise _fault(f"has {len(bitmap)} rows, the log says {cardinality}")
    if not cardinality:
        return np.empty(0, np.uint64)
    if bitmap.max() >= num_rows:
        raise _fault(f"deletes row {bitmap.max()}, the file has {num_rows} rows")
    positions = np.frombuffer(bitmap.to_array(), np.uint64)
    if not (positions[1:] > positions[:-1]).all():
        raise _fault("is not a sound roaring bitmap")
    return positions


def encoded_payload(positions: Positions) -> bytes:
    """Return magic number and bitmap of deleted rows; `deleted_positions` is the inverse."""
    if not len(positions) or not (positions[1:] > positions[:-1]).all():
        raise ValueError("a deletion vector needs rows in increasing order")
    bitmap = BitMap64(positions)
    bitmap.run_optimize()
    return struct.pack("<i", _PORTABLE_MAGIC) + bytes(bitmap.serialize())


def vector_file(payload: bytes) -> bytes:
    """Return the content of a file with one vector, at offset `VECTOR_OFFSET`."""
    frame = struct.pack(">i", len(payload)), payload, struct.pack(">I", zlib.crc32(payload))
    return b"".join((bytes([FILE_VERSION]), *frame))


def stored_vector(name: UUID, payload: bytes, *, cardinality: int) -> DeletionVector:
    """Return the descriptor of a vector in the table's file `vector_file_name(name)`."""
    return DeletionVector(
        storage_type=RELATIVE,
        path_or_inline_dv=encode_z85(name.bytes),
        offset=VECTOR_OFFSET,
        size_in_bytes=len(payload),
        cardinality=cardinality,
    )


def vector_file_name(name: UUID) -> str:
    return f"{VECTOR_PREFIX}{name}{_VECTOR_SUFFIX}"


def vector_codes(names: Iterable[str]) -> dict[str, str]:
    """Return the encoded uuids at the end of descriptors, each with the name of its file."""
    found = ((_VECTOR_NAME.fullmatch(name), name) for name in names)
    return {encode_z85(UUID(match["uuid"]).bytes): name for match, name in found if match}


def encode_z85(content: bytes) -> str:
    """Return bytes as Z85 text; their number is a multiple of four."""
    if len(content) % _WORD_BYTES:
        raise ValueError(f"Z85 encodes a multiple of four bytes, not {len(content)}")
    return base64.b85encode(content).translate(bytes.maketrans(_B85, _Z85)).decode()


def decode_z85(text: str) -> bytes:
    """Return the bytes of Z85 text; their number is a multiple of four."""
    digits = text.encode()
    if len(digits) % 5 or digits.translate(None, _OTHERS) != digits:
        raise _fault("is not Z85 text")
    try:
        return base64.b85decode(digits.translate(_DIGITS))
    except ValueError as error:
        raise _fault("is not Z85 text") from error
