"""Values as text that hides nothing and has no secrets, and checks of arguments.

In checks of arguments, a single string is one item, never a list of letters.
"""

import math
import operator
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from difflib import SequenceMatcher
from enum import StrEnum
from html import escape
from typing import TYPE_CHECKING, Any, Final, NoReturn, SupportsIndex, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liquidlog.errors import UsageError
from liquidlog.spec.schema import Path, StructType, leaves, quote_path, split_path

if TYPE_CHECKING:
    import pandas as pd


def floats_around(low: float, high: float) -> tuple[float, float]:
    """Return the least and the largest float that numbers from `low` to `high` can round to."""
    lows, highs = widened_to_floats(np.array([low]), np.array([high]))
    return float(lows[0]), float(highs[0])


def widened_to_floats(
    low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return float64 bounds that include `low`, `high` and the floats they were written from."""
    return _outward(low, -np.inf, np.minimum), _outward(high, np.inf, np.maximum)


def _outward(values: NDArray[np.float64], end: float, farther: np.ufunc) -> NDArray[np.float64]:
    with np.errstate(over="ignore", invalid="ignore"):
        nearest = values.astype(np.float32)
        neighbour = np.nextafter(nearest, np.float32(end)).astype(np.float64)
        is_float = nearest.astype(np.float64) == values
    found: NDArray[np.float64] = np.where(is_float, values, farther(values, neighbour))
    return found


# Text from outside with credentials masked: signatures, tokens, users in URIs

_SIGNED: Final = re.compile(
    r"(?i)((?:\bsig|signature|x-amz-security-token|x-amz-signature|x-amz-credential|accountkey"
    r"|sharedaccesssignature|access_token|client_secret|secret_access_key|session_token|password)"
    r"[\"']?\s*[=:]\s*[\"']?)[^&\s;,\"'<>]+"
)
_BEARER: Final = re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}")
_USER: Final = re.compile(r"(?i)\b(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<user>[^\s/?#@]+)@")


def masked(text: str) -> str:
    """Return `text` with `***` for signatures, tokens, and users with passwords."""

    def without_user(found: re.Match[str]) -> str:
        may_name_container = found["scheme"].lower() in {"abfs", "abfss", "wasb", "wasbs"}
        is_container = may_name_container and ":" not in found["user"]
        return found[0] if is_container else f"{found['scheme']}://***@"

    text = _SIGNED.sub(r"\1***", text)
    text = _USER.sub(without_user, text) if "@" in text else text
    return _BEARER.sub(r"\1***", text)


# Text from outside can have control characters, marks of text direction, characters without width,
# and halves of surrogate pairs. Each becomes its escape in Python, such as `\x1b`.
#
# Source: Unicode 15, general categories Cc, Cf (without visible signs, like U+0600), Cs, Zl, Zp.

_HIDDEN: Final = (
    r"\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff"
    r"\ufeff\ufff9-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0001\U000e0020-\U000e007f"
)
_IN_A_LINE: Final = re.compile(f"[{_HIDDEN}]")
_IN_LINES: Final = re.compile(f"(?!\n)[{_HIDDEN}]")
_NOT_ASCII: Final = re.compile(f"(?!\n)[{_HIDDEN}]|[^\x00-\x7f]")


def visible(text: str) -> str:
    """Return `text` as one line, with escapes for characters that hide or act."""
    # This test is much faster, and printable text hides nothing.
    return text if text.isprintable() else _IN_A_LINE.sub(_escape, text)


def visible_lines(text: str, *, indent: str = "  ") -> str:
    """Return `text` like `visible`; line breaks are indented, so no line looks like a message."""
    return _IN_LINES.sub(_escape, text.replace("\n", f"\n{indent}"))


def visible_json(document: str, *, ascii_only: bool = False) -> str:
    """Return an equal JSON document with hidden characters escaped."""
    return (_NOT_ASCII if ascii_only else _IN_LINES).sub(_json_escape, document)


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def json_text(value: Any) -> str:  # noqa: ANN401  any JSON value
    return msgspec.json.encode(value).decode()


def json_scalar(value: Any, *, timespec: str) -> Any:  # noqa: ANN401  any scalar
    """Return a value as JSON has it: NaN, infinities and times (with `Z` in UTC) become text."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case datetime():
            zone = "" if value.tzinfo is None else "Z"
            return value.replace(tzinfo=None).isoformat(timespec=timespec) + zone
        case _:
            return value


# As in Spark, GB, MB and kB are powers of 1024, like GiB, MiB and KiB.

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?b)?\s*", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def parse_size(text: int | str) -> int:
    """Return a size in bytes; a number already is in bytes."""
    if isinstance(text, bool) or not isinstance(text, str | SupportsIndex):
        expected = "a size must be bytes or text with a unit, as 16MiB"
        raise UsageError(f"{expected}, found {type(text).__name__}")
    match = _SIZE.fullmatch(str(text))
    if match is None:
        expected = "write bytes or a number with a unit, as 16MiB, 1.5GiB, 100GB"
        raise UsageError(f"{text!r} is not a size: {expected}", value=str(text))
    size_bytes = int(Decimal(match[1]) * 1024 ** _POWERS[match[2].lower()])
    if size_bytes <= 0:
        raise UsageError(f"the size {text!r} is not positive", value=str(text))
    return size_bytes


def amount(count: float) -> str:
    """Return a count or a mean count for people, below 100 with at most one decimal."""
    return f"{count:.1f}".removesuffix(".0") if count < 100 else f"{count:,.0f}"  # noqa: PLR2004


def counted(count: float, noun: str) -> str:
    """Return a count with its noun, as `1 file` or `2.5 files`."""
    shown = amount(count)
    return f"{shown} {noun}" if shown == "1" else f"{shown} {noun}s"


def render_size(size_bytes: float) -> str:
    """Return a size, rounded to bytes, for people: 1536 as `1.5 KiB`."""
    size = float(round(size_bytes))
    for unit in _UNITS[:-1]:
        if abs(size) < 1024:  # noqa: PLR2004
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"


_DURATION: Final = re.compile(r"(\d{1,9})\s*(s|m|h|d)")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
RETENTION: Final = "delta.deletedFileRetentionDuration"
"""Property: how long removed files are kept for readers of older versions."""
_DEFAULT_RETENTION: Final = "interval 1 week"
_INTERVAL_MS: Final = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_STEP: Final = re.compile(rf"(\d+)\s+({'|'.join(_INTERVAL_MS)})s?\s*")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str) -> int:
    """Return a time, in UTC by default, in ms since the epoch; a plain number already is in ms."""
    if not isinstance(text, str):
        raise UsageError(f"a time must be text, found {type(text).__name__}")
    if text.removeprefix("-").isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        problem = f"{text!r} is not a time; write it as 2026-01-31 or 2026-01-31T12:00:00Z"
        raise UsageError(problem, time=text) from None
    return (moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) // timedelta(milliseconds=1)


def parse_duration(text: str) -> int:
    """Return a duration in ms: whole seconds, minutes, hours or days, like 12h."""
    if not isinstance(text, str):
        raise UsageError(f"a duration must be text like 12h, found {type(text).__name__}")
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        problem = f"{text!r} is not a duration; write it as 30s, 15m, 12h or 7d"
        raise UsageError(problem, duration=text)
    return int(found[1]) * _UNIT_MS[found[2]]


def retention_ms(configuration: Mapping[str, str]) -> int | None:
    """Return how long tombstones are kept, in ms, None if the property cannot be parsed."""
    text = configuration.get(RETENTION, _DEFAULT_RETENTION).strip().lower()
    steps = text.removeprefix("interval").strip()
    found = _STEP.findall(steps)
    if not found or _STEP.sub("", steps):
        return None
    return sum(int(number) * _INTERVAL_MS[unit] for number, unit in found)


def rough_duration(duration_ms: int) -> str:
    """Return a duration in the largest fitting unit, rounded down: `12 min`."""
    units = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"))
    fitting = ((size, name) for size, name in units if duration_ms >= size)
    size, name = next(fitting, (1_000, "s"))
    return f"{duration_ms // size} {name}"


def iso_time(time_ms: int) -> str:
    """Return a time (ms since the epoch) as ISO 8601 in UTC, or as a number beyond the calendar."""
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return str(time_ms)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


class Rows(tuple[Mapping[str, Any], ...]):
    """Rows in display order; an absent key is null in a table."""

    __slots__ = ()

    def to_arrow(self) -> pa.Table:
        """Return one Arrow row per mapping; columns are the keys of all rows."""
        columns: dict[str, pa.Array] = {}
        for name in dict.fromkeys(name for row in self for name in row):
            values, kind = [row.get(name) for row in self], None
            if any(isinstance(value, Mapping) for value in values):
                values = [None if value is None else list(value.items()) for value in values]
                kind = pa.map_(pa.string(), pa.string())
            columns[name] = pa.array(values, kind)
        return pa.table(columns)

    def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a data frame; needs pandas."""
        return self.to_arrow().to_pandas()

    def _repr_html_(self) -> str:
        names = tuple(dict.fromkeys(name for row in self for name in row))
        rows = [[row.get(name) for name in names] for row in self]
        return f"<div>{_html_rows(names, rows)}</div>"


_NEAR: Final = 0.7
_MOST_NEAR: Final = 3
_MOST_LISTED: Final = 8
_SHORTEST_PART: Final = 4


def near_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return up to three similar names, nearest first; fields of the same struct are similar."""
    names = tuple(known)
    same = tuple(candidate for candidate in names if candidate.lower() == name.lower())
    if same:
        return same[:_MOST_NEAR]
    scores = {candidate: _score(name.lower(), candidate.lower()) for candidate in names}
    near = [candidate for candidate, score in scores.items() if score >= _NEAR]
    return tuple(sorted(near, key=lambda candidate: -scores[candidate])[:_MOST_NEAR])


def suggestion(name: str, known: Sequence[str], *, what: str) -> str:
    """Return the end of a sentence about an unknown name: similar names, or all names."""
    near = near_names(name, known)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    if not known:
        return f"; there are no {what}"
    left = len(known) - _MOST_LISTED
    more = f" and {left} more" if left > 0 else ""
    return f"; the {what} are {', '.join(known[:_MOST_LISTED])}{more}"


def unknown_columns(unknown: Sequence[str], schema: StructType) -> Iterator[str]:
    """Yield a sentence per unknown name, with suggestions."""
    names = [quote_path(leaf.logical) for leaf in leaves(schema)]
    listed = False
    for name in dict.fromkeys(unknown):
        near = suggestion(name, names, what="columns")
        is_list = near.startswith("; the columns are")
        yield f"there is no column {name}{'' if is_list and listed else near}"
        listed = listed or is_list


def _score(name: str, candidate: str) -> float:
    alike = SequenceMatcher(None, name, candidate, autojunk=False).ratio()
    parent, dot, _ = name.rpartition(".")
    if (
        sorted(name) == sorted(candidate)
        or (len(name) >= _SHORTEST_PART and name in candidate)
        or (dot and candidate.startswith(f"{parent}."))
    ):
        return max(alike, _NEAR)
    return alike


NOT_MEASURED: Final = "not measured"
"""Shown in place of None for a number that was not measured."""

_ROWS_SHOWN: Final = 20


def escaped(text: str) -> str:
    """Return `text` escaped for HTML and SVG, as text or attribute."""
    return escape(visible(text))


class Summary:
    """Mixin: shows an object by a few facts, on one line in a console, as tables in a notebook.

    By default, the facts are a dataclass's numbers and texts, and its first tuple of dataclasses as
    rows. `repr` is no constructor call, because an object may have a million files.
    """

    __slots__ = ()

    def _facts(self) -> Mapping[str, object]:
        return _plain_fields(self)

    def _rows(self) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        tuples = (one for one in _values(self).values() if isinstance(one, tuple) and one)
        rows = next((one for one in tuples if all(map(is_dataclass, one))), ())
        plain = [_plain_fields(row) for row in rows]
        names = tuple(dict.fromkeys(name for row in plain for name in row))
        return names, [[row.get(name) for name in names] for row in plain]

    def __repr__(self) -> str:
        facts = (f"{name}={_spelled(value)}" for name, value in self._facts().items())
        return f"{type(self).__name__}({', '.join(facts)})"

    def _repr_html_(self) -> str:
        title = f"<p><b>{escaped(type(self).__name__)}</b></p>"
        facts = _html_table(("", ""), list(self._facts().items()))
        return f"<div>{title}{facts}{_html_rows(*self._rows())}</div>"


def _values(value: object) -> Mapping[str, object]:
    known = fields(value) if is_dataclass(value) else ()
    return {one.name: getattr(value, one.name) for one in known}


def _plain_fields(value: object) -> Mapping[str, object]:
    return {name: item for name, item in _values(value).items() if _is_plain(item)}


def _is_plain(item: object) -> bool:
    return isinstance(item, str | int | float) or (
        isinstance(item, tuple) and bool(item) and all(map(_is_plain, item))
    )


def _html_rows(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return the first rows as a table and the number of the others; empty without rows."""
    more = len(rows) - _ROWS_SHOWN
    rest = f"<p>and {more} more</p>" if more > 0 else ""
    return _html_table(names, rows[:_ROWS_SHOWN]) + rest if rows else ""


def _html_table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escaped(name)}</th>" for name in names)
    head = f"<thead><tr>{head}</tr></thead>" if any(names) else ""
    cells = ("".join(f"<td>{escaped(_text(cell))}</td>" for cell in row) for row in rows)
    return f"<table>{head}{''.join(f'<tr>{found}</tr>' for found in cells)}</table>"


def _spelled(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_spelled, value))}]"
    return repr(str(value)) if isinstance(value, str) else repr(value)


def _text(cell: Any) -> str:  # noqa: ANN401
    if isinstance(cell, tuple):
        return ", ".join(map(str, cell))
    return "" if cell is None else str(cell)


def alter(uri: str, clause: str) -> str:
    """Return the command for an ALTER TABLE clause; `uri` is the table's address."""
    place = uri.replace("`", "``")
    return f"liquidlog sql {shlex.quote(f'ALTER TABLE delta.`{place}` {clause}')}"


def set_properties(properties: Mapping[str, str]) -> str:
    pairs = (f"{_sql_text(name)} = {_sql_text(value)}" for name, value in properties.items())
    return f"SET TBLPROPERTIES ({', '.join(pairs)})"


def unset_properties(names: Iterable[str]) -> str:
    return f"UNSET TBLPROPERTIES ({', '.join(map(_sql_text, names))})"


def _sql_text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


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
        kind = type(value).__name__
        raise UsageError(f"{argument} must be a list of {of}, or one, found an empty {kind}")
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
    expected = f"{argument} must be a mapping of names to texts"
    if not isinstance(value, Mapping):
        raise UsageError(f"{expected}, found {type(value).__name__}")
    for name, item in value.items():
        if not isinstance(name, str) or not isinstance(item, str):
            raise UsageError(f"{expected}, found {type(item).__name__} for {_shown(name)}")
    return dict(value)


def refuse(argument: str, expected: str, value: object) -> NoReturn:
    raise UsageError(f"{argument} must be {expected}, found {_shown(value)}", argument=argument)


def _shown(value: Any) -> str:  # noqa: ANN401  anything
    if value is None or isinstance(value, bool):
        return str(value)
    if not isinstance(value, str | bytes | int | float):
        return f"an object of type {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."


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
    if name.lower() not in CODEC_NAMES:
        problem = f"{where} must be one of {', '.join(CODEC_NAMES)}, found {name!r}"
        raise UsageError(problem, compression=name)
    return Codec(_ALIASES.get(name.lower(), name.lower()))
