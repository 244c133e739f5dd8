"""The calendar of dates and timestamps in a Parquet file, and their values in today's calendar.

Files from before Spark 3 are in the hybrid calendar of java.util (Julian until 1582-10-04), later
files in the proleptic Gregorian calendar, except on request; Databricks changed years later. The
calendars agree on dates since 1582-10-15, and on instants since 1900, because hybrid zones had no
local mean time.

Source: Spark, DataSourceUtils (`datetimeRebaseSpec`, `int96RebaseSpec`), RebaseDateTime and its
julian-gregorian-rebase-micros.json, ParquetVectorUpdaterFactory (TIMESTAMP_NTZ is never moved).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.spec.schema import Path, quote_path

SPARK_VERSION: Final = b"org.apache.spark.version"
_ZONE: Final = b"org.apache.spark.timeZone"
_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"

TODAYS_FOOTER: Final = {SPARK_VERSION: b"4.0.0"}
"""Tells Spark 3 that values are in today's calendar; without it, Spark refuses dates before
1582-10-15 and timestamps before 1900."""


class Stored(Enum):
    """How dates and instants are stored; TIMESTAMP_NTZ has no rules."""

    DATE = "date"
    INT64 = "timestamp"
    INT96 = "INT96 timestamp"


class Calendar(StrEnum):
    """The calendar of one kind of column in a file."""

    TODAYS = "today's"
    JULIAN = "the Julian"
    UNKNOWN = "an unknown"


class CalendarRule(NamedTuple):
    """Spark's file is Julian if its version is lower, compared as text, or if it has the key."""

    below: bytes
    key: bytes

    def calendar(self, footer: Mapping[bytes, bytes]) -> Calendar:
        """Return a footer's calendar; without a version, Spark 4 assumes today's."""
        version = footer.get(SPARK_VERSION)
        if version is not None:
            is_julian = version < self.below or self.key in footer
            return Calendar.JULIAN if is_julian else Calendar.TODAYS
        is_doubtful = self.key in footer or _SPARK_SCHEMA in footer
        return Calendar.UNKNOWN if is_doubtful else Calendar.TODAYS


RULES: Final[Mapping[Stored, CalendarRule]] = {
    Stored.DATE: CalendarRule(b"3.0.0", b"org.apache.spark.legacyDateTime"),
    Stored.INT64: CalendarRule(b"3.0.0", b"org.apache.spark.legacyDateTime"),
    Stored.INT96: CalendarRule(b"3.1.0", b"org.apache.spark.legacyINT96"),
}

UTC_ZONES: Final = frozenset(
    {
        *("UTC", "UCT", "GMT", "Z", "Zulu", "Universal", "Greenwich"),
        *("Etc/UTC", "Etc/UCT", "Etc/GMT", "Etc/Zulu", "Etc/Universal", "Etc/Greenwich"),
    }
)
"""Zones whose instants Spark moves by whole days, like dates."""

SWITCH_DAYS: Final = np.array(
    [
        *(-719164, -682945, -646420, -609895, -536845, -500320, -463795),
        *(-390745, -354220, -317695, -244645, -208120, -171595, -141427),
    ]
)
"""Julian days since 1970-01-01 where the days to move change, 0001-01-01 to 1582-10-15."""
MOVED_DAYS: Final = np.array([2, 1, 0, -1, -2, -3, -4, -5, -6, -7, -8, -9, -10, 0])
_AGREED_DAYS: Final = int(SWITCH_DAYS[-1])
_AGREED_ANYWHERE_DAYS: Final = -25567
"""1900-01-01: since then instants agree in every zone."""

_PER_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


class UnmovableError(ValueError):
    """A value has no known place in today's calendar; the message names it and the reason."""


@dataclass(frozen=True, slots=True)
class Calendars:
    """The calendars of one file's columns, and the zone of its instants, None if unknown."""

    kinds: Mapping[Stored, Calendar]
    zone: str | None

    @classmethod
    def of(cls, footer: Mapping[bytes, bytes] | None) -> Self:
        """Return the calendars that a footer's key-value metadata imply."""
        found = footer or {}
        zone = found.get(_ZONE)
        return cls(
            {kind: rule.calendar(found) for kind, rule in RULES.items()},
            None if zone is None else zone.decode(errors="replace"),
        )

    @property
    def are_todays(self) -> bool:
        """Whether no value has to move."""
        return set(self.kinds.values()) == {Calendar.TODAYS}

    def move(self, array: pa.Array, meant: pa.DataType, path: Path) -> pa.Array:
        """Return values in today's calendar, the same array if none has to move; else refuse.

        `meant` is the array's type, except that INT96 is in UTC and that it may have more fields.
        """
        kind = array.type
        if isinstance(kind, pa.StructType):
            found = [array.field(number) for number in range(kind.num_fields)]
            moved = [
                self.move(values, meant.field(child.name).type, (*path, child.name))
                for values, child in zip(found, kind, strict=True)
            ]
            return _with_fields(array, found, moved)
        if isinstance(kind, pa.MapType):
            self._require_agreed(array.keys, meant.key_type, (*path, "key"))
            self._require_agreed(array.items, meant.item_type, (*path, "value"))
        elif pa.types.is_nested(kind):
            self._require_agreed(array.flatten(), meant.value_type, (*path, "element"))
        else:
            stored = _stored(kind, meant)
            if stored is not None:
                moved, known = self._moved(array, stored)
                if not known.all():
                    raise UnmovableError(self._refusal(array, int(np.argmin(known)), stored, path))
                return moved
        return array

    def bounds(self, ends: pa.Array) -> pa.Array:
        """Return bounds from a footer, null where calendars do not agree."""
        kind = ends.type
        if isinstance(kind, pa.StructType):
            found = [ends.field(number) for number in range(kind.num_fields)]
            return _with_fields(ends, found, list(map(self.bounds, found)))
        # A timestamp without zone can be INT96.
        stored = _stored(kind, kind) or (Stored.INT96 if pa.types.is_timestamp(kind) else None)
        if stored is None or self.kinds[stored] is Calendar.TODAYS:
            return ends
        per_day, numbers = _numbers(ends)
        return pc.if_else(
            pc.greater_equal(numbers, self._agreed_since(stored) * per_day), ends, None
        )

    def _require_agreed(self, array: pa.Array, meant: pa.DataType, path: Path) -> None:
        if self.move(array, meant, path) is not array:
            detail = f"column {quote_path(path)} holds dates or timestamps of the Julian calendar"
            raise UnmovableError(f"{detail} in lists or maps; rewrite the file with Spark")

    def _moved(self, array: pa.Array, stored: Stored) -> tuple[pa.Array, NDArray[np.bool_]]:
        all_known = np.ones(len(array), np.bool_)
        calendar = self.kinds[stored]
        if calendar is Calendar.TODAYS:
            return array, all_known
        per_day, numbers = _numbers(array)
        since = self._agreed_since(stored)
        lowest = pc.min(numbers).as_py()
        if lowest is None or lowest >= since * per_day:
            return array, all_known
        values = np.asarray(pc.fill_null(numbers, since * per_day))
        days = values // per_day
        place = np.searchsorted(SWITCH_DAYS, days, side="right") - 1
        known = days >= since
        if since == _AGREED_DAYS and calendar is Calendar.JULIAN:
            known |= place >= 0
        moved = pa.array(values + MOVED_DAYS[place] * per_day, mask=np.asarray(numbers.is_null()))
        if pa.types.is_date32(array.type):
            moved = moved.cast(pa.int32())
        return moved.cast(array.type), known

    def _agreed_since(self, stored: Stored) -> int:
        in_days = stored is Stored.DATE or self.zone in UTC_ZONES
        return _AGREED_DAYS if in_days else _AGREED_ANYWHERE_DAYS

    def _refusal(self, array: pa.Array, place: int, stored: Stored, path: Path) -> str:
        _, numbers = _numbers(array)
        unit = array.type.unit if isinstance(array.type, pa.TimestampType) else None
        unit = unit or ("D" if pa.types.is_date32(array.type) else "ms")
        value = np.int64(numbers[place].as_py()).astype(f"datetime64[{unit}]")
        where = f"column {quote_path(path)} holds the {stored.value} {value}"
        why = self.refusal_of_old(stored) or "before year 1 of the Julian calendar"
        return f"{where}, {why}"

    def refusal_of_old(self, stored: Stored) -> str | None:
        """Return why values before the calendars agree are refused, None if they are not."""
        calendar = self.kinds[stored]
        if calendar is Calendar.UNKNOWN:
            return "of a calendar that the file does not say; rewrite it with Spark"
        if calendar is Calendar.TODAYS or self._agreed_since(stored) == _AGREED_DAYS:
            return None
        zone = "a zone that it does not name" if self.zone is None else f"the zone {self.zone}"
        return f"counted in the Julian calendar of {zone}; rewrite the file with Spark"


def are_old(values: pa.Array) -> NDArray[np.bool_]:
    """Return which dates or timestamps lie before the calendars agree, (n,) bool."""
    per_day, numbers = _numbers(values)
    since = _AGREED_DAYS if pa.types.is_date(values.type) else _AGREED_ANYWHERE_DAYS
    old = pc.fill_null(pc.less(numbers, since * per_day), fill_value=False)
    return np.asarray(old, np.bool_)


def _with_fields(
    array: pa.StructArray, found: Sequence[pa.Array], fields: Sequence[pa.Array]
) -> pa.StructArray:
    if all(new is old for new, old in zip(fields, found, strict=True)):
        return array
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(fields, fields=list(array.type), mask=mask)


def _stored(kind: pa.DataType, meant: pa.DataType) -> Stored | None:
    if pa.types.is_date(kind):
        return Stored.DATE
    if not isinstance(kind, pa.TimestampType) or not isinstance(meant, pa.TimestampType):
        return None
    if kind.tz is None:
        return None if meant.tz is None else Stored.INT96
    return Stored.INT64


def _numbers(array: pa.Array) -> tuple[int, Any]:
    """Return the units per day, and dates or timestamps as int64 in this unit."""
    if pa.types.is_date32(array.type):
        return 1, array.cast(pa.int32()).cast(pa.int64())
    unit = array.type.unit if isinstance(array.type, pa.TimestampType) else "ms"
    return _PER_DAY[unit], array.cast(pa.int64())
