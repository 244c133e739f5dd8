"""Deletion vectors written and read as the protocol says, with nothing of liquidlog."""

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from uuid import UUID

from pyroaring import BitMap64

_MAGIC: Final = struct.pack("<i", 1681511377)
_Z85: Final = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)


def stored_vector(root: Path, number: UUID, deleted: frozenset[int]) -> Mapping[str, Any]:
    """Write a vector into a file of its own in the table's directory; return its descriptor."""
    payload = _MAGIC + BitMap64(deleted).serialize()
    frame = struct.pack(">i", len(payload)) + payload + struct.pack(">I", zlib.crc32(payload))
    (root / f"deletion_vector_{number}.bin").write_bytes(b"\x01" + frame)
    return {
        "storageType": "u",
        "pathOrInlineDv": _z85(number.bytes),
        "offset": 1,
        "sizeInBytes": len(payload),
        "cardinality": len(deleted),
    }


def inline_vector(deleted: frozenset[int]) -> Mapping[str, Any]:
    """Return a descriptor that has the vector itself."""
    payload = _MAGIC + BitMap64(deleted).serialize()
    padded = payload + bytes(-len(payload) % 4)
    return {
        "storageType": "i",
        "pathOrInlineDv": _z85(padded),
        "sizeInBytes": len(payload),
        "cardinality": len(deleted),
    }


def vector_place(root: Path, vector: Mapping[str, Any] | None) -> Path | None:
    """Return the file that a vector is in, None if there is none."""
    if vector is None or vector["storageType"] == "i":
        return None
    if vector["storageType"] == "p":
        return Path(unquote(urlsplit(vector["pathOrInlineDv"]).path))
    prefix, encoded = vector["pathOrInlineDv"][:-20], vector["pathOrInlineDv"][-20:]
    name = f"deletion_vector_{UUID(bytes=_from_z85(encoded))}.bin"
    return Path(root, prefix, name)


def deleted_rows(root: Path, vector: Mapping[str, Any] | None) -> frozenset[int]:
    """Return the rows that a vector deletes, after checking all that the protocol says of it."""
    if vector is None:
        return frozenset()
    place = vector_place(root, vector)
    if place is None:
        payload = _from_z85(vector["pathOrInlineDv"])[: vector["sizeInBytes"]]
    else:
        start, size = vector.get("offset", 0), vector["sizeInBytes"]
        content = place.read_bytes()
        assert content[:1] == b"\x01"
        assert struct.unpack_from(">i", content, start) == (size,)
        payload = content[start + 4 : start + 4 + size]
        assert struct.unpack_from(">I", content, start + 4 + size) == (zlib.crc32(payload),)
    assert payload[:4] == _MAGIC
    found = frozenset(BitMap64.deserialize(payload[4:]))
    assert len(found) == vector["cardinality"]
    return found


def _z85(content: bytes) -> str:
    words = [int.from_bytes(content[at : at + 4], "big") for at in range(0, len(content), 4)]
    return "".join(_Z85[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))


def _from_z85(text: str) -> bytes:
    parts = [text[at : at + 5] for at in range(0, len(text), 5)]
    words = [sum(_Z85.index(c) * 85 ** (4 - at) for at, c in enumerate(part)) for part in parts]
    return b"".join(word.to_bytes(4, "big") for word in words)
