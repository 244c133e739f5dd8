"""Settings with who decided them: an option, a property of the table, or nobody."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from liquidlog.clustering.settings import BY_FIELD, DEFAULT_STRATEGY
from liquidlog.plan import OPTION, ClusteringPlan, ClusteringPolicy, RewriteMode, plan_document
from liquidlog.report.layout import Report, pairs
from liquidlog.spec.schema import quote_path
from liquidlog.spec.text import render_size

_DEFAULTS: Final = ClusteringPolicy()
_STRATEGY: Final = "strategy"


def policy_document(plan: ClusteringPlan) -> Mapping[str, Any]:
    """Return each setting of a plan as `value` and `from`: option, property or default.

    A setting from a property also has the property's name as `property`. The value of `compression`
    is the codec that files are written with.
    """
    values = {
        _STRATEGY: plan.strategy,
        **msgspec.to_builtins(plan.policy),
        "compression": plan.writer_options.compression,
    }
    return {name: {"value": value, **_source(plan, name)} for name, value in values.items()}


def printed_plan(plan: ClusteringPlan) -> Mapping[str, Any]:
    """Return the document of a plan as `--json` prints it: its settings say who decided them."""
    document = dict(plan_document(plan))
    del document["decided_by"]
    return {**document, "policy": policy_document(plan)}


def settings_text(settings: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the settings that do not have their default as one line, empty if there are none."""
    return ", ".join(
        f"{BY_FIELD[name].name} {_value(name, setting['value'])}"
        f" ({setting.get('property', setting['from'])})"
        for name, setting in settings.items()
        if setting["from"] != "default"
    )


def detail(row: Mapping[str, Any]) -> Report:
    """Show the row of DESCRIBE DETAIL; of the layout, what a property decided."""
    return pairs({**row, "layout": settings_text(row["layout"]) or "all by default"})


def _source(plan: ClusteringPlan, name: str) -> Mapping[str, str]:
    by = plan.decided_by.get(name)
    if by is None:
        # In a plan of an earlier release, and one made from a policy, only an option can decide.
        if name == _STRATEGY:
            is_given = plan.mode is RewriteMode.CLUSTERING and plan.strategy != DEFAULT_STRATEGY
        else:
            is_given = getattr(plan.policy, name) != getattr(_DEFAULTS, name)
        return {"from": OPTION if is_given else "default"}
    return {"from": OPTION} if by == OPTION else {"from": "property", "property": by}


def _value(name: str, value: Any) -> str:  # noqa: ANN401  any setting's value
    if isinstance(value, int) and not isinstance(value, bool) and name.endswith("_bytes"):
        return render_size(value)
    if isinstance(value, list | tuple):
        return ",".join(one if isinstance(one, str) else quote_path(tuple(one)) for one in value)
    return "wrong" if value is None else str(value)
