"""Simulations that begin with the files of a real table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.keyspace.widths import key_space
from liquidlog.clustering.planning.choice import check_clustered
from liquidlog.clustering.settings import remembered_among
from liquidlog.clustering.zcubes import membership, sizes
from liquidlog.errors import UsageError
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.simulation.contenders import CONTENDERS, SIZED, contenders, setting
from liquidlog.simulation.rounds import SAMPLED_ROWS, Course
from liquidlog.simulation.rounds import simulate as play_rounds
from liquidlog.simulation.scenarios import check_scenario
from liquidlog.simulation.table import NO_CUBE, SimulatedTable, empty_table, with_files
from liquidlog.snapshot import Snapshot

_MOST_ROWS: Final = 200_000


def remembered_settings(snapshot: Snapshot, names: Sequence[str]) -> Mapping[str, Any]:
    """Return the fields of the policy that a table remembers and these contenders listen to."""
    listening = {"max_file_bytes"}
    if len(clustering_state(snapshot).columns) > 1:
        listening.add("curve")
    if SIZED & set(names or CONTENDERS):
        listening |= {"min_cube_bytes", "target_cube_bytes"}
    if "overlap" in (names or CONTENDERS):
        listening.add("tolerance")
    return remembered_among(snapshot, listening)


def simulate(
    store: TableStore,
    snapshot: Snapshot,
    *,
    append_bytes: int,
    scenario: str,
    rounds: int,
    strategies: Sequence[str],
    max_file_size: int | str | None = None,
    curve: str | None = None,
    tolerance: float | None = None,
) -> tuple[Course, ...]:
    """Return how strategies, all if none is named, would do in rounds that begin with the table.

    Each round appends `append_bytes` of keys as the scenario says. Arguments that are None are what
    the table remembers.
    """
    given: dict[str, Any] = {
        "max_file_size": max_file_size,
        "curve": curve,
        "tolerance": tolerance,
    }
    contenders(strategies, **given)  # refuses wrong arguments before a file is looked at
    first = simulated_table(store, snapshot, append_bytes=append_bytes, scenario=scenario)
    remembered = remembered_settings(snapshot, strategies)
    made = setting(
        first,
        scenario=scenario,
        rounds=rounds,
        append_bytes=append_bytes,
        max_file_size=max_file_size,
        curve=curve,
        remembered=remembered,
    )
    return play_rounds(made, contenders(strategies, **given, remembered=remembered), first)


def simulated_table(
    store: TableStore, snapshot: Snapshot, *, append_bytes: int, scenario: str
) -> SimulatedTable:
    """Return a simulated table whose files lie in key space like those of a real table.

    A file gets rows in proportion to its size, spread evenly over its box. If new keys come after
    the old ones, the first column ends where the first round begins.
    """
    check_scenario(scenario)
    columns = check_clustered(clustering_state(snapshot))
    size = sizes(snapshot.files)
    table = empty_table(len(columns))
    if not len(size):
        return table
    space = key_space(load_bounds(store, snapshot, [column.leaf for column in columns]), size)
    places = membership(snapshot.files, columns)
    cube = np.where(places.ours & places.same_columns, places.cube, NO_CUBE)
    wanted = np.maximum(2, np.round(size * (SAMPLED_ROWS / append_bytes))).astype(np.int64)
    if wanted.sum() > _MOST_ROWS:
        raise UsageError(
            f"a simulation of this table would need {int(wanted.sum())} sampled rows;"
            f" it takes at most {_MOST_ROWS}: choose a larger --append-rate"
        )
    owner = np.repeat(np.arange(len(size)), wanted)
    random = np.random.default_rng(len(owner))
    low = np.stack([spans.low for spans in space.columns], axis=1)
    high = np.stack([spans.high for spans in space.columns], axis=1)
    points = low[owner] + random.random((len(owner), len(columns))) * (high - low)[owner]
    if scenario != "full-range":
        rounds = float(size.sum()) / append_bytes
        points[:, 0] = (points[:, 0] - 1.0) * rounds
    made = with_files(table, points, np.arange(len(points)), owner, size)
    numbers = np.unique(cube, return_inverse=True)[1]
    return replace(
        made, cube=np.where(cube == NO_CUBE, NO_CUBE, numbers), cubes=int(numbers.max()) + 1
    )
