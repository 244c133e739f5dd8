"""Decompress what engines compress their logs with; the first bytes say how, not the name.

Spark frames LZ4 and Snappy as its Java libraries do: blocks with a header of their own, which
nothing else reads. Everything is a stream, in bounded memory.
"""

import io
import struct
from collections.abc import Iterator
from typing import Final, Protocol

import pyarrow as pa

_CHUNK_BYTES: Final = 4 << 20
_PIECE_BYTES: Final = 64 << 10
"""A damaged stream loses what one request would have brought."""
_LARGEST_BLOCK_BYTES: Final = 64 << 20
"""Spark's blocks have 32 KiB; larger ones than this are not of Spark."""

_LZ4_BLOCK: Final = b"LZ4Block"
_LZ4_HEADER: Final = struct.Struct("<8sBiii")
_LZ4_RAW: Final = 0x10
_LZ4_COMPRESSED: Final = 0x20
_SNAPPY: Final = b"\x82SNAPPY\x00"
_SNAPPY_VERSIONS_BYTES: Final = 8
_ARROW: Final = {b"\x28\xb5\x2f\xfd": "zstd", b"\x1f\x8b": "gzip", b"\x04\x22\x4d\x18": "lz4"}
_LZF: Final = b"ZV"


class Readable(Protocol):
    """A file that is read from its beginning on."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes, none at the end."""
        ...


class DamagedStreamError(OSError):
    """What is left of a file cannot be decompressed; all before it was."""


def chunks(file: Readable) -> Iterator[bytes]:
    """Yield the content of a file, decompressed if it is compressed."""
    start = file.read(len(_LZ4_BLOCK))
    whole = _Joined(start, file)
    codec = next((name for magic, name in _ARROW.items() if start.startswith(magic)), None)
    if codec is not None:
        yield from _arrow_chunks(whole, codec)
    elif start == _LZ4_BLOCK:
        yield from _lz4_chunks(whole)
    elif start == _SNAPPY:
        yield from _snappy_chunks(whole)
    elif start.startswith(_LZF):
        raise DamagedStreamError("it is compressed by LZF, which is not read; Spark has zstd")
    else:
        while piece := whole.read(_CHUNK_BYTES):
            yield piece


class _Joined(io.RawIOBase):
    """The bytes that were looked at, and the rest of their file."""

    def __init__(self, start: bytes, file: Readable) -> None:
        super().__init__()
        self._start = start
        self._file = file

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if self._start:
            first = self._start if size < 0 else self._start[:size]
            self._start = self._start[len(first) :]
            return first
        return bytes(self._file.read(_CHUNK_BYTES if size < 0 else size))

    def exactly(self, size: int) -> bytes:
        """Return so many bytes, or none at the end of the file."""
        pieces: list[bytes] = []
        missing = size
        while missing:
            piece = self.read(missing)
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        if missing and pieces:
            raise DamagedStreamError("it ends within a block")
        return b"".join(pieces)


def _arrow_chunks(file: _Joined, codec: str) -> Iterator[bytes]:
    stream = pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec)
    while True:
        try:
            piece = stream.read(_PIECE_BYTES)
        except (OSError, pa.ArrowException) as error:
            raise DamagedStreamError(f"it ends within a block, or is damaged: {error}") from None
        if not piece:
            return
        yield piece


def _lz4_chunks(file: _Joined) -> Iterator[bytes]:
    codec = pa.Codec("lz4_raw")
    while header := file.exactly(_LZ4_HEADER.size):
        magic, token, size, full_size, _ = _LZ4_HEADER.unpack(header)
        if magic != _LZ4_BLOCK or not 0 <= size <= _LARGEST_BLOCK_BYTES >= full_size >= 0:
            raise DamagedStreamError("a block of LZ4 has no header")
        if full_size == 0:
            continue  # the end of one stream; a file may have several
        block = _block(file, size)
        if token & 0xF0 == _LZ4_RAW:
            yield block
        elif token & 0xF0 == _LZ4_COMPRESSED:
            yield _decompressed(codec, block, full_size)
        else:
            raise DamagedStreamError("a block of LZ4 is of an unknown kind")


def _snappy_chunks(file: _Joined) -> Iterator[bytes]:
    codec = pa.Codec("snappy")
    file.exactly(len(_SNAPPY) + _SNAPPY_VERSIONS_BYTES)
    while size_bytes := file.exactly(4):
        if size_bytes == _SNAPPY[:4]:
            file.exactly(len(_SNAPPY) - 4 + _SNAPPY_VERSIONS_BYTES)  # another stream begins
            continue
        size = int.from_bytes(size_bytes, "big", signed=True)
        if not 0 <= size <= _LARGEST_BLOCK_BYTES:
            raise DamagedStreamError("a block of Snappy has no size")
        block = _block(file, size)
        yield _decompressed(codec, block, _snappy_size(block))


def _block(file: _Joined, size: int) -> bytes:
    block = file.exactly(size)
    if len(block) < size:
        raise DamagedStreamError("it ends within a block")
    return block


def _snappy_size(block: bytes) -> int:
    """Return the size that a block of Snappy says it has, a number in pieces of seven bits."""
    size = 0
    for place, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:  # noqa: PLR2004  the bit that says that more follows
            break
    if size > _LARGEST_BLOCK_BYTES:
        raise DamagedStreamError("a block of Snappy is too large")
    return size


def _decompressed(codec: pa.Codec, block: bytes, full_size: int) -> bytes:
    try:
        return bytes(codec.decompress(block, full_size, asbytes=True))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DamagedStreamError(f"a block is damaged: {error}") from None
