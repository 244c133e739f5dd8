"""The examples of PROTOCOL.md, and everything that is wrong with a vector."""

import struct
import zlib
from collections.abc import Callable

import pytest
from pyroaring import BitMap64

from liquidlog.spec.actions import DeletionVector
from liquidlog.spec.deletion_vectors import (
    DeletionVectorError,
    decode_z85,
    deleted_positions,
    framed_payload,
    inline_payload,
    vector_path,
)

MAGIC = struct.pack("<i", 1681511377)
PAYLOAD = MAGIC + BitMap64([1, 5, 9]).serialize()


def vector(kind: str, text: str, **fields: int) -> DeletionVector:
    facts = {"offset": 1, "size_in_bytes": 40, "cardinality": 6, **fields}
    return DeletionVector(storage_type=kind, path_or_inline_dv=text, **facts)


def framed(payload: bytes = PAYLOAD, *, size: int | None = None, flip: int = 0) -> bytes:
    size_bytes = len(payload) if size is None else size
    checksum = zlib.crc32(payload) ^ flip
    return struct.pack(">i", size_bytes) + payload + struct.pack(">I", checksum)


def fault_of(action: Callable[[], object]) -> str:
    with pytest.raises(DeletionVectorError) as caught:
        action()
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "text", "path"),
    [
        (
            "u",
            "ab^-aqEH.-t@S}K{vb[*k^",
            "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
        ),
        ("u", "^-aqEH.-t@S}K{vb[*k^", "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"),
        ("p", "s3://mytable/deletion%20vector.bin", "s3://mytable/deletion vector.bin"),
        ("p", "file:///d/x%2520y/v.bin", "/d/x%20y/v.bin"),
        ("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None),
    ],
)
def test_place_of_a_vector(kind: str, text: str, path: str | None) -> None:
    assert vector_path(vector(kind, text)) == path


@pytest.mark.parametrize(
    ("kind", "text", "fault"),
    [
        ("u", "^-aqEH", "no file name"),
        ("u", "^-aqEH.-t@S}K{vb[*k~", "is not Z85"),
        ("r", "a/b.bin", "storage type"),
    ],
)
def test_place_that_cannot_be_understood(kind: str, text: str, fault: str) -> None:
    assert fault in fault_of(lambda: vector_path(vector(kind, text)))


def test_inline_vector_of_another_implementation() -> None:
    # From the tests of delta-kernel-rs.
    text = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    payload = inline_payload(vector("i", text, size_in_bytes=44))
    found = deleted_positions(payload, cardinality=6, num_rows=30)
    assert found.tolist() == [3, 4, 7, 11, 18, 29]


@pytest.mark.parametrize("size", [36, 41])
def test_inline_vector_of_another_size_than_the_log_says(size: int) -> None:
    text = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    found = fault_of(lambda: inline_payload(vector("i", text, size_in_bytes=size)))
    assert "bytes, the log says" in found


@pytest.mark.parametrize("text", ["Hello Worl", "HelloWorl", "#####", "HellöWorld"])
def test_text_that_is_not_z85(text: str) -> None:
    assert "is not Z85" in fault_of(lambda: decode_z85(text))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (framed(flip=1), "checksum differs"),
        (framed(size=len(PAYLOAD) + 4), "bytes, the log says"),
        (framed()[:-1], "is cut off"),
        (b"", "is cut off"),
    ],
)
def test_stored_vector_that_is_damaged(content: bytes, fault: str) -> None:
    stored = vector("u", "x" * 20, size_in_bytes=len(PAYLOAD))
    assert fault in fault_of(lambda: framed_payload(stored, content))


@pytest.mark.parametrize(
    ("payload", "cardinality", "num_rows", "fault"),
    [
        (PAYLOAD, 2, 10, "rows, the log says"),
        (PAYLOAD, 3, 9, "the file has"),
        (PAYLOAD[:-1], 3, 10, "roaring bitmap"),
        (MAGIC, 0, 10, "roaring bitmap"),
        (b"", 0, 10, "in a format"),
        (struct.pack("<i", 1681511376) + PAYLOAD[4:], 3, 10, "in a format"),
    ],
)
def test_bitmap_that_is_not_what_the_log_says(
    payload: bytes, cardinality: int, num_rows: int, fault: str
) -> None:
    found = fault_of(lambda: deleted_positions(payload, cardinality=cardinality, num_rows=num_rows))
    assert fault in found
