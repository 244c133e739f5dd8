"""Values as JSON for `--json`, and who decided each setting of a plan."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from liquidlog.clustering.settings import BY_FIELD, DEFAULT_STRATEGY
from liquidlog.plan import OPTION, ClusteringPlan, ClusteringPolicy, RewriteMode, plan_document
from liquidlog.spec.schema import quote_path
from liquidlog.spec.text import json_scalar, render_size, visible_json

if TYPE_CHECKING:
    pass


def render_json(value: Any) -> str:  # noqa: ANN401  anything a command returns
    """Return `value` as one indented JSON document; Arrow tables become lists of rows."""
    plain = jsonable(value)
    try:
        return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
    except UnicodeEncodeError:
        # A file's name can have characters that UTF-8 cannot encode; they become escapes.
        return json.dumps(plain, indent=2)


def render_line(value: Any) -> str:  # noqa: ANN401  anything a command returns
    plain = jsonable(value)
    try:
        line = msgspec.json.encode(plain).decode()
    except UnicodeEncodeError:
        line = json.dumps(plain)
    return visible_json(line) + "\n"


def jsonable(value: Any) -> Any:  # noqa: ANN401  any value
    match value:
        case pa.Table():
            return [jsonable(row) for row in value.to_pylist()]
        case ClusteringPlan():
            return jsonable(printed_plan(value))
        case msgspec.Struct():
            return jsonable(msgspec.to_builtins(value))
        case Mapping():
            return {str(key): jsonable(child) for key, child in value.items()}
        case list() | tuple() | set() | frozenset():
            return [jsonable(child) for child in value]
        case _ if hasattr(value, "document"):
            return jsonable(value.document())
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}
        case _:
            return _scalar(value)


def _scalar(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, float | datetime):
        return json_scalar(value, timespec="microseconds")
    return value if value is None or isinstance(value, str | int) else str(value)


def policy_document(plan: ClusteringPlan) -> Mapping[str, Any]:
    """Return each setting of a plan: its `value`, and `from` where it comes.

    That is "option", "property" with the name of the `property`, or "default".
    """
    values = {
        "strategy": plan.strategy,
        **msgspec.to_builtins(plan.policy),
        "compression": plan.writer_options.compression,
    }
    return {name: {"value": value, **_source(plan, name)} for name, value in values.items()}


def printed_plan(plan: ClusteringPlan) -> Mapping[str, Any]:
    """Return the JSON document of a plan with its `policy_document`."""
    document = dict(plan_document(plan))
    del document["decided_by"]
    return {**document, "policy": policy_document(plan)}


def settings_text(settings: Mapping[str, Mapping[str, Any]]) -> str:
    return ", ".join(
        f"{BY_FIELD[name].name} {_value(name, setting['value'])}"
        f" ({setting.get('property', setting['from'])})"
        for name, setting in settings.items()
        if setting["from"] != "default"
    )


def _source(plan: ClusteringPlan, name: str) -> Mapping[str, str]:
    by = plan.decided_by.get(name)
    if by is None:
        # In plans of earlier releases, and plans made from a policy, only options decide.
        if name == "strategy":
            is_given = plan.mode is RewriteMode.CLUSTERING and plan.strategy != DEFAULT_STRATEGY
        else:
            is_given = getattr(plan.policy, name) != getattr(ClusteringPolicy(), name)
        return {"from": OPTION if is_given else "default"}
    return {"from": OPTION} if by == OPTION else {"from": "property", "property": by}


def _value(name: str, value: Any) -> str:  # noqa: ANN401  any setting's value
    if isinstance(value, int) and not isinstance(value, bool) and name.endswith("_bytes"):
        return render_size(value)
    if isinstance(value, list | tuple):
        return ",".join(one if isinstance(one, str) else quote_path(tuple(one)) for one in value)
    return "wrong" if value is None else str(value)
