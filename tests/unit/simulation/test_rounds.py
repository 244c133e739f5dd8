"""Rounds: contenders meet the same rows and the same queries, and differ only in what they plan."""

from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from msgspec import structs

from liquidlog.errors import UsageError
from liquidlog.plan import ClusteringPolicy
from liquidlog.simulation.rounds import Contender, Setting, simulate
from liquidlog.simulation.scenarios import SCENARIOS, batches
from liquidlog.simulation.table import SimulatedTable, empty_table

MIB = 1 << 20
POLICY = ClusteringPolicy(
    min_cube_bytes=256 * MIB, target_cube_bytes=512 * MIB, max_file_bytes=16 * MIB
)
CONTENDERS = [
    Contender(name=strategy, strategy=strategy, policy=POLICY) for strategy in ("cube", "overlap")
]


def setting(scenario: str = "merge", rounds: int = 4) -> Setting:
    return Setting(scenario=scenario, rounds=rounds, append_bytes=64 * MIB, max_file_bytes=16 * MIB)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_contenders_are_measured_against_the_same_full_rewrite(scenario: str) -> None:
    cube, overlap = simulate(setting(scenario), CONTENDERS, empty_table(2))
    assert [row.number for row in cube.rounds] == [1, 2, 3, 4]
    assert cube.ingested_bytes == overlap.ingested_bytes == 4 * 64 * MIB
    for ours, theirs in zip(cube.rounds, overlap.rounds, strict=True):
        assert ours.full_bytes_read == theirs.full_bytes_read
        assert ours.full_files == theirs.full_files
    # The reference's choice takes every file of small cubes again, each round.
    assert cube.write_amplification > 1.5
    assert overlap.write_amplification <= cube.write_amplification


def test_the_same_setting_gives_the_same_course() -> None:
    assert simulate(setting(), CONTENDERS, empty_table(2)) == simulate(
        setting(), CONTENDERS, empty_table(2)
    )


def test_a_policy_that_no_plan_can_satisfy_is_refused_before_the_first_round() -> None:
    hopeless = replace(CONTENDERS[1], policy=structs.replace(POLICY, tolerance=float("nan")))
    untouched = cast("SimulatedTable", None)
    with pytest.raises(UsageError):
        simulate(setting(), [CONTENDERS[0], hopeless], untouched)


def test_a_merge_replaces_rows_that_are_there_once() -> None:
    made = batches("merge", 5, rows=100, first=empty_table(2))
    live = np.zeros(0, np.int64)
    for number, batch in enumerate(made):
        assert np.isin(batch.replaced, live).all()
        assert len(np.unique(batch.replaced)) == (10 if number else 0)
        live = np.concatenate([np.setdiff1d(live, batch.replaced), batch.ids])


@pytest.mark.parametrize(
    "broken",
    [
        setting("nothing"),
        setting(rounds=0),
        Setting(scenario="merge", rounds=1, append_bytes=0, max_file_bytes=1),
        Setting(scenario="merge", rounds=1, append_bytes=1, max_file_bytes=1, curve="line"),
    ],
)
def test_settings_that_cannot_be_simulated_are_refused(broken: Setting) -> None:
    with pytest.raises(UsageError):
        simulate(broken, CONTENDERS, empty_table(2))
