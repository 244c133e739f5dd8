"""Events of Spark's event log that tell of queries, decoded; all others are skipped undecoded."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

BEGINNING: Final = b'{"Event":"'
"""What every line of an event log begins with."""
_SQL: Final = b'{"Event":"org.apache.spark.sql.'
_ENVIRONMENT: Final = b'{"Event":"SparkListenerEnvironmentUpdate"'

FILES_READ: Final = "number of files read"
BYTES_READ: Final = "size of files read"
FILES_AFTER_SKIPPING: Final = "number of files after skipping"
BYTES_AFTER_SKIPPING: Final = "number of bytes after skipping"
COUNTED: Final = frozenset({FILES_READ, BYTES_READ, FILES_AFTER_SKIPPING, BYTES_AFTER_SKIPPING})


class Metric(msgspec.Struct, rename="camel"):
    """A counter of a node, and the accumulator that holds it."""

    name: str
    accumulator_id: int


class PlanNode(msgspec.Struct, rename="camel"):
    """A node of a plan."""

    node_name: str
    simple_string: str = ""
    children: list["PlanNode"] = []
    metadata: dict[str, str] = {}
    metrics: list[Metric] = []


class Event(msgspec.Struct, rename="camel"):
    """The fields of the events that tell of a query; `event` is the name of its class."""

    event: str = msgspec.field(name="Event")
    execution_id: int | None = None
    root_execution_id: int | None = None
    time: int | None = None
    spark_plan_info: PlanNode | None = None
    physical_plan_description: msgspec.Raw = msgspec.Raw(b'""')
    modified_configs: dict[str, str] = {}
    accum_updates: list[list[int]] = []
    sql_plan_metrics: list[Metric] = []

    @property
    def name(self) -> str:
        """The class without its package."""
        return self.event.rpartition(".")[2]

    def description(self) -> str:
        """Return the plan as printed."""
        return str(msgspec.json.decode(self.physical_plan_description))


class _Environment(msgspec.Struct):
    spark: Any = msgspec.field(name="Spark Properties", default=None)
    system: Any = msgspec.field(name="System Properties", default=None)


_EVENT: Final = msgspec.json.Decoder(Event)
_SETTINGS: Final = msgspec.json.Decoder(_Environment)
SESSION_ZONE: Final = "spark.sql.session.timeZone"


def is_of_sql(line: bytes) -> bool:
    """Return whether a line is an event of a query."""
    return line.startswith(_SQL)


def is_environment(line: bytes) -> bool:
    """Return whether a line has the settings of the application."""
    return line.startswith(_ENVIRONMENT)


def decode_event(line: bytes) -> Event | None:
    """Return the event in a line, None if it is not one that is understood."""
    try:
        return _EVENT.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def zone_of(line: bytes) -> str:
    """Return the sessions' time zone that an environment names, empty if it names none."""
    try:
        found = _SETTINGS.decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return ""
    for properties, name in ((found.spark, SESSION_ZONE), (found.system, "user.timezone")):
        pairs = properties.items() if isinstance(properties, dict) else properties
        for pair in pairs if isinstance(pairs, list) or isinstance(properties, dict) else ():
            if len(pair) == 2 and pair[0] == name and isinstance(pair[1], str):  # noqa: PLR2004
                return pair[1]
    return ""


def nodes(plan: PlanNode) -> Iterator[tuple[PlanNode, PlanNode | None]]:
    """Yield the nodes of a plan, each with the filter directly above it, if there is one."""
    pending: list[tuple[PlanNode, PlanNode | None]] = [(plan, None)]
    while pending:
        node, above = pending.pop()
        yield node, above
        passing = node if node.node_name == "Filter" else above if _passes(node) else None
        pending.extend((child, passing) for child in node.children)


def _passes(node: PlanNode) -> bool:
    """Return whether a node hands on its rows as they are."""
    return node.node_name in {"ColumnarToRow", "InputAdapter"} or node.node_name.startswith(
        "WholeStageCodegen"
    )
