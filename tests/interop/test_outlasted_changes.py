"""Delta Spark changes a table between our plan and our commit: what rewrites outlast, and what not.

Afterwards both the engine and delta-rs read the same rows, the engine inserts rows that use what it
changed, and its next OPTIMIZE continues from ours.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from liquidlog.errors import CommitConflictError
from liquidlog.table import Table
from support.arrow_executor import execute

pytestmark = pytest.mark.reference

Rows = list[dict[str, Any]]
FILES, ROWS = 3, 40
NEW_ID = 1_000


@pytest.fixture(scope="module")
def template(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function from a column mapping mode to a table of three files, made once."""
    made: dict[str, Path] = {}

    def table(mode: str) -> Path:
        if mode not in made:
            made[mode] = tmp_path_factory.mktemp("outlasted") / f"{mode}"
            create(spark, made[mode], mode)
        return made[mode]

    return table


def create(spark: Any, path: Path, mode: str) -> None:
    spark.sql(
        f"create table delta.`{path}` (id bigint not null, x int, s string, st struct<a: int, b:"
        " string>, tiny tinyint) using delta cluster by (x)"
        f" tblproperties ('delta.columnMapping.mode' = '{mode}',"
        " 'delta.enableDeletionVectors' = 'false',"
        " 'delta.checkpointInterval' = '4', 'delta.logRetentionDuration' = 'interval 20 days')"
    )
    spark.sql(f"alter table delta.`{path}` add constraint old check (x >= 0)")
    for number in range(FILES):
        spark.sql(
            f"insert into delta.`{path}` select id, cast(id % 7 as int), concat('s', id),"
            " named_struct('a', cast(id as int), 'b', 'v'), cast(id % 5 as tinyint)"
            f" from range({number * ROWS}, {(number + 1) * ROWS}, 1, 1)"
        )


@dataclass(frozen=True)
class Change:
    """What the engine does to the table, and the columns and values of its next INSERT."""

    sql: tuple[str, ...]
    columns: str = "id, x"
    values: str = f"{NEW_ID}, 3"
    is_for_delta_rs: bool = True


OUTLASTED = {
    "new column": Change(
        ("alter table {t} add column (new string comment 'of late')",),
        "id, x, new",
        f"{NEW_ID}, 3, 'n'",
    ),
    "new column first": Change(
        ("alter table {t} add column (new decimal(9, 2) first)",),
        "id, x, new",
        f"{NEW_ID}, 3, 1.25",
    ),
    "new column inside a struct": Change(
        ("alter table {t} add column (st.new array<int> after a)",),
        "id, x, st",
        f"{NEW_ID}, 3, named_struct('a', 1, 'new', array(5), 'b', 'w')",
    ),
    "new struct": Change(
        ("alter table {t} add column (new struct<k: int, l: map<string, int>>)",),
        "id, x, new",
        f"{NEW_ID}, 3, named_struct('k', 1, 'l', map('m', 2))",
    ),
    "evolution by an insert": Change(("merge schema",), "id, x, new", f"{NEW_ID}, 3, 4"),
    "properties": Change(
        (
            "alter table {t} set tblproperties ('team' = 'we', 'liquidlog.curve' = 'kd')",
            "alter table {t} set tblproperties ('delta.appendOnly' = 'true')",
            "alter table {t} set tblproperties ('delta.checkpoint.writeStatsAsStruct' = 'true')",
            "alter table {t} unset tblproperties ('delta.logRetentionDuration')",
        )
    ),
    "comments": Change(
        (
            "comment on table {t} is 'all of it'",
            "alter table {t} alter column s comment 'words'",
            "alter table {t} alter column st.a comment 'inside'",
        )
    ),
    "constraint": Change(("alter table {t} add constraint young check (id < 5000)",)),
    "constraint gone": Change(("alter table {t} drop constraint old",), values=f"{NEW_ID}, -3"),
    "nullable": Change(("alter table {t} alter column id drop not null",), values="null, 3"),
    "change data feed": Change(
        ("alter table {t} set tblproperties ('delta.enableChangeDataFeed' = 'true')",)
    ),
    "deletion vectors": Change(
        ("alter table {t} set tblproperties ('delta.enableDeletionVectors' = 'true')",)
    ),
    "type widening": Change(
        ("alter table {t} set tblproperties ('delta.enableTypeWidening' = 'true')",),
        is_for_delta_rs=False,
    ),
    "in-commit timestamps": Change(
        ("alter table {t} set tblproperties ('delta.enableInCommitTimestamps' = 'true')",)
    ),
    "v2 checkpoints": Change(
        ("alter table {t} set tblproperties ('delta.checkpointPolicy' = 'v2')",)
    ),
    "defaults": Change(
        (
            "alter table {t} set tblproperties ('delta.feature.allowColumnDefaults' = 'supported')",
            "alter table {t} alter column s set default 'nothing'",
        ),
        "id, x, s",
        f"{NEW_ID}, 3, default",
    ),
}
"""Changes that rewrites outlast."""


def read(spark: Any, uri: str) -> Rows:
    found = spark.sql(f"select * from delta.`{uri}`").collect()
    return sorted((row.asDict(recursive=True) for row in found), key=repr)


def read_by_delta_rs(uri: str) -> Rows:
    return sorted(pa.table(DeltaTable(uri).scan().read_all()).to_pylist(), key=repr)


def plain(rows: Rows) -> Rows:
    """Return rows as Arrow has them: maps are lists of pairs."""
    for row in rows:
        new = row.get("new")
        if isinstance(new, dict):
            row["new"] = {**new, "l": list(new["l"].items())}
    return sorted(rows, key=repr)


def change(spark: Any, uri: str, statements: tuple[str, ...]) -> None:
    for statement in statements:
        if statement == "merge schema":
            more = spark.sql("select 900L as id, 2 as x, 5 as new")
            writer = more.write.format("delta").mode("append").option("mergeSchema", "true")
            writer.save(uri)
        else:
            spark.sql(statement.format(t=f"delta.`{uri}`"))


@pytest.mark.parametrize("mode", ["none", "name", "id"])
@pytest.mark.parametrize("kind", OUTLASTED)
def test_a_rewrite_outlasts_what_the_engine_changed(
    spark: Any, template: Callable[[str], Path], tmp_path: Path, kind: str, mode: str
) -> None:
    uri = str(shutil.copytree(template(mode), tmp_path / "t"))
    table = Table.open(uri)
    plan = table.plan()
    result = execute(plan)
    change(spark, uri, OUTLASTED[kind].sql)
    before = read(spark, uri)
    assert len(before) == FILES * ROWS + (kind == "evolution by an insert")
    report = table.commit(plan, result)
    assert len(report.versions) == 1
    assert read(spark, uri) == before
    words = OUTLASTED[kind]
    assert not words.is_for_delta_rs or read_by_delta_rs(uri) == plain(read(spark, uri))
    spark.sql(f"insert into delta.`{uri}` ({words.columns}) values ({words.values})")
    after = read(spark, uri)
    assert len(after) == len(before) + 1
    spark.sql(f"optimize delta.`{uri}`").collect()
    assert read(spark, uri) == after
    assert not words.is_for_delta_rs or read_by_delta_rs(uri) == plain(read(spark, uri))
    again = Table.open(uri)
    replanned = again.plan(full=True)
    again.commit(replanned, execute(replanned))
    assert read(spark, uri) == after


def test_a_column_that_the_engine_brings_back_is_not_lost(spark: Any, tmp_path: Path) -> None:
    """RESTORE brings back a dropped column's values, which a plan in between did not read."""
    path = tmp_path / "t"
    create(spark, path, "name")
    uri = str(path)
    version = Table.open(uri).snapshot().version
    whole = read(spark, uri)
    spark.sql(f"alter table delta.`{uri}` drop column s")
    table = Table.open(uri)
    plan = table.plan()
    result = execute(plan)
    spark.sql(f"restore table delta.`{uri}` to version as of {version}")
    assert read(spark, uri) == whole
    with pytest.raises(CommitConflictError):
        table.commit(plan, result)
    assert read(spark, uri) == whole
