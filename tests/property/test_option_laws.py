"""An option that is given changes a plan, or is refused: for every option, table and strategy."""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.clustering.settings import (
    BY_FIELD,
    PLAN_SETTINGS,
    STRATEGY,
    TIME_ZONE,
    policy_settings,
)
from liquidlog.clustering.zcubes import PROVIDER
from liquidlog.errors import UsageError
from liquidlog.plan import ClusteringPlan, ClusteringPolicy
from liquidlog.report.jsonable import render_json
from liquidlog.snapshot import Snapshot
from liquidlog.table import Table
from support.commands import said
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


ARGUMENTS: Final[Mapping[str, tuple[object, ...]]] = {
    "full": (True,),
    "skip_clustered": (True,),
    "strategy": ("cube", "overlap", "magic"),
    "curve": ("hilbert", "kd", "spiral"),
    "min_cube_size": (1, "100GiB"),
    "target_cube_size": (1, "150GiB"),
    "max_file_size": (10, "2KiB", "1GiB"),
    "zorder_by": ("x", "nope"),
    "budget": (1, "4KiB"),
    "where": ("x > 3", "x >"),
    "tolerance": (0.5, 1.27),
    "min_overlapping_files": (0, 4),
    "min_overlap": (0.75, 2.0),
    "compression": ("LZ4", "snappy", "brotli"),
    "bloom_filter": ("x", "nope"),
    "row_group_rows": (5_000, 10),
    "prefix": ("x", "nope"),
}
_arguments = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from(values) for name, values in ARGUMENTS.items()}
)


@pytest.fixture(scope="module", params=["x,s", "x", ""], ids=["two columns", "one", "none"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    names = [name for name in request.param.split(",") if name]
    schema = pa.schema([("x", pa.int64()), ("s", pa.string())])
    made = Table.create(tmp_path_factory.mktemp("options"), schema=schema, cluster_by=names)
    for first in range(4):
        made.append(pa.table({"x": list(range(first, first + 50)), "s": ["a", "b"] * 25}))
    return made


@given(arguments=_arguments)
def test_commands_and_python_take_and_refuse_the_same(
    table: Table, arguments: dict[str, Any]
) -> None:
    words = [
        word
        for name, value in arguments.items()
        for word in ("--set", f"{name}={str(value).lower() if value is True else value}")
    ]
    status, out, err = said("plan", table.uri, *words, "--json")
    found = json.loads(out or err)
    found.pop("verdict", None)  # Which Table.judge_plan gives apart from the plan.
    assert (status, _told(found)) == _asked(table, arguments)


def _asked(table: Table, arguments: dict[str, Any]) -> tuple[int, object]:
    try:
        return 0, _told(json.loads(render_json(table.plan(**arguments))))
    except UsageError as refusal:
        return refusal.exit_status, refusal.message


def _told(document: Mapping[str, Any]) -> object:
    """Return a refusal's sentence, or a plan without its ids."""
    if "error" in document:
        return document["error"]["message"]
    groups = [{**group, "zcube_id": None} for group in document["groups"]]
    return {**document, "plan_id": None, "groups": groups}


@pytest.mark.parametrize(
    "options",
    [
        {"min_cube_size": "2GiB", "target_cube_size": "1GiB"},
        {"target_cube_size": "99GiB"},
        {"strategy": "overlap", "min_overlap": 0.0, "min_overlapping_files": 4},
        {"strategy": "overlap", "min_overlap": 0.5, "min_overlapping_files": 0},
    ],
)
def test_an_option_without_effect_beside_another_is_refused(
    options: dict[str, Any], tmp_path: Path
) -> None:
    table = Table.create(tmp_path / "t", schema=pa.schema([("x", pa.int64())]), cluster_by="x")
    with pytest.raises(UsageError):
        table.plan(**options)


def test_an_argument_that_is_none_is_not_given() -> None:
    names = dict.fromkeys(ARGUMENTS)
    assert policy_settings(names) == {}
