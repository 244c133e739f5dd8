"""A property stands for its option: for any properties, options and tables, plans are the same."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.clustering.planner import STRATEGIES
from liquidlog.clustering.settings import (
    BY_PROPERTY,
    STRATEGY,
    TAKES,
    WEIGHTS,
    Settled,
    policy_settings,
    settle,
    wrong_values,
)
from liquidlog.errors import UsageError
from liquidlog.plan import OPTION, ClusteringPlan, ClusteringPolicy
from liquidlog.snapshot import Snapshot
from support.snapshots import FileSpec, planned, snapshot_of

MIB: Final = 1 << 20

VALUES: Final[Mapping[str, tuple[str, ...]]] = {
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

LISTENING: Final[Mapping[str, frozenset[str]]] = {
    # Source: the help of the options.
    "compaction": frozenset({"max_file_bytes", "bloom_filter", "row_group_rows"}),
    "zorder": frozenset(
        {"max_file_bytes", "target_cube_bytes", "zorder_by", "bloom_filter", "row_group_rows"}
    ),
    "cube": frozenset(
        {
            "max_file_bytes",
            "target_cube_bytes",
            "min_cube_bytes",
            "curve",
            STRATEGY,
            "bloom_filter",
            "row_group_rows",
            "prefix",
        }
    ),
    "overlap": frozenset(
        {
            "max_file_bytes",
            "target_cube_bytes",
            "min_cube_bytes",
            "curve",
            STRATEGY,
            "tolerance",
            "bloom_filter",
            "row_group_rows",
            "prefix",
        }
    ),
}

_properties = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in VALUES.items()}
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


def _table(columns: int, properties: Mapping[str, str]) -> Snapshot:
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


def _planned(snapshot: Snapshot, settled: Settled) -> ClusteringPlan:
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
    snapshot = _table(columns, properties)
    settled = settle(snapshot, {})
    made = _planned(snapshot, settled)
    mode = made.strategy
    listening = LISTENING[mode] - ({"curve"} if columns < 2 else set())
    deciding = {BY_PROPERTY[name].field: name for name in reversed([*VALUES]) if name in properties}
    expected = {setting: name for setting, name in deciding.items() if setting in listening}
    assert {**settled.decided_by} == expected
    named = {
        BY_PROPERTY[name].name: BY_PROPERTY[name].kind.of_text(properties[name])
        for name in expected.values()
    }
    plain = _table(columns, {})
    # A target below the minimum has no effect: as an option it is refused, in a property it waits.
    same = replace(settle(plain, policy_settings(named)), named=frozenset())
    assert _planned(plain, same) == made


@given(properties=_properties, options=_options, columns=_columns)
def test_an_option_wins_and_is_taken_or_refused_as_without_properties(
    properties: Mapping[str, str], options: Mapping[str, Any], columns: int
) -> None:
    snapshot, given_settings = _table(columns, properties), policy_settings(options)
    settled = settle(snapshot, given_settings)
    for setting, value in given_settings.items():
        assert settled.decided_by[setting] == OPTION
        assert (settled.strategy if setting == STRATEGY else settled.settings[setting]) == value
    try:
        made = _planned(snapshot, settled)
    except UsageError:
        # Only what the caller named can be refused, with the strategy that the table remembers.
        choice = {STRATEGY: settled.strategy} if columns else {}
        order = settled.settings.get("zorder_by")
        if order and not columns:
            choice = {"zorder_by": order}
        plain = _table(columns, {})
        sizes = {
            name: size for name, size in settled.settings.items() if name.endswith("_cube_bytes")
        }
        try:
            _planned(plain, settle(plain, {**sizes, **choice, **given_settings}))
        except UsageError:
            return
        raise
    for setting, value in given_settings.items():
        assert (made.strategy if setting == STRATEGY else getattr(made.policy, setting)) == value


@given(
    name=st.sampled_from(sorted(VALUES)),
    text=st.sampled_from(WRONG) | st.text(max_size=8),
    columns=_columns,
)
def test_any_text_is_a_value_or_one_error_that_names_the_property(
    name: str, text: str, columns: int
) -> None:
    snapshot = _table(columns, {name: text})
    listening = settle(_table(columns, {name: VALUES[name][0]}), {}).decided_by.values()
    if name not in wrong_values(snapshot) or name not in listening:
        settle(snapshot, {})
        return
    with pytest.raises(UsageError, match=rf"{name} .*UNSET TBLPROPERTIES") as refused:
        settle(snapshot, {})
    assert refused.value.fields == {"property": name, "value": text}


def test_properties_stand_for_settings_that_there_are() -> None:
    assert set(VALUES) == set(BY_PROPERTY)
    assert set(TAKES) == set(STRATEGIES)
    for name, known in BY_PROPERTY.items():
        value = known.kind.of_text(VALUES[name][0])
        if known.name != WEIGHTS:
            assert [*policy_settings({known.name: value})] == [known.field]
