"""Checks of arguments that callers pass. A single string is one item, never a list of letters."""

import math
import operator
import os
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NoReturn, TypeVar

from liquidlog.errors import UsageError
from liquidlog.spec.schema import Path, split_path

T = TypeVar("T")

_MOST_SHOWN: Final = 60


def column_paths(value: object, *, argument: str, empty: bool = False) -> tuple[Path, ...]:
    """Return the parts of each column's name; `value` is one name or a sequence of names."""
    names = texts(value, argument=argument, of="column names", empty=empty)
    return tuple(split_path(name) for name in names)


def texts(value: object, *, argument: str, of: str, empty: bool = False) -> tuple[str, ...]:
    """Return the texts of a sequence, or one text as a tuple."""
    found = several(value, (str,), argument=argument, of=of)
    if not found and not empty:
        raise UsageError(
            f"{argument} must be a list of {of}, or one, found an empty {_kind(value)}"
        )
    return found


def several(value: object, kinds: tuple[type[T], ...], *, argument: str, of: str) -> tuple[T, ...]:
    """Return the items of a sequence, or one item as a tuple; every item must be of `kinds`."""
    if isinstance(value, kinds):
        return (value,)
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | Iterator):
        refuse(argument, f"a list of {of}, or one", value)
    items = tuple(value)
    for number, item in enumerate(items):
        if not isinstance(item, kinds):
            refuse(f"{argument}[{number}]", f"one of the {of}", item)
    return items


def one(value: object, kind: type[T] | tuple[type[T], ...], *, argument: str, expected: str) -> T:
    # To Python, True and False are numbers; no caller means them so.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        refuse(argument, expected, value)
    return value


def address(value: object, *, argument: str) -> str:
    found = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(found, str) or not found.strip() or "\0" in found:
        refuse(argument, "a path or a URI", found)
    return found


def transaction(value: object) -> tuple[str, int] | None:
    """Return an application's id and its version, or None."""
    match value:
        case None:
            return None
        case (str(app_id), int(version)) if app_id and not isinstance(version, bool):
            return app_id, version
        case _:
            return refuse("txn", "(application id, version)", value)


def whole_number(value: object, *, argument: str, least: int = 0) -> int:
    try:
        found = least - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        found = least - 1
    if found < least:
        refuse(argument, f"a whole number from {least}", value)
    return found


def number(value: object, *, argument: str, least: float = 0.0) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
        if least <= found < math.inf:
            return found
    return refuse(argument, f"a number from {least:g}", value)


def text_mapping(value: object, *, argument: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{argument} must be a mapping of names to texts, found {_kind(value)}")
    for name, item in value.items():
        if not isinstance(name, str) or not isinstance(item, str):
            raise UsageError(
                f"{argument} must be a mapping of names to texts,"
                f" found {_kind(item)} for {_shown(name)}"
            )
    return dict(value)


def refuse(argument: str, expected: str, value: object) -> NoReturn:
    raise UsageError(f"{argument} must be {expected}, found {_shown(value)}", argument=argument)


def _shown(value: Any) -> str:  # noqa: ANN401  anything
    if value is None or isinstance(value, bool):
        return str(value)
    if not isinstance(value, str | bytes | int | float):
        return f"an object of type {_kind(value)}"
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."


def _kind(value: object) -> str:
    return type(value).__name__


# The compression codecs of data files, under the names that tables, plans and users give them.
# Source: Apache Parquet format, Compression.md; Delta Kernel, TableConfig; Spark,
# ParquetCompressionCodec.

CODEC_PROPERTY: Final = "delta.parquet.compression.codec"


class Codec(StrEnum):
    """The codecs that we write. Brotli and LZO need libraries that Spark does not ship."""

    ZSTD = "zstd"
    SNAPPY = "snappy"
    GZIP = "gzip"
    LZ4_RAW = "lz4_raw"
    UNCOMPRESSED = "uncompressed"


_ALIASES: Final = {
    "none": Codec.UNCOMPRESSED,
    # Spark's `lz4` has the framing of Hadoop, which Parquet has replaced by LZ4_RAW.
    "lz4": Codec.LZ4_RAW,
}

CODEC_NAMES: Final = (*(codec.value for codec in Codec), *_ALIASES)


def parse_codec(name: str, *, where: str = "compression") -> Codec:
    lowered = name.lower()
    if lowered in _ALIASES:
        return _ALIASES[lowered]
    if lowered not in CODEC_NAMES:
        raise UsageError(
            f"{where} must be one of {', '.join(CODEC_NAMES)}, found {name!r}", compression=name
        )
    return Codec(lowered)
