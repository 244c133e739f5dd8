"""Two processes that delete or commit, under every schedule of their calls on storage.

After each: nothing that a retained version names is missing, every row is there once, what was told
is true, and what no version names is listed as orphans and goes with them.
"""

import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from liquidlog.log.history import Needed
from liquidlog.operations import vacuum
from support.effort import effort
from support.emulators import Emulator
from support.playground import memory_playground, object_playground, playground
from support.rivals import PAIRS, Baton, Outcome, Pair, Race, Schedule, depend, sampled, schedules
from support.verbs import OPERATIONS, Operation, Trial, faults_at

SWITCHES = effort(1, 3)
SAMPLES = effort(1, 2)
DANGEROUS = {"commit, orphans", "append, orphans"}

pytestmark = pytest.mark.filterwarnings("ignore::liquidlog.operations.vacuum.RunWarning")


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_no_schedule_of_two_processes_loses_anything(pair: Pair) -> None:
    with playground() as ground:
        race = Race.of(ground, pair)
        told: set[tuple[str, str]] = set()

        def run(schedule: Schedule) -> Baton:
            baton, outcomes = race.run(schedule)
            told.add((_told(outcomes[0]), _told(outcomes[1])))
            return baton

        def wanted() -> Iterator[Schedule]:
            if effort(pair.name in DANGEROUS, True):  # noqa: FBT003
                return schedules(run, SWITCHES, depend)
            return sampled(run, switches=3, number=SAMPLES, seed=len(pair.name))

        count = sum(1 for _ in wanted())
    sys.stdout.write(f"{pair.name}: {count} schedules, {sorted(told)}\n")


MUTANTS: dict[str, tuple[str, Callable[..., object]]] = {
    "no version is put first": ("vacuum._put_version", lambda *_: None),
    "the log is not read again": ("vacuum.named_files", lambda *_: frozenset()),
    "a commit does not look at the run": ("batches.require_committable", lambda *_, **__: None),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_model_sees_a_step_that_is_left_out(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, instead = MUTANTS[mutant]
    monkeypatch.setattr(f"liquidlog.operations.{where}", instead)
    pair = next(pair for pair in PAIRS if pair.name == "commit, orphans")
    with playground() as ground:
        race = Race.of(ground, pair)
        with pytest.raises(AssertionError, match="deleted, though named"):
            for _ in schedules(lambda schedule: race.run(schedule)[0], 2, depend):
                pass


VACUUM_MUTANTS: dict[str, tuple[str, Callable[..., object]]] = {
    "runs are not looked at": ("tokens_in", lambda *_: frozenset()),
    "the log is not read": (
        "needed_files",
        lambda _, paths, **__: Needed(0, frozenset(), frozenset(paths)),
    ),
}


@pytest.mark.parametrize("mutant", VACUUM_MUTANTS)
def test_the_model_sees_what_a_vacuum_does_not_look_at(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, instead = VACUUM_MUTANTS[mutant]
    monkeypatch.setattr(vacuum, name, instead)
    pair = next(pair for pair in PAIRS if pair.name == "run and commit, vacuum")
    with playground() as ground:
        race = Race.of(ground, pair)
        with pytest.raises(AssertionError):
            for _ in schedules(lambda schedule: race.run(schedule)[0], 1, depend):
                pass


def _told(outcome: Outcome) -> str:
    return "done" if outcome.error is None else type(outcome.error).__name__


# The same on an emulator of S3 and on objects in memory, with faults at every call.


DANGEROUS_THERE = effort(("commit, orphans",), ("commit, orphans", "append, orphans"))
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
EMULATED = {*DANGEROUS_THERE, *OTHERS}
FAULTY = effort(("append",), ("append", "commit", "commit again", "orphans"))
EMULATED_SWITCHES, EMULATED_SAMPLES, FAULTS = effort((0, 0, 1), (1, 10, 10_000))
SWITCHES_IN_MEMORY = effort(1, 3)


@pytest.mark.parametrize("pair", [p for p in PAIRS if p.name in EMULATED], ids=str)
def test_no_schedule_on_an_emulator_loses_anything(s3: Emulator, pair: Pair) -> None:
    race = Race.of(object_playground(s3), pair)

    def run(schedule: Schedule) -> Baton:
        return race.run(schedule)[0]

    if pair.name in DANGEROUS_THERE:
        found = list(schedules(run, EMULATED_SWITCHES, depend))
        found += sampled(run, switches=3, number=EMULATED_SAMPLES, seed=1)
    else:
        found = list(sampled(run, switches=2, number=EMULATED_SAMPLES, seed=1))
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
