"""Continuous rewrites against a writer that never stops: no group is thrown away for its sake.

The writer deletes and updates rows with and without vectors, deletes whole files and adds files
again. It waits only when so many statements landed since a rewrite began that they could delete
more of a group than is reconciled.
"""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from support.effort import effort
from support.plain_table import PlainTable, Row, State, double, rows_of
from support.soaking import STATEMENTS_OF_A_REWRITE, Pace, soak

STATEMENTS = effort(60, 200)
FILE_ROWS, FILES = 100, 40


def new_rows(draw: np.random.Generator, number: int) -> list[Row]:
    return [
        (int(x), f"s{x % 5}", double(float(x % 3)), None if x % 4 == 0 else (int(x), ("a",)))
        for x in draw.integers(0, 300, number)
    ]


class Writer:
    """Makes statements with vectors or without, and knows which rows there must be."""

    def __init__(self, table: PlainTable) -> None:
        self.table = table
        self.rows = table.rows()
        self.kinds = Counter[str]()
        self._draw = np.random.default_rng(1)

    def write(self, pace: Pace) -> None:
        for statement in pace.statements(STATEMENTS):
            kind = ("delete", "update", "delete", "touch", "append", "drop", "copy")[statement % 7]
            while not self._try(kind):
                pass
            self.kinds[kind] += 1

    def _try(self, kind: str) -> bool:
        """Make a statement; return False if a file that it chose is gone since."""
        state = self.table.state()
        try:
            self._make(kind, state)
        except KeyError:
            return False
        return True

    def _make(self, kind: str, state: State) -> None:
        few = {path: file for path, file in state.items() if 0 < len(file.live) <= FILE_ROWS}
        if kind == "append" or (kind in {"drop", "copy"} and not few):
            rows = new_rows(self._draw, FILE_ROWS)
            self.table.append(rows)
            self.rows += Counter(rows)
        elif kind == "touch":
            self.table.add_again(str(self._draw.choice(sorted(state))))
        elif kind == "drop":
            path = str(self._draw.choice(sorted(few)))
            self._delete(state, {path: state[path].live}, [], "vector")
        elif kind == "copy":
            self._delete(state, self._picked(few, 1), [], "copy")
        else:
            how = "vector" if self.table.has_vectors else "copy"
            # Without vectors, a delete in a large file is a delete of much of the group.
            among = state if self.table.has_vectors else few or state
            rows = new_rows(self._draw, 3) if kind == "update" else []
            self._delete(state, self._picked(among, 3), rows, how)

    def _picked(self, state: State, number: int) -> dict[str, list[int]]:
        path = str(self._draw.choice(sorted(state)))
        return {path: sorted(set(self._draw.choice(state[path].live, number).tolist()))}

    def _delete(
        self, state: State, picked: dict[str, list[int]], rows: list[Row], how: str
    ) -> None:
        if rows:
            self.table.update(picked, rows, how=how)
        else:
            self.table.delete(picked, how=how)
        self.rows -= Counter(state[path].rows[at] for path, found in picked.items() for at in found)
        self.rows += Counter(rows)


@pytest.mark.parametrize("vectors", [True, False], ids=["vectors", "copies"])
def test_no_group_is_thrown_away_while_rows_are_deleted(tmp_path: Path, *, vectors: bool) -> None:
    table = PlainTable.create(tmp_path / "t", vectors=vectors)
    draw = np.random.default_rng(0)
    for _ in range(FILES):
        table.append(new_rows(draw, FILE_ROWS))
    writer, pace = Writer(table), Pace()
    costs = soak(str(table.root), pace, lambda: writer.write(pace), max_file_size="4KiB")
    sys.stdout.write(f"{dict(writer.kinds)}: {costs}\n")
    assert sum(writer.kinds.values()) == STATEMENTS
    assert not costs.problems
    assert costs.raced >= STATEMENTS // STATEMENTS_OF_A_REWRITE
    assert table.rows() == writer.rows
    assert Counter(rows_of(pa.table(DeltaTable(table.root).scan().read_all()))) == writer.rows
