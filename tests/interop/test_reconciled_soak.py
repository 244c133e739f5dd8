"""Continuous rewrites while Delta Spark deletes, updates and merges: no group is thrown away.

Where the table has no deletion vectors, a statement copies whole files. That table has so many that
the statements that land during a rewrite replace less of it than is reconciled.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from support.effort import effort
from support.soaking import STATEMENTS_OF_A_REWRITE, Pace, soak

pytestmark = pytest.mark.reference

STATEMENTS = effort(36, 200)
KINDS = ("delete", "update", "merge")
PLACES: Final = 7
"""Values of the first clustering column."""

KEYS: Final = 9
"""Rows of a statement; their first clustering column is the same, so that they lie together."""


class Writer:
    """Makes statements, again where a rewrite was in their way, and knows what rows there are."""

    def __init__(self, spark: Any, path: Path, rows: int) -> None:
        self._spark = spark
        self._target = f"delta.`{path}`"
        self._first_rows = rows
        self.rows = {key: f"s{key % 13}" for key in range(rows)}
        self.kinds = Counter[str]()
        self.lost = 0

    def write(self, pace: Pace) -> None:
        for number in pace.statements(STATEMENTS):
            kind = KINDS[number % len(KINDS)]
            self._run(self._sql(kind, number))
            self.kinds[kind] += 1

    def _sql(self, kind: str, number: int) -> str:
        first = number * 17 % (self._first_rows - KEYS * PLACES)
        near = range(first, first + KEYS * PLACES, PLACES)
        keys = [key for key in near if key in self.rows]
        listed = ", ".join(map(str, keys or [first]))
        if kind == "delete":
            for key in keys:
                del self.rows[key]
            return f"delete from {self._target} where k in ({listed})"
        text = f"{kind} {number}"
        self.rows.update(dict.fromkeys(keys, text))
        if kind == "update":
            return f"update {self._target} set s = '{text}' where k in ({listed})"
        new = self._first_rows + number
        self.rows[new] = text
        return (
            f"merge into {self._target} t using (select explode(array({listed}, {new})) as k) u"
            f" on t.k = u.k when matched then update set s = '{text}'"
            f" when not matched then insert (k, x, s) values (u.k, {new % PLACES}, '{text}')"
        )

    def _run(self, sql: str) -> None:
        while True:
            try:
                self._spark.sql(sql).collect()
            except Exception as error:  # the engine's own error, or one of the bridge
                if "Concurrent" not in f"{type(error).__name__} {error}":
                    raise
                self.lost += 1
            else:
                return


@pytest.mark.parametrize(
    ("vectors", "files", "file_size"),
    [(True, 40, "8KiB"), (False, 160, "2KiB")],
    ids=["vectors", "copies"],
)
def test_no_group_is_thrown_away_while_the_engine_writes(
    spark: Any,
    tmp_path: Path,
    vectors: bool,  # noqa: FBT001
    files: int,
    file_size: str,
) -> None:
    path, rows = tmp_path / "t", 100 * files
    spark.conf.set("spark.databricks.delta.snapshotPartitions", "1")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    spark.sql(
        f"create table delta.`{path}` (k int, x int, s string) using delta cluster by (x, k)"
        f" tblproperties ('delta.enableDeletionVectors' = '{str(vectors).lower()}')"
    )
    spark.sql(
        f"insert into delta.`{path}` select cast(id as int), cast(id % {PLACES} as int),"
        f" concat('s', id % 13) from range(0, {rows}, 1, {files})"
    )
    writer, pace = Writer(spark, path, rows), Pace()
    costs = soak(str(path), pace, lambda: writer.write(pace), max_file_size=file_size)
    sys.stdout.write(f"{dict(writer.kinds)}, {writer.lost} lost to rewrites: {costs}\n")
    assert sum(writer.kinds.values()) == STATEMENTS
    assert not costs.problems
    assert costs.raced >= STATEMENTS // STATEMENTS_OF_A_REWRITE
    found = {row.k: row.s for row in spark.sql(f"select k, s from delta.`{path}`").collect()}
    assert found == writer.rows
    theirs = pa.table(DeltaTable(path).scan().read_all())
    assert sorted(theirs["k"].to_pylist()) == sorted(writer.rows)
