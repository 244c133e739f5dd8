"""A vacuum that is killed at any call on storage: the table is whole, and the next one ends it."""

import sys
from contextlib import suppress
from typing import Any, Final

from support.disk_calls import Call, Effect
from support.effort import effort
from support.interleavings import alone_on_storage
from support.playground import Playground, counted_tokens, playground
from support.raced_store import Crash
from support.verbs import OPERATIONS, Verb

KILLS: Final = effort(15, 10_000)


class Killer:
    """Lets so many calls through; from then on the process is gone."""

    def __init__(self, calls: int) -> None:
        self._left = calls
        self.made = 0

    def __call__(self, _: Call, effect: Effect) -> Any:
        if self.made == self._left:
            raise Crash
        self.made += 1
        return effect()


def killed(ground: Playground, verb: Verb, calls: int) -> int:
    """Run a verb from the saved state, killed after so many calls; return how many it made."""
    ground.restore()
    killer = Killer(calls)
    with counted_tokens(), alone_on_storage(), ground.calls(killer), suppress(Crash):
        verb(ground)
    return killer.made


def test_a_killed_vacuum_is_finished_by_the_next() -> None:
    (operation,) = (one for one in OPERATIONS if one.name == "vacuum")
    with playground() as ground:
        verb = operation.made_ready(ground)
        whole = killed(ground, verb, 1 << 30)
        left = ground.log.there
        data = {name for name in left if name.endswith(".parquet")}
        step = max(1, whole // KILLS)
        for calls in range(whole - 1, -1, -step):
            assert killed(ground, verb, calls) == calls
            log = ground.log
            assert not log.missing
            assert log.values("x") == sorted(operation.base)
            verb(ground)
            after = ground.log
            assert not after.missing
            assert {name for name in after.there if name.endswith(".parquet")} == data
    sys.stdout.write(f"killed at every {step} of {whole} calls\n")
