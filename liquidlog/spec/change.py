"""A change to a table before it has a version: what it says it did, and its actions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from liquidlog.spec.actions import AnyAction, CopiedAdd


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The actions of one future commit, without commitInfo, and what commitInfo will say.

    `parameters` and `metrics` have the reference engine's spelling: lists are JSON strings,
    metrics are strings. `tags` go to commitInfo.tags.
    """

    operation: str
    parameters: Mapping[str, Any]
    actions: tuple[AnyAction | CopiedAdd, ...]
    metrics: Mapping[str, str] = field(default_factory=dict)
    is_blind_append: bool = False
    isolation_level: str = "Serializable"
    tags: Mapping[str, str] = field(default_factory=dict)
