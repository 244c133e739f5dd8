"""What files outlast, against a plain model: random histories of a table's columns and properties.

The model knows columns by their dotted names and compares them one by one; it has a list of its own
of what matters to files.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from liquidlog.clustering.planner import plan as make_plan
from liquidlog.commit import MetadataChanged, ProtocolChanged
from liquidlog.operations.batches import read_set_of
from liquidlog.plan import ClusteringPlan, ClusteringPolicy
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Commit, Format, Metadata, Protocol
from liquidlog.spec.schema import parse_schema
from support.plans import check_conflicts, staleness
from support.snapshots import FileSpec, snapshot_of

MATTERS = {
    "delta.appendOnly": False,
    "delta.checkpointInterval": False,
    "delta.constraints.c": False,
    "delta.dataSkippingNumIndexedCols": True,
    "delta.enableDeletionVectors": False,
    "delta.enableRowTracking": True,
    "delta.parquet.compression.codec": True,
    "delta.unheardOf": True,
    "liquidlog.curve": False,
    "parquet.page.size": True,
    "team": False,
}
HARMLESS_FEATURES = {"checkConstraints", "deletionVectors", "changeDataFeed"}
HARMFUL_FEATURES = {"rowTracking", "icebergCompatV1", "unheardOf"}
BASE_FEATURES = ("appendOnly", "clustering", "domainMetadata", "invariants")
NAMES = ("x", "y", "st.a", "st.b")
NEW_NAMES = ("n", "m", "st.n")
HARMLESS_METADATA = {"comment", "CURRENT_DEFAULT"}


@dataclass(frozen=True)
class Column:
    kind: str = "long"
    nullable: bool = True
    number: int = 0
    says: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class State:
    """A table as the model sees it."""

    columns: dict[str, Column]
    highest: int
    properties: dict[str, str] = field(default_factory=dict)
    features: tuple[str, ...] = BASE_FEATURES
    description: str = ""


def base(*, mapped: bool) -> State:
    columns = {name: Column(number=n + 1) for n, name in enumerate(NAMES)}
    columns["y"] = replace(columns["y"], nullable=False)
    return State(columns, 10 if mapped else -1)


# A winner is a list of edits; each is a word and what it needs.
ANY_NAME = st.sampled_from((*NAMES, *NEW_NAMES))
EDITS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(NEW_NAMES), st.booleans(), st.booleans()),
    st.tuples(st.just("add"), st.sampled_from(NEW_NAMES), *[st.just(value=True)] * 2),
    st.tuples(
        st.just("add"), st.sampled_from(NEW_NAMES), st.just(value=True), st.just(value=False)
    ),
    st.tuples(st.just("drop"), ANY_NAME),
    st.tuples(st.just("say"), ANY_NAME, st.sampled_from(("comment", "CURRENT_DEFAULT", "k"))),
    st.tuples(st.just("comment"), ANY_NAME),
    st.tuples(st.just("nullable"), ANY_NAME, st.booleans()),
    st.tuples(st.just("kind"), ANY_NAME, st.sampled_from(("long", "double"))),
    st.tuples(st.just("move"), ANY_NAME),
    st.tuples(st.just("set"), st.sampled_from(sorted(MATTERS)), st.sampled_from("ab")),
    st.tuples(st.just("unset"), st.sampled_from(sorted(MATTERS))),
    st.tuples(st.just("feature"), st.sampled_from(sorted(HARMLESS_FEATURES | HARMFUL_FEATURES))),
    st.tuples(st.just("no feature"), st.sampled_from((*BASE_FEATURES, *sorted(HARMFUL_FEATURES)))),
    st.tuples(st.just("describe"), st.sampled_from("ab")),
)
HISTORIES = st.lists(st.lists(EDITS, min_size=1, max_size=2), min_size=1, max_size=4)


def edited(state: State, edit: tuple[Any, ...]) -> State:
    word: str = edit[0]
    columns = dict(state.columns)
    match edit:
        case ("add", name, nullable, fresh) if name not in columns:
            number = state.highest + 1 if fresh else 2
            columns[name] = Column(nullable=nullable, number=number)
            highest = max(state.highest, number) if state.highest >= 0 else -1
            return replace(state, columns=columns, highest=highest)
        case ("set", name, value):
            return replace(state, properties={**state.properties, name: value})
        case ("unset", name):
            left = {k: v for k, v in state.properties.items() if k != name}
            return replace(state, properties=left)
        case ("feature", name) if name not in state.features:
            return replace(state, features=(*state.features, name))
        case ("no feature", name):
            return replace(state, features=tuple(f for f in state.features if f != name))
        case ("describe", text):
            return replace(state, description=text)
        case _:
            return edited_column(state, word, edit)


def edited_column(state: State, word: str, edit: tuple[Any, ...]) -> State:
    columns = dict(state.columns)
    if len(edit) < 2 or edit[1] not in columns:
        return state
    name = edit[1]
    old = columns.pop(name)
    if word == "drop":
        # A struct keeps a field, so that there is always one to read.
        inside = [other for other in columns if other.startswith("st.")]
        return replace(state, columns=columns) if inside else state
    if word == "move":
        return replace(state, columns={**columns, name: old})
    changes: dict[str, Callable[[], dict[str, Any]]] = {
        "say": lambda: {"says": (*old.says, (edit[2], "1"))},
        "comment": lambda: {"says": (("comment", "!"), *old.says)},
        "nullable": lambda: {"nullable": edit[2]},
        "kind": lambda: {"kind": edit[2]},
        "add": dict,
    }
    new = replace(old, **changes[word]())
    return replace(state, columns={k: new if k == name else v for k, v in state.columns.items()})


def actions(state: State) -> tuple[Metadata, Protocol]:
    """Return the table as the log has it."""
    mapped = state.highest >= 0
    fields: list[dict[str, Any]] = []
    for name, column in state.columns.items():
        within = fields
        if name.startswith("st."):
            found = [one for one in fields if one["name"] == "st"]
            if not found:
                kind = {"type": "struct", "fields": []}
                found = [field_of("st", Column(number=9), mapped=mapped, kind=kind)]
                fields.extend(found)
            within = found[0]["type"]["fields"]
        within.append(field_of(name.removeprefix("st."), column, mapped=mapped, kind=column.kind))
    mapping = {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": str(state.highest),
    }
    metadata = Metadata(
        id="table-id",
        description=state.description,
        format=Format(provider="parquet", options={}),
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        partition_columns=(),
        configuration={**state.properties, **(mapping if mapped else {})},
    )
    readers = ("columnMapping",) if mapped else ()
    protocol = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=readers,
        writer_features=(*readers, *state.features),
    )
    return metadata, protocol


def field_of(name: str, column: Column, *, mapped: bool, kind: Any) -> dict[str, Any]:
    says: dict[str, Any] = dict(column.says)
    if mapped:
        says["delta.columnMapping.id"] = column.number
        says["delta.columnMapping.physicalName"] = f"c{column.number}"
    return {"name": name, "type": kind, "nullable": column.nullable, "metadata": says}


def snapshot(state: State) -> Snapshot:
    metadata, protocol = actions(state)
    return replace(
        snapshot_of(
            [FileSpec(path="a"), FileSpec(path="b")],
            cluster_by=[["c1" if state.highest >= 0 else "x"]],
        ),
        metadata=metadata,
        protocol=protocol,
        schema=parse_schema(metadata.schema_string, where="test"),
    )


def outlasts_columns(before: State, now: State) -> bool:
    if any(is_strange(column) for column in now.columns.values()):
        return False
    for name, old in before.columns.items():
        new = now.columns.get(name)
        if new is None or new.kind != old.kind or (old.nullable and not new.nullable):
            return False
    for name in now.columns.keys() - before.columns.keys():
        new = now.columns[name]
        if not new.nullable or 0 <= before.highest >= new.number:
            return False
    return keeps_order(before, now)


def is_strange(column: Column) -> bool:
    return any(key not in HARMLESS_METADATA for key, _ in column.says)


def keeps_order(before: State, now: State) -> bool:
    for prefix in ("", "st."):
        kept = [
            [name for name in order(state, prefix) if name in order(other, prefix)]
            for state, other in ((before, now), (now, before))
        ]
        if kept[0] != kept[1]:
            return False
    return True


def order(state: State, prefix: str) -> list[str]:
    """Return the names of the columns in a struct, the table's own if there is no prefix."""
    if prefix:
        return [name for name in state.columns if name.startswith(prefix)]
    return list(dict.fromkeys(name.split(".")[0] for name in state.columns))


def outlasts_properties(before: State, now: State) -> bool:
    return all(
        before.properties.get(name) == now.properties.get(name)
        for name, matters in MATTERS.items()
        if matters
    )


def outlasts_protocol(before: State, now: State) -> bool:
    gone = set(before.features) - set(now.features)
    return not gone and not set(now.features) - set(before.features) - HARMLESS_FEATURES


def planned(state: State) -> ClusteringPlan:
    numbers = count()
    plan = make_plan(snapshot(state), ClusteringPolicy(), new_id=lambda: f"id-{next(numbers)}")
    assert len(plan.groups) == 1
    return plan


PLANS = {mapped: planned(base(mapped=mapped)) for mapped in (False, True)}


@given(history=HISTORIES, mapped=st.booleans())
def test_a_winner_conflicts_exactly_where_the_model_says_so(
    history: list[list[tuple[Any, ...]]],
    mapped: bool,  # noqa: FBT001
) -> None:
    before, plan = base(mapped=mapped), PLANS[mapped]
    (group,) = plan.groups
    now, winners = before, []
    expected: set[tuple[type, int]] = set()
    for version, edits in enumerate(history, start=plan.read_version + 1):
        for edit in edits:
            now = edited(now, edit)
        winners.append(Commit(version, actions(now)))
        if not (outlasts_columns(before, now) and outlasts_properties(before, now)):
            expected.add((MetadataChanged, version))
        if not outlasts_protocol(before, now):
            expected.add((ProtocolChanged, version))
    found = check_conflicts(read_set_of(plan, group), winners)
    assert {(type(conflict), conflict.version) for conflict in found} == expected
    last = plan.read_version + len(history)
    stale = staleness(snapshot(now), plan, group).reasons
    of_table = [reason for reason in stale if "row tracking" not in reason]
    if any(version == last for _, version in expected):
        assert of_table
    else:
        assert not stale
