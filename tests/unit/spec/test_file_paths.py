import struct
import zlib
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from liquidlog.errors import CorruptLogError
from liquidlog.spec.actions import (
    DeletionVector,
    DeletionVectorError,
    are_plain,
    canonical_path,
    canonical_paths,
    decode_z85,
    deleted_positions,
    framed_payload,
    inline_payload,
    named_twice,
    names_in_table,
    normal_path,
    normal_paths,
)


def test_a_path_has_one_canonical_form() -> None:
    for spelled, canonical in (
        ("a%23b%3Fc%25", "a#b?c%"),
        ("d=%C3%A9/x", "d=é/x"),
        ("x/../a", "a"),
        ("x/%2E%2E/a", "x/../a"),
        ("..a/.b", "..a/.b"),
        ("file:/d/x", "/d/x"),
        ("file:/d/q/../x", "/d/x"),
        ("file:///d/x%2520y/%23", "/d/x%20y/#"),
        ("%2Fd%2Fx", "/d/x"),
        ("file://host/d/x", "file://host/d/x"),
        ("//host/x", "//host/x"),
        ("s3://b/k%20/%25", "s3://b/k /%"),
        ("S3A://b/k", "s3a://b/k"),
        ("abfss://c@a.dfs/k//x", "abfss://c@a.dfs/k/x"),
        ("file%3A/d/x", "./file:/d/x"),
        ("", ""),
    ):
        assert canonical_path(spelled) == canonical
        assert canonical_paths(pa.array(["z", spelled])).to_pylist() == ["z", canonical]
    for read in (canonical_path, lambda path: canonical_paths(pa.array([path]))):
        with pytest.raises(CorruptLogError):
            read("x/a%FF")


_PATHS = st.lists(
    st.lists(
        st.sampled_from(
            [
                "file:",
                "s3:",
                "s3a:",
                "/",
                "//",
                ".",
                "..",
                "a",
                "a b",
                "é",
                "%20",
                "%2F",
                "%3A",
                ":",
            ]
        ),
        max_size=7,
    ).map("".join),
    max_size=8,
)


@given(paths=_PATHS, skipped=st.integers(0, 3), chunks=st.booleans())
def test_many_paths_are_as_each_alone(paths: list[str], skipped: int, *, chunks: bool) -> None:
    array = pa.array(paths, pa.string()).slice(min(skipped, len(paths)))
    given_paths = pa.chunked_array([array, array]) if chunks else array
    expected = [canonical_path(path) for path in given_paths.to_pylist()]
    assert canonical_paths(given_paths).to_pylist() == expected
    assert normal_paths(given_paths).to_pylist() == [
        normal_path(p) for p in given_paths.to_pylist()
    ]


def test_files_named_twice_are_found() -> None:
    for uri, paths, twice in (
        ("/t", ["a", "/t/a", "b", "/u/b"], ("a",)),
        ("/t/u", ["a", "../u/a", "../v/a"], ("a",)),
        ("/", ["t/a", "/t/a"], ("t/a",)),
        ("s3://b/t", ["s3a://b/u/a", "s3://b/u/a"], ("s3://b/u/a",)),
        ("s3://b/t", ["a", "s3://b/u/a", "s3://b/u/a"], ()),
        ("/t", ["a+b", "a%2Bb", "c%20d", "c%20d"], ("a+b",)),
    ):
        assert named_twice(pa.array(paths), uri) == twice


def test_a_file_of_the_table_has_its_name_however_it_is_named() -> None:
    paths = pa.array(["a b", "/t/u/c", "/t/uv", "../u/d", "../v/e", "s3a://b/f"])
    below = ["a b", "c", "/t/uv", "d", "../v/e", "s3a://b/f"]
    assert names_in_table(paths, "/t/u").to_pylist() == below
    assert names_in_table(paths, "s3://b").to_pylist()[-1] == "f"


@given(paths=_PATHS)
def test_plain_paths_are_canonical_as_they_stand_and_each_is_a_file(paths: list[str]) -> None:
    array = pa.array(sorted(set(paths)), pa.string())
    if are_plain(array):
        assert canonical_paths(array).equals(array)
        assert names_in_table(array, "/t").equals(array)
        assert named_twice(array, "/t") == ()
        assert not any(path.startswith("/") for path in array.to_pylist())


# The examples of PROTOCOL.md, and everything that is wrong with a vector.


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
        (PAYLOAD[:-6] + struct.pack("<HHH", 5, 1, 9), 3, 10, "roaring bitmap"),
        (b"", 0, 10, "in a format"),
        (struct.pack("<i", 1681511376) + PAYLOAD[4:], 3, 10, "in a format"),
    ],
)
def test_bitmap_that_is_not_what_the_log_says(
    payload: bytes, cardinality: int, num_rows: int, fault: str
) -> None:
    found = fault_of(lambda: deleted_positions(payload, cardinality=cardinality, num_rows=num_rows))
    assert fault in found
