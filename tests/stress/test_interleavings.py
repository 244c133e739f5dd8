"""Two processes that delete or commit, under every schedule of their calls on storage.

After each: nothing that a retained version names is missing, every row is there once, what was told
is true, and what no version names is listed as orphans and goes with them.
"""

import sys
from collections.abc import Callable, Iterator

import pytest

from liquidlog.log.history import Needed
from liquidlog.operations import vacuum as vacuuming
from support.effort import effort
from support.playground import playground
from support.rivals import PAIRS, Baton, Outcome, Pair, Race, Schedule, depend, sampled, schedules

SWITCHES = effort(1, 3)
SAMPLES = 2
DANGEROUS = {"commit, orphans", "append, orphans"}

pytestmark = pytest.mark.filterwarnings("ignore::liquidlog.operations.outputs.RunWarning")


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
    "the log is not read again": ("outputs.named_files", lambda *_: frozenset()),
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
    monkeypatch.setattr(vacuuming, name, instead)
    pair = next(pair for pair in PAIRS if pair.name == "run and commit, vacuum")
    with playground() as ground:
        race = Race.of(ground, pair)
        with pytest.raises(AssertionError):
            for _ in schedules(lambda schedule: race.run(schedule)[0], 1, depend):
                pass


def _told(outcome: Outcome) -> str:
    return "done" if outcome.error is None else type(outcome.error).__name__
