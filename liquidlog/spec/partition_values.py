"""Partition values, texts in the log, as values of a column: exactly what readers see, or refused.

A text of which readers of different engines, or in different time zones, make different values is
no value here: files that held one of them would change what the others read.

Source: PROTOCOL.md, "Partition Value Serialization"; Delta Spark casts the texts as Spark does.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from typing import Final

import pyarrow as pa

from liquidlog.spec.arrow import arrow_type
from liquidlog.spec.partitions import PartitionTexts
from liquidlog.spec.schema import DecimalType, PrimitiveType, StructField, quote_path

_INTEGER: Final = re.compile(r"-?[0-9]+")
_DECIMAL: Final = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")
_NUMBER: Final = re.compile(r"-?([0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?|Infinity)|NaN")
_DATE: Final = re.compile(r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LOCAL: Final = re.compile(_DATE.pattern + r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?")
_IN_UTC: Final = re.compile(_LOCAL.pattern + "Z")

_FORMS: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), (_INTEGER, "digits")),
    **dict.fromkeys(("float", "double"), (_NUMBER, "a number")),
    "boolean": (re.compile("true|false"), "true or false"),
    "date": (_DATE, "YYYY-MM-DD"),
    "timestamp": (_IN_UTC, "YYYY-MM-DDThh:mm:ss.ffffffZ"),
    "timestamp_ntz": (_LOCAL, "YYYY-MM-DD hh:mm:ss.ffffff"),
}
"""What a text must look like, by type; the pattern, and in words."""

_BYTES: Final = frozenset({"string", "binary"})
_EXACT: Final = Context(prec=400)


def typed_value(text: str | None, field: StructField) -> pa.Scalar:
    """Return a partition value in the Arrow type of its column; null for None.

    So is "", but not of text and bytes: the protocol reads null there too, Delta Spark "".
    """
    kind = arrow_type(field.data_type)
    name = field.data_type.name if isinstance(field.data_type, PrimitiveType) else ""
    if text is None or (not text and name not in _BYTES):
        return pa.scalar(None, kind)
    try:
        if name in _BYTES:
            return pa.scalar(_bytes(text), pa.binary()).cast(kind)
        if isinstance(field.data_type, DecimalType):
            return pa.scalar(_decimal(text, field.data_type), kind)
        return pa.scalar(_in_form(text, name), pa.string()).cast(kind)
    except (ValueError, KeyError, InvalidOperation) as error:
        because = f": {error}" if str(error).startswith("expected") else ""
        raise ValueError(
            f"the value {text!r} of partition column {quote_path((field.name,))} is no"
            f" {field.data_type} on which all readers agree{because}"
        ) from error


def untyped_values(
    documents: Sequence[PartitionTexts], fields: Sequence[StructField]
) -> Iterator[str]:
    """Yield why a text is no value of its column, once for each text.

    `documents` hold the values by physical names.
    """
    for field in fields:
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


def _bytes(text: str) -> bytes:
    if not text:
        raise ValueError("expected null or a text of at least one character")
    return text.encode()


def _decimal(text: str, kind: DecimalType) -> Decimal:
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError("expected digits")
    value = Decimal(text)
    exact = value.quantize(Decimal(1).scaleb(-kind.scale), context=_EXACT)
    if exact != value or len(exact.as_tuple().digits) > kind.precision:
        raise ValueError(f"expected at most {kind.precision} digits, {kind.scale} after the point")
    return exact
