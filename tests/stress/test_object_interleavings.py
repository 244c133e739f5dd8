"""Pairs of processes, and faults at every call, on an emulator of S3 and on objects in memory.

What is checked is what is checked on local disk, see test_interleavings and test_faults.
"""

import sys

import numpy as np
import pytest

from support.effort import effort
from support.emulators import Emulator
from support.playground import memory_playground, object_playground
from support.rivals import PAIRS, Baton, Pair, Race, Schedule, depend, sampled, schedules
from support.verbs import OPERATIONS, Operation, Trial, faults_at

DANGEROUS = effort(("commit, orphans",), ("commit, orphans", "append, orphans"))
OTHERS = effort(
    (),
    (
        "the same commit twice",
        "two results of one plan",
        "run and commit, orphans",
        "orphans, orphans",
        "commit, cluster by",
        "a commit that follows, a vector",
        "a commit by copies, orphans",
        "a commit by vectors, orphans",
    ),
)
FAULTY = effort(("append",), ("append", "commit", "commit again", "orphans"))
SWITCHES, SAMPLES, FAULTS = effort((0, 0, 1), (1, 10, 10_000))
SWITCHES_IN_MEMORY = effort(1, 3)


@pytest.mark.parametrize("pair", [p for p in PAIRS if p.name in {*DANGEROUS, *OTHERS}], ids=str)
def test_no_schedule_of_two_processes_loses_anything(s3: Emulator, pair: Pair) -> None:
    race = Race.of(object_playground(s3), pair)

    def run(schedule: Schedule) -> Baton:
        return race.run(schedule)[0]

    if pair.name in DANGEROUS:
        found = list(schedules(run, SWITCHES, depend))
        found += sampled(run, switches=3, number=SAMPLES, seed=1)
    else:
        found = list(sampled(run, switches=2, number=SAMPLES, seed=1))
    sys.stdout.write(f"{pair.name}: {len(found)} schedules\n")


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_no_schedule_on_objects_in_memory_loses_anything(pair: Pair) -> None:
    with memory_playground() as ground:
        race = Race.of(ground, pair)
        found = sum(1 for _ in schedules(lambda s: race.run(s)[0], SWITCHES_IN_MEMORY, depend))
    assert found > 1
    sys.stdout.write(f"{pair.name}: {found} schedules\n")


@pytest.mark.parametrize("operation", [o for o in OPERATIONS if o.name in FAULTY], ids=str)
def test_no_fault_of_storage_loses_anything(s3: Emulator, operation: Operation) -> None:
    trial = Trial.of(object_playground(s3), operation)
    made = trial.run(by_delta_rs=True).made
    single = list(faults_at(made))
    chosen = np.random.default_rng(1).permutation(len(single))[:FAULTS]
    for index in sorted(chosen):
        trial.run([single[index]])
    sys.stdout.write(f"{operation.name}: {len(made)} calls, {len(chosen)} faults; {trial.told}\n")
