"""Delta Spark deletes, updates and merges between our plan and our put: exactly its rows stay.

Each pair of its changes is made once, on a copy of the table. Then it lands at different moments of
our rewrite of other copies. Afterwards three readers see the rows of the first copy, and the engine
goes on with the table.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from liquidlog.commit import OpenedTable
from liquidlog.errors import CommitConflictError
from liquidlog.log.loader import load_snapshot, open_store
from liquidlog.table import Table, as_table, system_clock
from support.arrow_executor import execute
from support.races import RacedStore
from support.spark_servers import with_settings
from support.table_rows import live_rows

_LOG = "_delta_log"


@dataclass(frozen=True)
class Recording:
    """A table, the copy in which an engine changed it, and the copy's versions after each step."""

    base: Path
    changed: Path
    versions: tuple[int, ...]

    @classmethod
    def of(cls, base: Path, directory: Path, steps: list[Callable[[str], Any]]) -> "Recording":
        """Copy a table and change the copy step by step; each gets its address."""
        changed = Path(shutil.copytree(base, directory))
        versions = [newest(changed)]
        for step in steps:
            step(str(changed))
            versions.append(newest(changed))
        return cls(base, changed, tuple(versions))

    def new_table(self, directory: Path) -> Path:
        """Return another copy of the table as it was."""
        return Path(shutil.copytree(self.base, directory))

    def land(self, step: int, table: Path) -> None:
        """Commit what the engine did in a step, counted from 0, to a table.

        Raises:
            FileExistsError: If one of the versions is taken.
        """
        for path in sorted(self.changed.rglob("*")):
            name = path.relative_to(self.changed)
            if path.is_file() and name.parts[0] != _LOG and not (table / name).exists():
                (table / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, table / name)
        for version in range(self.versions[step] + 1, self.versions[step + 1] + 1):
            commit = self.changed / _LOG / f"{version:020d}.json"
            os.link(commit, table / _LOG / commit.name)
            checksum = commit.with_suffix(".crc")
            if checksum.exists():
                shutil.copyfile(checksum, table / _LOG / checksum.name)


def newest(table: Path) -> int:
    """Return the newest version of a table on local disk."""
    names = (path.name for path in (table / _LOG).glob("*.json"))
    return max(int(name.removesuffix(".json")) for name in names if name[:20].isdigit())


pytestmark = pytest.mark.reference

FILES, ROWS = 16, 256
DISTINCT: Final = 250
"""The last six rows equal the first six, in another file."""
MAX_FILE: Final = "16KiB"

Rows = list[str]
"""Rows as texts that tell NaN, null and the zeros apart, sorted."""

COLUMNS: Final = (
    "k bigint, x int, s string, d double, b binary, n struct<a: int, l: array<string>>,"
    " v varchar(12), c char(4), w smallint"
)
VALUES: Final = f"""
    select k, if(k % 11 = 0, null, cast(k % 7 as int)), if(k % 5 = 0, null, concat('s', k % 13)),
        case k % 6 when 0 then double('nan') when 1 then -0.0D when 2 then 0.0D when 3 then null
            else k / 4 end,
        cast(concat('b', k) as binary),
        if(k % 9 = 0, null, named_struct('a', cast(k as int), 'l', array('q', null, s))),
        concat('v', k), concat('c', k % 10), cast(k as smallint)
    from (select id % {DISTINCT} as k, concat('s', id % {DISTINCT}) as s
        from range(0, {ROWS}, 1, {FILES}))"""

VECTORS: Final = {"delta.enableDeletionVectors": "true"}
COPIES: Final = {"delta.enableDeletionVectors": "false"}
TRACKED: Final = {"delta.enableRowTracking": "true"}


@dataclass(frozen=True)
class Kind:
    """A kind of table: its properties, and what is done to it before the plan."""

    properties: Mapping[str, str]
    then: tuple[str, ...] = ()
    is_for_delta_rs: bool = True

    @property
    def tracks_rows(self) -> bool:
        return TRACKED.items() <= self.properties.items()

    @property
    def feeds_changes(self) -> bool:
        return "delta.enableChangeDataFeed" in self.properties


KINDS: Final = {
    "vectors": Kind(VECTORS),
    "copies": Kind(COPIES),
    "vectors before": Kind(VECTORS, ("delete from {t} where k in (34, 72, 120)",)),
    "mapped by name": Kind({"delta.columnMapping.mode": "name", **VECTORS}),
    "mapped by id": Kind({"delta.columnMapping.mode": "id", **COPIES}),
    "tracked": Kind({**TRACKED, **VECTORS}),
    "tracked copies": Kind({**TRACKED, **COPIES}),
    "change feed": Kind({"delta.enableChangeDataFeed": "true", **VECTORS}),
    "widened": Kind(
        {"delta.enableTypeWidening": "true", **VECTORS},
        (
            "alter table {t} alter column w type int",
            "insert into {t} (k, x, w) values (70000, 3, 70000)",
        ),
        is_for_delta_rs=False,
    ),
}

DELETE: Final = "delete from {t} where k = 5 or k = 6"
MERGE: Final = """
    merge into {t} t using (select explode(array(70L, 71L, 9000L)) as k) u on t.k = u.k
    when matched and t.k = 70 then delete
    when matched then update set s = 'merged', d = -0.0D
    when not matched then insert (k, x, s) values (u.k, 1, 'new')"""
UPDATE: Final = "update {t} set x = 6, s = null where k in (33, 35)"


@dataclass(frozen=True)
class Change:
    """Two things that the engine does one after the other, and what becomes of our rewrite."""

    first: str
    second: str
    lands: bool | None = True
    """None if it may land or not."""
    kinds: tuple[str, ...] = field(default=tuple(KINDS))


CHANGES: Final = {
    "deletes": Change(DELETE, "delete from {t} where k = 33 or s = 's7' and k = 33"),
    "update and merge": Change(
        UPDATE,
        MERGE,
        kinds=("vectors", "copies", "mapped by id", "tracked", "tracked copies", "change feed"),
    ),
    "a whole file": Change(
        "delete from {t} where k between 96 and 111", DELETE, kinds=("vectors", "copies")
    ),
    "purge": Change(DELETE, "reorg table {t} apply (purge)", kinds=("tracked",)),
    "properties": Change(
        "alter table {t} set tblproperties ('team' = 'we')", UPDATE, kinds=("copies",)
    ),
    "new column": Change(
        "alter table {t} add column (new map<string, int>)",
        "update {t} set new = map('a', 1) where k = 34 or k = 37",
        kinds=("mapped by name", "tracked copies"),
    ),
    "vectors from now on": Change(
        "alter table {t} set tblproperties ('delta.enableDeletionVectors' = 'true')",
        DELETE,
        kinds=("copies",),
    ),
    "no vectors from now on": Change(
        DELETE,
        "alter table {t} set tblproperties ('delta.enableDeletionVectors' = 'false')",
        kinds=("tracked",),
    ),
    "there and back": Change(
        DELETE, "restore table {t} to version as of {base}", lands=None, kinds=("vectors",)
    ),
    "optimize": Change("optimize {t}", UPDATE, lands=False, kinds=("vectors",)),
    "overwritten by nothing": Change(
        "insert overwrite {t} select * from {t} where false",
        "insert into {t} (k, x) values (1, 1)",
        lands=False,
        kinds=("vectors",),
    ),
    "too many": Change(UPDATE, "delete from {t} where k % 3 = 0", lands=False, kinds=("vectors",)),
}
GOES_ON: Final = ("vectors", "copies", "mapped by name", "tracked")
"""Kinds of tables with which the engine goes on after our commit."""

CASES: Final = [(kind, change) for change, what in CHANGES.items() for kind in what.kinds]

MOMENTS: Final = {
    "before the run": ("run", "run"),
    "before the commit": ("run", "commit"),
    "before a put": ("commit", "put"),
    "before each put": ("put", "put"),
}
"""When the first and the second change land."""
LAST: Final = "before each put"

SETTINGS: Final = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.readSideCharPadding": "false",
    # On a few rows, compiling a query takes longer than running it.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}


@pytest.fixture(scope="module", autouse=True)
def settings(spark: Any) -> Iterator[None]:
    with with_settings(spark, SETTINGS):
        yield


@pytest.fixture(scope="module")
def base(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function from a kind to a table of it, made once."""
    made: dict[str, Path] = {}

    def table(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("base") / "t"
            create(spark, made[name], KINDS[name])
        return made[name]

    return table


def create(spark: Any, path: Path, kind: Kind) -> None:
    target = f"delta.`{path}`"
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in kind.properties.items())
    spark.sql(
        f"create table {target} ({COLUMNS}) using delta cluster by (x, k)"
        f" tblproperties ({properties})"
    )
    for statement in (f"insert into {{t}} {VALUES}", *kind.then):
        spark.sql(statement.format(t=target))


def text(value: Any) -> Any:
    """Return a value as all readers have it: structs as tuples, bytes as bytes."""
    if isinstance(value, dict):
        return tuple(map(text, value.values()))
    if isinstance(value, list):
        return [text(one) for one in value]
    return bytes(value) if isinstance(value, bytearray) else value


def read(spark: Any, uri: str, kind: Kind) -> Rows:
    """Return what Delta Spark reads; row ids and commit versions too, where rows have them."""
    ids = ", _metadata.row_id, _metadata.row_commit_version" if kind.tracks_rows else ""
    found = spark.sql(f"select *{ids} from delta.`{uri}`").collect()
    return sorted(
        repr([text(value) for value in row.asDict(recursive=True).values()]) for row in found
    )


def read_changes(spark: Any, uri: str, version: int) -> Rows:
    """Return the changes after a version, without their times."""
    changes = spark.read.format("delta").option("readChangeFeed", "true")
    found = changes.option("startingVersion", version + 1).load(uri).drop("_commit_timestamp")
    return sorted(
        repr([text(value) for value in row.asDict(recursive=True).values()])
        for row in found.collect()
    )


def texts(table: pa.Table) -> Rows:
    def plain(column: pa.ChunkedArray) -> list[Any]:
        if pa.types.is_map(column.type):
            return [
                None if one is None else (tuple(v for _, v in one)) for one in column.to_pylist()
            ]
        return [text(value) for value in column.to_pylist()]

    columns = [plain(column) for column in table.columns]
    return sorted(repr(list(row)) for row in zip(*columns, strict=True))


def without_ids(rows: Any, kind: Kind) -> Rows:
    """Return rows without the columns that only Delta Spark shows."""
    if not kind.tracks_rows:
        return list(rows)
    return sorted(row.rsplit(", ", 2)[0] + "]" for row in rows)


def read_by_us(uri: str) -> Rows:
    store = open_store(uri, None)
    return texts(live_rows(store, load_snapshot(store)))


def read_by_delta_rs(uri: str) -> Rows:
    return texts(pa.table(DeltaTable(uri).scan().read_all()))


def statement(spark: Any, sql: str, base: int) -> Callable[[str], Any]:
    return lambda uri: spark.sql(sql.format(t=f"delta.`{uri}`", base=base)).collect()


def rewrite(recording: Recording, target: Path, moments: tuple[str, str]) -> bool:
    """Rewrite a table while the recorded changes land; return whether the rewrite landed."""
    store = RacedStore(open_store(str(target), None))
    table = as_table(OpenedTable(store, system_clock()))
    landing = [partial(recording.land, step, target) for step in range(2)]
    plan = table.plan(max_file_size=MAX_FILE)
    (group,) = plan.groups
    assert group.expected_outputs > 2

    def land_before(moment: str) -> None:
        while landing and moments[2 - len(landing)] == moment:
            landing.pop(0)()

    land_before("run")
    result = execute(plan)
    land_before("commit")
    store.landing = list(landing)
    with suppress(CommitConflictError):
        report = table.commit(plan, result)
        assert not store.landing
        assert report.versions == (recording.versions[-1] + 1,)
        assert newest(target) == report.versions[0]
        return True
    # What stopped us before the last put may not have been all.
    for land in store.landing:
        land()
    assert newest(target) == recording.versions[-1]
    return False


@pytest.mark.parametrize(("kind", "change"), CASES)
def test_the_rows_are_those_without_a_rewrite(
    spark: Any, base: Callable[[str], Path], tmp_path: Path, kind: str, change: str
) -> None:
    what, of = CHANGES[change], KINDS[kind]
    version = newest(base(kind))
    steps = [statement(spark, sql, version) for sql in (what.first, what.second)]
    recording = Recording.of(base(kind), tmp_path / "changed", steps)
    expected = read(spark, str(recording.changed), of)
    plain = without_ids(expected, of)
    for moment, moments in MOMENTS.items():
        raced = recording.new_table(tmp_path / moment)
        landed = rewrite(recording, raced, moments)
        assert what.lands is None or landed == what.lands, moment
        assert read_by_us(str(raced)) == plain, moment
        if of.is_for_delta_rs:
            assert read_by_delta_rs(str(raced)) == plain, moment
    last = tmp_path / LAST
    if what.lands is not False:
        assert read(spark, str(last), of) == expected
    if of.feeds_changes:
        found = read_changes(spark, str(last), version)
        assert found == read_changes(spark, str(recording.changed), version)
    if change == "deletes" and kind in GOES_ON:
        the_engine_goes_on(spark, last, of, expected)


def the_engine_goes_on(spark: Any, path: Path, kind: Kind, rows: Rows) -> None:
    """Let the engine delete, optimize, restore and vacuum what we left."""
    uri, target, ours = str(path), f"delta.`{path}`", newest(path)
    spark.sql(f"delete from {target} where k in (0, 100, 101, 249)").collect()
    left = [row for row in rows if not row.startswith(("[0, ", "[100, ", "[101, ", "[249, "))]
    assert read(spark, uri, kind) == left
    spark.sql(f"optimize {target} full").collect()
    assert read(spark, uri, kind) == left
    table = Table.open(uri)
    plan = table.plan(full=True)
    table.commit(plan, execute(plan))
    assert read_by_us(uri) == without_ids(left, kind)
    spark.sql(f"restore table {target} to version as of {ours}").collect()
    assert without_ids(read(spark, uri, kind), kind) == without_ids(rows, kind)
    spark.sql(f"vacuum {target} retain 0 hours").collect()
    assert without_ids(read(spark, uri, kind), kind) == without_ids(rows, kind)
    assert read_by_us(uri) == without_ids(rows, kind)
