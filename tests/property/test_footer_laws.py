"""Footers that are read and written again say the same; garbage is refused, and nothing else."""

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.data import thrift
from liquidlog.data.footer import Footer, NotMovableError, framed, read_footer
from liquidlog.data.pages import PageError, data_pages
from liquidlog.data.thrift import Items, Pairs, ThriftError, encode_struct, read_struct
from liquidlog.spec.codecs import Codec

BITS = {thrift.I16: 16, thrift.I32: 32, thrift.I64: 64}


def integers(kind: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (BITS[kind] - 1)), (1 << (BITS[kind] - 1)) - 1)


def values(kind: int, depth: int) -> st.SearchStrategy[Any]:
    """Values as elements of lists and maps."""
    simple: dict[int, Callable[[], st.SearchStrategy[Any]]] = {
        thrift.TRUE: lambda: st.sampled_from([1, 2]),
        thrift.BYTE: lambda: st.integers(0, 255),
        thrift.DOUBLE: lambda: st.binary(min_size=8, max_size=8),
        thrift.BINARY: lambda: st.binary(max_size=200),
        thrift.STRUCT: lambda: structs(depth + 1),
        thrift.LIST: lambda: lists(depth + 1),
        thrift.SET: lambda: lists(depth + 1),
        thrift.MAP: lambda: maps(depth + 1),
        **{kind: lambda kind=kind: integers(kind) for kind in BITS},  # type: ignore[misc]
    }
    return simple[kind]()


def kinds(depth: int) -> st.SearchStrategy[int]:
    flat = [thrift.TRUE, thrift.BYTE, *BITS, thrift.DOUBLE, thrift.BINARY]
    nested = [thrift.LIST, thrift.SET, thrift.MAP, thrift.STRUCT]
    return st.sampled_from(flat if depth > 2 else flat + nested)


def lists(depth: int) -> st.SearchStrategy[Items]:
    return kinds(depth).flatmap(
        lambda kind: st.builds(Items, st.just(kind), st.lists(values(kind, depth), max_size=20))
    )


def maps(depth: int) -> st.SearchStrategy[Pairs]:
    def of(pair: tuple[int, int]) -> st.SearchStrategy[Pairs]:
        pairs = st.lists(st.tuples(*(values(kind, depth) for kind in pair)), min_size=1, max_size=3)
        return st.builds(Pairs, st.just(pair[0]), st.just(pair[1]), pairs)

    return st.just(Pairs(0, 0, [])) | st.tuples(kinds(depth), kinds(depth)).flatmap(of)


def fields(depth: int) -> st.SearchStrategy[tuple[int, Any]]:
    booleans = st.sampled_from([(thrift.TRUE, True), (thrift.FALSE, False)])
    others = kinds(depth).filter(lambda kind: kind != thrift.TRUE)
    return booleans | others.flatmap(lambda kind: st.tuples(st.just(kind), values(kind, depth)))


def structs(depth: int = 0) -> st.SearchStrategy[dict[int, Any]]:
    return st.dictionaries(integers(thrift.I16), fields(depth), max_size=6)


def tables() -> list[pa.Table]:
    numbers = pa.table({"a": list(range(300)), "b": [f"text {n % 7}" for n in range(300)]})
    nested = pa.table(
        {"l": [[1, None], None, []] * 9, "s": [{"x": 1.5, "y": b"\xff"}, None, None] * 9}
    )
    many = pa.table({f"column {n}": [n, None] for n in range(40)})
    return [numbers, nested, many, numbers.slice(0, 0)]


def content_of(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=max(1, len(table) // 3), **options)
    return bytes(sink.getvalue())


CONTENTS = [
    content_of(table, write_page_index=index, data_page_version=version, write_page_checksum=True)
    for table in tables()
    for index in (True, False)
    for version in ("1.0", "2.0")
]


@given(struct=structs())
def test_what_is_written_is_read_and_has_one_form(struct: dict[int, Any]) -> None:
    content = encode_struct(struct)
    assert read_struct(b"before" + content + b"after", 6) == (struct, 6 + len(content))
    assert list(read_struct(content)[0]) == list(struct)


@given(content=st.binary(max_size=400))
def test_garbage_is_refused_or_is_a_struct(content: bytes) -> None:
    try:
        struct, end = read_struct(content)
    except ThriftError:
        return
    assert end <= len(content)
    # Other forms of the same struct become the shortest one.
    assert read_struct(encode_struct(struct))[0] == struct


@pytest.mark.parametrize(
    "content",
    [
        bytes([0x1C] * 100_000),  # structs in structs
        bytes([0x19] + [0x19] * 100_000),  # lists in lists
        b"\x19\xfc\xff\xff\xff\xff\x0f",  # a list of four billion structs
        b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # a text of 2**64 bytes
        b"\x16\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",  # more than 64 bits
        b"\x15\xff\xff\xff\xff\x7f\x00",  # an i32 of 35 bits
        b"\x11\x01\x02\x00",  # field 1 and again, by its long form
        b"\x1d\x00",  # no such type
        b"\x1b\xff\xff\xff\x0f\x88",  # a map of many pairs
        b"",
    ],
)
def test_what_would_take_memory_or_depth_is_refused(content: bytes) -> None:
    with pytest.raises(ThriftError):
        read_struct(content)


@pytest.mark.parametrize("content", CONTENTS)
def test_footers_of_arrow_are_written_byte_by_byte(content: bytes) -> None:
    footer, start = read_footer(io.BytesIO(content), len(content))
    assert framed(footer) == content[start:]


@given(data=st.data())
def test_damaged_footers_are_refused_or_read(data: st.DataObject) -> None:
    content = data.draw(st.sampled_from(CONTENTS))
    _, start = read_footer(io.BytesIO(content), len(content))
    footer = bytearray(content[start:-8])
    for _ in range(data.draw(st.integers(1, 4))):
        footer[data.draw(st.integers(0, len(footer) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, 3))
    damaged = bytes(footer[: len(footer) - cut])
    try:
        found = Footer.parse(damaged)
        found.require_movable(Codec.SNAPPY, end=start)
        spans = [chunk.span for group in found.row_groups for chunk in group.chunks]
        assert all(low >= 4 and low + size <= start for low, size in spans)
        assert isinstance(found.schema.key, bytes)
        found.schema.arrow()
    except (ThriftError, NotMovableError):
        return


@given(data=st.data())
def test_damaged_pages_are_refused_or_fill_their_chunk(data: st.DataObject) -> None:
    content = CONTENTS[0]
    footer, _ = read_footer(io.BytesIO(content), len(content))
    chunk = footer.row_groups[0].chunks[1]
    start, size = chunk.span
    pages = bytearray(content[start : start + size])
    expected = data_pages(memoryview(bytes(pages)), num_values=chunk.num_values)
    place = data.draw(st.integers(0, size - 1))
    pages[place] ^= data.draw(st.integers(1, 255))
    try:
        found = data_pages(memoryview(bytes(pages)), num_values=chunk.num_values)
    except PageError:
        return
    # Checksums are of what follows a header, so only a header can be another one.
    assert any(page <= place < page + 60 for page, _ in [(0, 0), *expected])
    assert sum(bytes_ for _, bytes_ in found) <= size
