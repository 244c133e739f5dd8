"""Partition values, texts in the log, as values of a column: exactly what readers see, or refused.

A text of which readers of different engines make different values is no value here: files that held
one of them would change what the others read. A TIMESTAMP without a zone, as the protocol first had
them, is one in the zone that whoever reads the table names; delta-rs takes UTC, Spark that of its
session.

Source: PROTOCOL.md, "Partition Value Serialization"; Delta Spark casts the texts as Spark does.
"""

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from typing import Final
from zoneinfo import ZoneInfo

import pyarrow as pa

from liquidlog.spec.arrow import arrow_type
from liquidlog.spec.partitions import PartitionTexts
from liquidlog.spec.schema import DecimalType, PrimitiveType, StructField, quote_path

_INTEGER: Final = re.compile(r"-?[0-9]+")
_DECIMAL: Final = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")
_NUMBER: Final = re.compile(r"-?([0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?|Infinity)|NaN")
_DATE: Final = re.compile(r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LOCAL: Final = re.compile(_DATE.pattern + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?")
_WITH_ZONE: Final = re.compile(_LOCAL.pattern + "(Z|[+-][0-9]{2}:[0-9]{2})")

_FORMS: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), (_INTEGER, "digits")),
    **dict.fromkeys(("float", "double"), (_NUMBER, "a number")),
    "boolean": (re.compile("true|false"), "true or false"),
    "date": (_DATE, "YYYY-MM-DD"),
    "timestamp": (_WITH_ZONE, "YYYY-MM-DDThh:mm:ss.ffffffZ"),
    "timestamp_ntz": (_LOCAL, "YYYY-MM-DD hh:mm:ss.ffffff"),
}
"""What a text must look like, by type; the pattern, and in words."""

_BYTES: Final = frozenset({"string", "binary"})
_EXACT: Final = Context(prec=400)

READ_AS: Final = "UTC"
"""The zone of timestamps that name none, unless whoever reads the table names another."""


def in_zone(
    values: PartitionTexts, fields: Sequence[StructField], time_zone: str
) -> PartitionTexts:
    """Return partition values, by physical names, with timestamps in UTC that had no zone.

    They are moments in `time_zone`, an IANA name; of two moments the first one. Spark reads those
    that a clock skipped as this does.
    """
    zoneless = zoneless_columns([values], fields)
    if not zoneless:
        return values
    zone = ZoneInfo(time_zone)
    return {
        name: _moment(text, zone) if name in zoneless else text for name, text in values.items()
    }


def zoneless_columns(
    documents: Sequence[PartitionTexts], fields: Sequence[StructField]
) -> tuple[str, ...]:
    """Return the physical names of TIMESTAMP columns with values that name no zone."""
    return tuple(
        field.physical_name
        for field in fields
        if field.data_type == PrimitiveType("timestamp")
        and any(_LOCAL.fullmatch(one.get(field.physical_name) or "") for one in documents)
    )


def _moment(text: str | None, zone: ZoneInfo) -> str | None:
    if text is None or _LOCAL.fullmatch(text) is None:
        return text
    seconds, point, fraction = text.partition(".")
    try:
        found = dt.datetime.fromisoformat(seconds).replace(tzinfo=zone).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return text  # which is refused as it is
    return f"{found.replace(tzinfo=None).isoformat()}{point}{fraction}Z"


def typed_value(text: str | None, field: StructField) -> pa.Scalar:
    """Return a partition value in the Arrow type of its column; null for None and ""."""
    kind = arrow_type(field.data_type)
    name = field.data_type.name if isinstance(field.data_type, PrimitiveType) else ""
    if not text:
        return pa.scalar(None, kind)
    try:
        if name in _BYTES:
            return pa.scalar(text.encode(), pa.binary()).cast(kind)
        if isinstance(field.data_type, DecimalType):
            return pa.scalar(_decimal(text, field.data_type), kind)
        return pa.scalar(_in_form(text, name), pa.string()).cast(kind)
    except (ValueError, KeyError, InvalidOperation) as error:
        because = f": {error}" if str(error).startswith("expected") else ""
        raise ValueError(_disagreement(text, field, because)) from error


def _disagreement(text: str, field: StructField, because: str) -> str:
    return (
        f"the value {text!r} of partition column {quote_path((field.name,))} is no"
        f" {field.data_type} on which all readers agree{because}"
    )


def untyped_values(
    documents: Sequence[PartitionTexts], fields: Sequence[StructField]
) -> Iterator[str]:
    """Yield why a text is no value of its column, once for each text.

    `documents` hold the values by physical names. A text of no characters is none: the protocol
    reads null, Delta Spark "".
    """
    for field in fields:
        name = field.data_type.name if isinstance(field.data_type, PrimitiveType) else ""
        if name in _BYTES and any(one[field.physical_name] == "" for one in documents):
            yield _disagreement("", field, ": expected null or a text of at least one character")
        for text in dict.fromkeys(document[field.physical_name] for document in documents):
            try:
                found = typed_value(text, field)
            except ValueError as error:
                yield str(error)
                continue
            if not found.is_valid and not field.nullable:
                yield f"partition column {quote_path((field.name,))} takes no null, and is null"


def _in_form(text: str, name: str) -> str:
    pattern, expected = _FORMS[name]
    if pattern.fullmatch(text) is None:
        raise ValueError(f"expected {expected}")
    return text


def _decimal(text: str, kind: DecimalType) -> Decimal:
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError("expected digits")
    value = Decimal(text)
    exact = value.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    if exact != value or len(exact.as_tuple().digits) > kind.precision:
        raise ValueError(f"expected at most {kind.precision} digits, {kind.scale} after the point")
    return exact
