"""A step of reconciling that does the wrong thing is found out: nothing of it is committed.

Each saboteur stands where one step hands its work to the next: it deletes another row than it
should, one too few, or one too many. The rows of a group are all different.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from liquidlog.operations import reconcile
from liquidlog.plan import ClusteringPlan, RewriteResult
from liquidlog.table import Table
from support.arrow_executor import execute
from support.plain_table import PlainTable

FILES, FILE_ROWS = 6, 20

Positions = Any
"""Increasing physical rows, uint64."""


def another(rows: Positions) -> Positions:
    """Return rows of which the first is its neighbour instead."""
    taken = set(rows.tolist())
    free = next(row for row in range(FILE_ROWS) if row not in taken)
    return np.sort(np.append(rows[1:], np.uint64(free)))


def one_left_out(rows: Positions) -> Positions:
    return rows[:-1]


def one_too_many(rows: Positions) -> Positions:
    taken = set(rows.tolist())
    free = next(row for row in range(FILE_ROWS) if row not in taken)
    return np.sort(np.append(rows, np.uint64(free)))


LIES: Final[dict[str, Callable[[Positions], Positions]]] = {
    "another row": another,
    "one left out": one_left_out,
    "one too many": one_too_many,
}


def lying_finder(lie: Callable[[Positions], Positions]) -> Callable[..., Any]:
    honest = vars(reconcile)["find_rows"]

    def find(*arguments: Any, **named: Any) -> Any:
        found = honest(*arguments, **named)
        first = next(number for number, rows in enumerate(found.positions) if len(rows) > 1)
        lied = [lie(rows) if n == first else rows for n, rows in enumerate(found.positions)]
        return replace(found, positions=tuple(lied))

    return find


def lying_vector_writer(lie: Callable[[Positions], Positions]) -> Callable[..., Any]:
    honest = vars(reconcile)["write_vector"]
    return lambda run, positions, **named: honest(run, lie(positions), **named)


def lying_copier(lie: Callable[[Positions], Positions]) -> Callable[..., Any]:
    honest = vars(reconcile)["write_without"]

    def write(run: Any, output: Any, deleted: Any, **named: Any) -> Any:
        lied = replace(deleted, positions=lie(deleted.positions))
        return honest(run, output, lied, **named)

    return write


SABOTEURS: Final = {
    "finder": ("find_rows", lying_finder, (True, False)),
    "vector writer": ("write_vector", lying_vector_writer, (True,)),
    "copier": ("write_without", lying_copier, (False,)),
}
CASES: Final = [
    (who, what, vectors)
    for who, (_, _, tables) in SABOTEURS.items()
    for what in LIES
    for vectors in tables
]


def raced(path: Path, *, vectors: bool) -> tuple[PlainTable, ClusteringPlan, RewriteResult]:
    """Return a table of which rows were deleted since a plan was run."""
    plain = PlainTable.create(path / "t", vectors=vectors)
    for number in range(FILES):
        first = number * FILE_ROWS
        plain.append([(x, f"s{x}", None, None) for x in range(first, first + FILE_ROWS)])
    plan = Table.open(str(plain.root)).plan()
    result = execute(plan)
    paths = sorted(plain.state())
    plain.delete({path: [3, 4, 7] for path in paths[:2]}, how="vector" if vectors else "copy")
    return plain, plan, result


@pytest.mark.parametrize(("who", "what", "vectors"), CASES)
def test_a_saboteur_commits_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    who: str,
    what: str,
    vectors: bool,  # noqa: FBT001
) -> None:
    name, make, _ = SABOTEURS[who]
    # A copy-on-write delete of two files of six is more than is reconciled by default.
    plain, plan, result = raced(tmp_path, vectors=vectors)
    before, version = plain.rows(), plain.version
    table = Table.open(str(plain.root))
    monkeypatch.setattr(reconcile, name, make(LIES[what]))
    report = table.commit_each(plan, result.groups, max_reconciled_share=0.5)
    assert not report.versions
    assert len(report.failures) == 1
    assert plain.version == version
    assert plain.rows() == before
    monkeypatch.undo()
    # What the saboteur wrote is nobody's: it can be cleaned up, and the rows are planned anew.
    table.orphans(older_than="0s", finished=True, delete=True)
    again = Table.open(str(plain.root))
    replanned = again.plan()
    assert again.commit(replanned, execute(replanned)).versions
    assert plain.rows() == before
    left = {path.name for path in plain.root.iterdir()} - {"_delta_log"}
    assert left <= plain.named()


@pytest.mark.parametrize("vectors", [True, False])
def test_without_a_saboteur_it_is_committed(tmp_path: Path, *, vectors: bool) -> None:
    plain, plan, result = raced(tmp_path, vectors=vectors)
    before = plain.rows()
    table = Table.open(str(plain.root))
    report = table.commit_each(plan, result.groups, max_reconciled_share=0.5)
    assert len(report.versions) == 1
    assert report.reconciled.rows == (6 if vectors else 2 * FILE_ROWS)
    assert plain.rows() == before
