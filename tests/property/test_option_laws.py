"""An option that is given changes a plan, or is refused: for every option, table and strategy."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.clustering.columns import PROVIDER
from liquidlog.clustering.planner import STRATEGIES
from liquidlog.clustering.planner import plan as make_plan
from liquidlog.clustering.settings import (
    BY_FIELD,
    BY_PROPERTY,
    PLAN_SETTINGS,
    STRATEGY,
    TAKES,
    TIME_ZONE,
    WEIGHTS,
    Settled,
    policy_settings,
    settle,
    wrong_values,
)
from liquidlog.commit import MetadataChanged, ProtocolChanged
from liquidlog.errors import UsageError
from liquidlog.operations.batches import read_set_of
from liquidlog.plan import OPTION, ClusteringPlan, ClusteringPolicy
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Commit, Format, Metadata, Protocol
from liquidlog.spec.schema import parse_schema
from liquidlog.table import Table
from support.plans import check_conflicts, staleness
from support.snapshots import FileSpec, planned, snapshot_of

MIB: Final = 1 << 20
TABLES: Final = 60

SITUATIONS: Final[Mapping[str, tuple[int, Mapping[str, Any]]]] = {
    # Name: how many clustering columns, and the options that make the situation.
    "cube": (2, {}),
    "cube, one column": (1, {}),
    "overlap": (2, {STRATEGY: "overlap", "tolerance": 1.0}),
    "overlap, one column": (1, {STRATEGY: "overlap"}),
    "compaction": (0, {}),
    "zorder": (0, {"zorder_by": (("x",), ("s",))}),
    "zorder, one column": (0, {"zorder_by": (("x",),)}),
}

VALUES: Final[Mapping[str, tuple[Any, ...]]] = {
    STRATEGY: ("cube", "overlap"),
    "full": (True,),
    "skip_clustered": (True,),
    "curve": ("hilbert", "kd", "zorder", "linear"),
    "min_cube_bytes": (100 << 30, 400 * MIB, 1),
    "target_cube_bytes": (150 << 30, 700 * MIB),
    "max_file_bytes": (1 << 30, 20 * MIB),
    "zorder_by": ((("x",),), (("s",),), (("x",), ("s",))),
    "tolerance": (1.27, 1.0, 3.0),
    "min_overlapping_files": (4, 1, 20),
    "min_overlap": (0.75, 0.1, 1.0),
    "budget_bytes": (90 * MIB, 400 * MIB),
    "where": ("x > 3", "s = 'a'"),
    "compression": ("snappy", "gzip"),
    "bloom_filter": ((("x",),), (("s",), ("x",))),
    "row_group_rows": (1_000_000, 5_000),
    "prefix": ((("x",),),),
}
"""Values that callers may name for each option, its default among them where it has one."""

BASE: Final[Mapping[str, Any]] = {"min_cube_bytes": 600 * MIB, "max_file_bytes": 100 * MIB}


def tables(columns: int) -> Iterator[Snapshot]:
    for seed in range(TABLES):
        chance = np.random.default_rng(seed)
        own = ("x", "s")[:columns]
        files = [_file(chance, number, own) for number in range(chance.integers(2, 24))]
        yield snapshot_of(files, cluster_by=[[name] for name in own] or None)


def _file(chance: np.random.Generator, number: int, own: tuple[str, ...]) -> FileSpec:
    cube = _one_of(chance, None, "a", "b", "c")
    low = int(chance.integers(-20, 20))
    return FileSpec(
        path=f"f{number:02d}",
        size=int(chance.integers(1, 150)) * MIB,
        deleted=_one_of(chance, 0, 0, 1, 4),
        cube=cube,
        zorder_by=_one_of(chance, own, own, own, ("s",)) if cube and own else None,
        provider=_one_of(chance, PROVIDER, PROVIDER, "other") if cube else None,
        bounds={
            "x": (low, low + int(chance.integers(5))),
            "s": (_one_of(chance, *"abc"), _one_of(chance, *"cd")),
        },
    )


def _one_of(chance: np.random.Generator, *items: Any) -> Any:
    return items[chance.integers(len(items))]


def _planned(snapshot: Snapshot, options: Mapping[str, Any]) -> ClusteringPlan:
    fields = {name: value for name, value in options.items() if name != STRATEGY}
    return planned(
        snapshot,
        ClusteringPolicy(**fields),
        strategy=options.get(STRATEGY, "cube"),
        named=tuple(BY_FIELD[field].name for field in options),
    )


def _content(made: ClusteringPlan) -> object:
    """Return what a plan makes an executor do, and what it says of the other files."""
    return (
        [(group.expected_outputs, [file.path for file in group.inputs]) for group in made.groups],
        [(file.path, file.reason) for file in made.skipped],
        made.curve,
        made.mode,
        made.columns,
        made.strategy,
        made.writer_options,
        made.prefix,
    )


@pytest.mark.parametrize("situation", SITUATIONS)
def test_an_option_changes_some_plan_or_is_refused(situation: str) -> None:
    wrong = {option: fault for option in VALUES if (fault := _fault(situation, option))}
    assert wrong == {}


def _fault(situation: str, option: str) -> str | None:
    columns, own = SITUATIONS[situation]
    base = {name: size for name, size in BASE.items() if columns or name == "max_file_bytes"}
    without = {name: value for name, value in {**base, **own}.items() if name != option}
    if option == STRATEGY:
        without.pop("tolerance", None)
    outcomes = [_outcomes(snapshot, option, without) for snapshot in islice(tables(columns), 2)]
    if all(outcome is None for found in outcomes for outcome in found):
        return None  # refused, whatever the value and the table
    for snapshot in tables(columns):
        found = _outcomes(snapshot, option, without)
        if None in found:
            return "some values are refused, others not"
        if any(outcome != found[-1] for outcome in found):
            return None
    return "the option is taken and changes nothing"


def _outcomes(snapshot: Snapshot, option: str, without: Mapping[str, Any]) -> list[object]:
    """Return the plans of an option's values and the one without it; None where one is refused."""
    found: list[object] = []
    for value in VALUES[option]:
        try:
            found.append(_content(_planned(snapshot, {**without, option: value})))
        except UsageError:
            found.append(None)
    return found if None in found else [*found, _content(_planned(snapshot, without))]


def test_every_option_has_values() -> None:
    assert {BY_FIELD[field].name for field in VALUES} == PLAN_SETTINGS - {TIME_ZONE}


@pytest.mark.parametrize(
    "options",
    [
        {"min_cube_size": "2GiB", "target_cube_size": "1GiB"},
        {"target_cube_size": "99GiB"},
        {"strategy": "overlap", "min_overlap": 0.0, "min_overlapping_files": 4},
        {"strategy": "overlap", "min_overlap": 0.5, "min_overlapping_files": 0},
    ],
)
def test_options_that_others_undo_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", schema=pa.schema([("x", pa.int64())]), cluster_by="x")
    with pytest.raises(UsageError):
        table.plan(**options)


def test_an_argument_that_is_none_is_not_given() -> None:
    assert policy_settings(dict.fromkeys(BY_FIELD[field].name for field in VALUES)) == {}


# A property stands for its option: for any properties, options and tables, plans are the same.


TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "liquidlog.strategy": ("cube", "overlap"),
    "liquidlog.curve": ("hilbert", "kd", "zorder", "linear"),
    "liquidlog.minCubeSize": ("100GiB", "400MiB", "1"),
    "liquidlog.targetCubeSize": ("150GiB", "700 MB"),
    "liquidlog.maxFileSize": ("1GiB", "20971520"),
    "delta.targetFileSize": ("33554432", "64mb"),
    "liquidlog.tolerance": ("1.27", "1", "3e0"),
    "liquidlog.zorderBy": ("x", "`s`, x"),
    "liquidlog.bloomFilter": ("s", "X,`s`"),
    "liquidlog.prefix": ("X",),
    "liquidlog.rowGroupRows": ("1000000", "5000"),
    "liquidlog.partitionTimeZone": ("Europe/Berlin", "UTC"),
    "liquidlog.weights": ("x=3", "`x`=0.5,s=1"),
}
WRONG: Final = ("", "wrong", "-1", "0.5", "x,", "a.b.c", "nan", "x, x", "\N{BALLOON}")

_CLUSTERING: Final = frozenset(
    {STRATEGY, "max_file_bytes", "target_cube_bytes", "min_cube_bytes", "curve", "prefix"}
)
_OF_FILES: Final = frozenset({"max_file_bytes", "bloom_filter", "row_group_rows"})
LISTENING: Final[Mapping[str, frozenset[str]]] = {
    # Source: the help of the options.
    "compaction": _OF_FILES,
    "zorder": _OF_FILES | {"target_cube_bytes", "zorder_by"},
    "cube": _OF_FILES | _CLUSTERING,
    "overlap": _OF_FILES | _CLUSTERING | {"tolerance"},
}

_properties = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in TEXTS.items()}
)
_options = st.fixed_dictionaries(
    {},
    optional={
        STRATEGY: st.sampled_from(("cube", "overlap")),
        "curve": st.sampled_from(("hilbert", "zorder")),
        "min_cube_size": st.sampled_from(("100GiB", 300 * MIB)),
        "max_file_size": st.sampled_from((10 * MIB, "1GiB")),
        "tolerance": st.sampled_from((1.27, 2.0)),
        "zorder_by": st.sampled_from(("x", ["s", "x"])),
    },
)
_columns = st.integers(0, 2)


def _remembering(columns: int, properties: Mapping[str, str]) -> Snapshot:
    own = ("x", "s")[:columns]
    files = [
        FileSpec(
            path=f"f{number:02d}",
            size=(number * 37 % 90 + 10) * MIB,
            cube=(None, "a", "b")[number % 3] if own else None,
            zorder_by=own if own and number % 3 else None,
            provider="liquid" if own and number % 3 else None,
            bounds={"x": (number, number + number % 7), "s": ("a", "bc"[number % 2])},
        )
        for number in range(14)
    ]
    return snapshot_of(files, cluster_by=[[one] for one in own] or None, configuration=properties)


def _settled_plan(snapshot: Snapshot, settled: Settled) -> ClusteringPlan:
    return planned(
        snapshot,
        ClusteringPolicy(**settled.settings),
        strategy=settled.strategy,
        named=settled.named,
        decided_by=settled.decided_by,
    )


@given(properties=_properties, columns=_columns)
def test_properties_alone_are_never_an_error_and_plan_as_options_do(
    properties: Mapping[str, str], columns: int
) -> None:
    snapshot = _remembering(columns, properties)
    settled = settle(snapshot, {})
    made = _settled_plan(snapshot, settled)
    listening = LISTENING[made.strategy] - ({"curve"} if columns < 2 else set())
    deciding = {BY_PROPERTY[name].field: name for name in reversed([*TEXTS]) if name in properties}
    expected = {setting: name for setting, name in deciding.items() if setting in listening}
    assert {**settled.decided_by} == expected
    named = {
        BY_PROPERTY[name].name: BY_PROPERTY[name].kind.of_text(properties[name])
        for name in expected.values()
    }
    plain = _remembering(columns, {})
    # A target below the minimum has no effect: as an option it is refused, in a property it waits.
    same = replace(settle(plain, policy_settings(named)), named=frozenset())
    assert _settled_plan(plain, same) == made


@given(properties=_properties, options=_options, columns=_columns)
def test_an_option_wins_and_is_taken_or_refused_as_without_properties(
    properties: Mapping[str, str], options: Mapping[str, Any], columns: int
) -> None:
    snapshot, given_settings = _remembering(columns, properties), policy_settings(options)
    settled = settle(snapshot, given_settings)
    for setting, value in given_settings.items():
        assert settled.decided_by[setting] == OPTION
        assert (settled.strategy if setting == STRATEGY else settled.settings[setting]) == value
    try:
        made = _settled_plan(snapshot, settled)
    except UsageError:
        # Only what the caller named can be refused, with the strategy that the table remembers.
        choice = {STRATEGY: settled.strategy} if columns else {}
        order = settled.settings.get("zorder_by")
        if order and not columns:
            choice = {"zorder_by": order}
        plain = _remembering(columns, {})
        sizes = {
            name: size for name, size in settled.settings.items() if name.endswith("_cube_bytes")
        }
        try:
            _settled_plan(plain, settle(plain, {**sizes, **choice, **given_settings}))
        except UsageError:
            return
        raise
    for setting, value in given_settings.items():
        assert (made.strategy if setting == STRATEGY else getattr(made.policy, setting)) == value


@given(
    name=st.sampled_from(sorted(TEXTS)),
    text=st.sampled_from(WRONG) | st.text(max_size=8),
    columns=_columns,
)
def test_any_text_is_a_value_or_an_error_that_names_it(name: str, text: str, columns: int) -> None:
    snapshot = _remembering(columns, {name: text})
    listening = settle(_remembering(columns, {name: TEXTS[name][0]}), {}).decided_by.values()
    if name not in wrong_values(snapshot) or name not in listening:
        settle(snapshot, {})
        return
    with pytest.raises(UsageError, match=rf"{name} .*UNSET TBLPROPERTIES") as refused:
        settle(snapshot, {})
    assert refused.value.fields == {"property": name, "value": text}


def test_properties_stand_for_settings_that_there_are() -> None:
    assert set(TEXTS) == set(BY_PROPERTY)
    assert set(TAKES) == set(STRATEGIES)
    for name, known in BY_PROPERTY.items():
        value = known.kind.of_text(TEXTS[name][0])
        if known.name != WEIGHTS:
            assert [*policy_settings({known.name: value})] == [known.field]


# What files outlast, against a plain model: random histories of a table's columns and properties.
#
# The model knows columns by their dotted names and compares them one by one; it has a list of its
# own of what matters to files.


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


def planned_of(state: State) -> ClusteringPlan:
    numbers = count()
    plan = make_plan(snapshot(state), ClusteringPolicy(), new_id=lambda: f"id-{next(numbers)}")
    assert len(plan.groups) == 1
    return plan


PLANS = {mapped: planned_of(base(mapped=mapped)) for mapped in (False, True)}


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
