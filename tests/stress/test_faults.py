"""Every call on storage of every operation that writes or deletes fails, in every way, once.

After each: the table is readable, every row is there once, what was told is true, and what no
version names is listed as orphans and goes with them.
"""

import sys
from collections.abc import Sequence

import numpy as np
import pytest

from support.effort import effort, is_long
from support.faults import Trial
from support.faulty_disk import Fault, faults_at
from support.playground import playground
from support.verbs import OPERATIONS, Operation

SAMPLES = 2
PAIRS = effort(1, 40)
UNREADABLE_BY_DELTA_RS = {"rename a column", "drop a column"}
"""Column mapping is nothing that its scan of this version knows."""


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_no_fault_of_storage_loses_anything(operation: Operation) -> None:
    draw = np.random.default_rng(len(operation.name))
    with playground() as ground:
        trial = Trial.of(ground, operation)
        mapped = operation.name in UNREADABLE_BY_DELTA_RS
        made = trial.run(by_delta_rs=not mapped).made
        single = list(faults_at(made))
        for fault in single if is_long() else _some(single, SAMPLES, draw):
            trial.run([fault], by_delta_rs=not mapped)
        for _ in range(PAIRS):
            first = _some(single, 1, draw)[0]
            # What is called after a fault is other than what would have been without it.
            later = [f for f in faults_at(trial.run([first]).made) if f.number > first.number]
            trial.run([first, *_some(later, 1, draw)], by_delta_rs=not mapped)
    count = f"{len(made)} calls, {len(single)} faults, {PAIRS} pairs of them"
    sys.stdout.write(f"{operation.name}: {count}; {trial.told}\n")


def _some(faults: Sequence[Fault], number: int, draw: np.random.Generator) -> list[Fault]:
    chosen = draw.permutation(len(faults))[:number]
    return [faults[index] for index in sorted(chosen)]
