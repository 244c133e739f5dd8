"""Kinds of plans against kinds of changes: the check of winners and that of staleness agree."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
from msgspec import UNSET, structs

from liquidlog.clustering.planner import written_for
from liquidlog.commit import MetadataChanged, ProtocolChanged, Winners
from liquidlog.operations.batches import read_set_of
from liquidlog.plan import ClusteringPlan, ClusteringPolicy
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Commit, Protocol
from liquidlog.spec.features import (
    BOUND_PROPERTIES,
    FREE_FEATURES,
    FREE_PROPERTIES,
    new_table_protocol,
)
from liquidlog.spec.schema import parse_schema
from support.plans import check_conflicts, staleness
from support.snapshots import FileSpec, planned, snapshot_of

Field = dict[str, Any]
MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}


def field(name: str, kind: Any = "long", **metadata: Any) -> Field:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def struct(*fields: Field) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def mapped(fields: list[Field], ids: Any) -> list[Field]:
    """Return fields with column ids and physical names, those inside structs included."""
    found = []
    for one in fields:
        number, kind = next(ids), one["type"]
        if isinstance(kind, dict) and kind["type"] == "struct":
            kind = struct(*mapped(kind["fields"], ids))
        says = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"}
        found.append({**one, "type": kind, "metadata": {**one["metadata"], **says}})
    return found


FIELDS = [
    field("x"),
    field("y", "string"),
    field("st", struct(field("a"), field("b"))),
    field("list", {"type": "array", "elementType": struct(field("k")), "containsNull": True}),
]


def snapshot(*, mapping: bool = False, clustered: bool = True) -> Snapshot:
    fields = mapped(FIELDS[:3], count(1)) if mapping else FIELDS
    features = ("columnMapping",) if mapping else ()
    return snapshot_of(
        [FileSpec(path=path, rows=2) for path in "ab"],
        cluster_by=[["c1" if mapping else "x"]] if clustered else [],
        schema=parse_schema(json.dumps(struct(*fields)), where="test"),
        configuration={**(MAPPED if mapping else {}), "delta.appendOnly": "false", "owner": "me"},
        protocol=new_table_protocol(features, clustered=True),
    )


PLANS: dict[str, tuple[dict[str, bool], dict[str, Any]]] = {
    "clustering": ({}, {}),
    "mapped": ({"mapping": True}, {}),
    "zorder": ({"clustered": False}, {"zorder_by": (("x",),)}),
}
"""Kinds of plans: what their tables have, and their policies."""


def made(kind: str) -> tuple[Snapshot, ClusteringPlan]:
    has, policy = PLANS[kind]
    table = snapshot(**has)
    return table, planned(table, ClusteringPolicy(**policy))


@dataclass
class Winner:
    """The metadata and protocol after a change, as one edits them."""

    fields: list[Field]
    properties: dict[str, str]
    metadata: dict[str, Any]
    protocol: Protocol

    @property
    def is_mapped(self) -> bool:
        return "delta.columnMapping.mode" in self.properties

    def add(self, *new: Field, into: list[Field] | None = None, at: int | None = None) -> None:
        fresh = list(new)
        if self.is_mapped:
            ids = count(int(self.properties["delta.columnMapping.maxColumnId"]) + 1)
            fresh = mapped(fresh, ids)
            self.properties["delta.columnMapping.maxColumnId"] = str(next(ids) - 1)
        fields = self.fields if into is None else into
        place = len(fields) if at is None else at
        fields[place:place] = fresh

    def named(self, name: str) -> Field:
        return next(one for one in self.fields if one["name"] == name)

    def inside(self, name: str) -> list[Field]:
        fields: list[Field] = self.named(name)["type"]["fields"]
        return fields


def after(table: Snapshot, act: Callable[[Winner], Any]) -> Snapshot:
    document = json.loads(table.metadata.schema_string)
    winner = Winner(document["fields"], dict(table.metadata.configuration), {}, table.protocol)
    act(winner)
    text = json.dumps(struct(*winner.fields))
    metadata = structs.replace(
        table.metadata, schema_string=text, configuration=winner.properties, **winner.metadata
    )
    return replace(
        table,
        version=table.version + 1,
        metadata=metadata,
        schema=parse_schema(text, where="test"),
        protocol=winner.protocol,
    )


def setting(name: str, value: str) -> Callable[[Winner], Any]:
    return lambda winner: winner.properties.update({name: value})


def adding(feature: str) -> Callable[[Winner], Any]:
    def act(winner: Winner) -> None:
        listed = winner.protocol.writer_features or ()
        winner.protocol = structs.replace(winner.protocol, writer_features=(*listed, feature))

    return act


def adding_one(**metadata: Any) -> Callable[[Winner], Any]:
    return lambda winner: winner.add(field("new", **metadata))


def saying(name: str, key: str) -> Callable[[Winner], Any]:
    return lambda winner: winner.named(name)["metadata"].update({key: "5"})


NOT_NULL = {"nullable": False}
KEYS = (
    *("delta.columnMapping.id", "delta.columnMapping.physicalName", "delta.typeChanges"),
    *("__CHAR_VARCHAR_TYPE_STRING", "delta.generationExpression", "z"),
)

OUTLASTED: dict[str, Callable[[Winner], Any]] = {
    "nothing": lambda _: None,
    "new column": adding_one(),
    "new column in a struct": lambda w: w.add(field("new"), into=w.inside("st"), at=1),
    "new column with a default": adding_one(CURRENT_DEFAULT="7"),
    "comment": saying("y", "comment"),
    "default": saying("y", "CURRENT_DEFAULT"),
    "constraint": lambda w: w.properties.update({"delta.constraints.c": "x > 0"}),
    **{f"property {name}": setting(name, "99") for name in FREE_PROPERTIES},
    **{
        f"feature {name}": adding(name)
        for name in FREE_FEATURES
        if name not in {"appendOnly", "domainMetadata", "invariants"}
    },
}
"""Changes that any plan outlasts."""

CONFLICTING: dict[str, tuple[Callable[[Winner], Any], str]] = {
    "dropped inside": (lambda w: w.inside("st").pop(), "st.b was dropped or renamed"),
    "renamed": (lambda w: w.named("y").update(name="z"), "y was dropped or renamed"),
    "other case": (lambda w: w.named("y").update(name="Y"), "y was dropped or renamed"),
    "reordered inside": (lambda w: w.inside("st").reverse(), "columns in st changed their order"),
    **{f"other {key}": (saying("y", key), f"y has other metadata ({key})") for key in KEYS},
    "NOT NULL": (lambda w: w.named("y").update(NOT_NULL), "y became NOT NULL"),
    "NOT NULL inside": (lambda w: w.inside("st")[0].update(NOT_NULL), "st.a became NOT NULL"),
    "new NOT NULL": (lambda w: w.add({**field("new"), **NOT_NULL}), "new is NOT NULL"),
    "new struct with NOT NULL": (
        lambda w: w.add(field("new", struct({**field("k"), **NOT_NULL}))),
        "new.k is NOT NULL",
    ),
    **{
        f"new with {key}": (adding_one(**{key: "7"}), f"new has metadata ({key})")
        for key in ("delta.generationExpression", "delta.identity.start", "EXISTS_DEFAULT")
    },
    "new void": (lambda w: w.add(field("new", "void")), "new is void"),
    "two of a name": (lambda w: w.add(field("new"), field("new")), "several columns have one name"),
    "partitioned": (lambda w: w.metadata.update(partition_columns=("y",)), "became partitioned"),
    "another table": (lambda w: w.metadata.update(id="other"), "the table's id is other"),
    "unknown property": (lambda w: w.properties.update({"delta.future": "1"}), "is not known"),
    "oddly spelled": (lambda w: w.properties.update({"DELTA.appendonly": "1"}), "is not known"),
    **{
        f"property {name}": (setting(name, "another"), f"the property {name} ")
        for name in BOUND_PROPERTIES
    },
    "feature": (adding("checkpointProtection"), "the table feature checkpointProtection was added"),
    "old protocol": (
        lambda w: setattr(w, "protocol", Protocol(min_reader_version=1, min_writer_version=2)),
        "writer version fell from 7 to 2",
    ),
}
"""Changes that no plan outlasts, and what is said of them."""


def judged(plan: ClusteringPlan, now: Snapshot) -> tuple[list[str], list[str]]:
    """Return what is held against a winner with this metadata and protocol, and against a plan."""
    (group,) = plan.groups
    winner = Commit(now.version, (now.metadata, now.protocol))
    found = check_conflicts(read_set_of(plan, group), [winner])
    assert all(isinstance(one, MetadataChanged | ProtocolChanged) and one.changes for one in found)
    changes = [text for one in found for text in getattr(one, "changes", ())]
    return changes, list(staleness(now, plan, group).reasons)


@pytest.mark.parametrize("kind", PLANS)
def test_a_plan_outlasts_changes_that_leave_its_files_valid(kind: str) -> None:
    table, plan = made(kind)
    judgements = {name: judged(plan, after(table, act)) for name, act in OUTLASTED.items()}
    assert {name: found for name, found in judgements.items() if found != ([], [])} == {}


@pytest.mark.parametrize("kind", PLANS)
def test_every_other_change_is_a_conflict_and_makes_the_plan_stale(kind: str) -> None:
    table, plan = made(kind)
    wrong = []
    for change, (act, words) in CONFLICTING.items():
        try:
            now = after(table, act)
        except KeyError:  # the table has no such column
            continue
        changes, reasons = judged(plan, now)
        if not any(words in text for text in changes) or not set(changes) <= set(reasons):
            wrong.append((change, changes, reasons))
    assert wrong == []


def test_a_plan_without_terms_outlasts_nothing() -> None:
    table, plan = made("clustering")
    old = structs.replace(plan, terms=UNSET)
    assert written_for(old) is None
    (group,) = old.groups
    for change, act in OUTLASTED.items():
        now = after(table, act)
        found = check_conflicts(read_set_of(old, group), [Commit(now.version, (now.metadata,))])
        expected = [f"version {now.version} changed the table's metadata"]
        assert [str(one) for one in found] == expected, change


def test_winners_that_were_judged_for_other_files_are_all_conflicts() -> None:
    table, plan = made("clustering")
    _, other = made("mapped")
    (group,) = plan.groups
    now = after(table, OUTLASTED["comment"])
    for terms in (None, written_for(other)):
        known = Winners(plan.read_version, terms)
        known.take([Commit(now.version, (now.metadata, now.protocol))])
        kinds = {type(conflict) for conflict in known.conflicts(read_set_of(plan, group))}
        assert kinds == {MetadataChanged, ProtocolChanged}


def test_a_schema_that_cannot_be_read_is_a_conflict() -> None:
    table, plan = made("clustering")
    (group,) = plan.groups
    winner = structs.replace(table.metadata, schema_string="{")
    (found,) = check_conflicts(read_set_of(plan, group), [Commit(table.version + 1, (winner,))])
    assert "is not a schema" in str(found)


def test_ids_without_column_mapping_and_columns_without_ids_are_in_doubt() -> None:
    table, plan = made("clustering")
    says = {"delta.columnMapping.id": 4}
    (text,), _ = judged(plan, after(table, lambda w: w.add(field("new", **says))))
    assert text == "the new column new is mapped"
    table, plan = made("mapped")
    (text,), _ = judged(plan, after(table, lambda w: w.fields.append(field("new"))))
    assert "no fresh column id" in text
