"""Values as JSON, for the output of `--json`."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from liquidlog.errors import Conflict, LiquidlogError
from liquidlog.plan import ClusteringPlan
from liquidlog.report.policies import printed_plan
from liquidlog.spec.text import json_scalar, visible_json


def render_json(value: Any) -> str:  # noqa: ANN401  anything a command returns
    """Return `value` as one indented JSON document.

    Arrow tables become lists of rows, dates and timestamps ISO 8601 strings, decimals strings, and
    NaN and the infinities the strings "NaN", "Infinity" and "-Infinity".
    """
    plain = jsonable(value)
    try:
        return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
    except UnicodeEncodeError:
        # A file's name can hold characters that UTF-8 cannot encode; they become JSON escapes.
        return json.dumps(plain, indent=2)


def render_line(value: Any) -> str:  # noqa: ANN401  anything a command returns
    """Return `value` as one line of JSON with a line end, in the spelling of `render_json`."""
    plain = jsonable(value)
    try:
        line = msgspec.json.encode(plain).decode()
    except UnicodeEncodeError:
        line = json.dumps(plain)
    return visible_json(line) + "\n"


def render_error(error: LiquidlogError) -> str:
    """Return the document of an error, which `--json` prints on stderr."""
    return render_json({"error": error.document()})


def jsonable(value: Any) -> Any:  # noqa: ANN401  any value
    """Return `value` as plain JSON values."""
    match value:
        case pa.Table():
            return [jsonable(row) for row in value.to_pylist()]
        case ClusteringPlan():
            return jsonable(printed_plan(value))
        case msgspec.Struct():
            return jsonable(msgspec.to_builtins(value))
        case Conflict():
            return jsonable(value.document())
        case Mapping():
            return {str(key): jsonable(child) for key, child in value.items()}
        case list() | tuple() | set() | frozenset():
            return [jsonable(child) for child in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}
        case _:
            return _scalar(value)


def _scalar(value: Any) -> Any:  # noqa: ANN401
    match value:
        case float() | datetime():
            return json_scalar(value, timespec="microseconds")
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case None | str() | int() | float() | bool():
            return value
        case _:
            return str(value)
