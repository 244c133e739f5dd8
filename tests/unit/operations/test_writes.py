"""Writes are planned and committed; what changes meanwhile, and results that prove nothing."""

import datetime as dt
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from msgspec import structs

from liquidlog import commit
from liquidlog.commit import Clock, OpenedTable
from liquidlog.data.runs import runs_in
from liquidlog.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    DataFileError,
    ResultMismatchError,
    UnsupportedFeatureError,
    UsageError,
)
from liquidlog.log.loader import open_store
from liquidlog.operations.writes import append
from liquidlog.plan import WriteResult
from liquidlog.rewriting import outputs
from liquidlog.spec.actions import Metadata
from liquidlog.spec.arrow import delta_schema
from liquidlog.storage.files import are_apart
from liquidlog.table import Table, system_clock
from support.arrow_executor import write

SCHEMA = pa.schema([("x", pa.int64()), ("s", pa.string())])
DELTA = delta_schema(SCHEMA)


def rows(*values: int | None) -> pa.Table:
    return pa.table([list(values), [f"s{value}" for value in values]], schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "t", schema=SCHEMA, cluster_by=["x"])
    for first in (0, 10, 20):
        made.append(rows(*range(first, first + 10)))
    return made


def values(table: Table) -> list[int]:
    paths = [Path(table.uri) / path for path in table.files()["path"].to_pylist()]
    return sorted(x for path in paths for x in pq.ParquetFile(path).read()["x"].to_pylist())


def test_files_have_the_tags_of_one_cube(table: Table) -> None:
    plan = table.plan_write(DELTA)
    done = table.commit_write(plan, write(plan, rows(40, 41)))
    assert (done.version, done.files, done.rows) == (4, 1, 2)
    (cube,) = table.cubes().to_pylist()
    assert (cube["zcube_id"], cube["state"]) == (plan.zcube_id, "partial")
    assert table.history(1)[0]["isBlindAppend"] is False
    assert runs_in(table.uri) == ()


def test_rows_are_made_without_a_look_at_the_table_only_if_the_writer_says_so(table: Table) -> None:
    plan = table.plan_write(DELTA)
    table.commit_write(plan, write(plan, rows(40)), blind=True)
    assert table.history(1)[0]["isBlindAppend"] is True
    plan = table.plan_write(DELTA, where="x >= 40")
    table.commit_write(plan, write(plan, rows(41)), blind=True)
    assert table.history(1)[0]["isBlindAppend"] is False


@pytest.mark.parametrize(
    ("where", "removed", "rewritten"),
    [
        ("x >= 10 AND x < 20", 1, 0),
        ("x >= 15", 2, 1),
        ("x = 3", 1, 1),
        ("x > 99", 0, 0),
        ("true", 3, 0),
        ("x IS NOT NULL", 3, 0),
        ("length(s) = 2", 3, 3),
        ("NOT x IN (1, 2)", 3, 1),
    ],
)
def test_files_are_removed_whole_only_if_all_their_rows_match(
    table: Table, where: str, removed: int, rewritten: int
) -> None:
    plan = table.plan_write(DELTA, where=where)
    assert len(plan.removed) == removed
    assert len(plan.rewritten) >= rewritten
    assert {file.path for file in plan.rewritten} <= set(plan.removed)


def test_a_file_with_nulls_is_rewritten(table: Table) -> None:
    table.append(rows(100, None))
    assert len(table.plan_write(DELTA, where="x >= 100").rewritten) == 1
    assert len(table.plan_write(DELTA, where="x >= 100 OR x IS NULL").rewritten) == 1


@pytest.mark.parametrize(
    "where",
    [
        "x > 4 OR x = NULL",
        "x NOT BETWEEN 2 AND NULL",
        "x <> 5 OR x IN (NULL)",
        "x > 4 OR NULL",
        "x IN (0, 1, NULL)",
        "x + 1 > 0",
    ],
)
def test_files_of_which_a_condition_may_be_null_are_read(table: Table, where: str) -> None:
    first = next(file.path for file in table.plan_write(DELTA, where="x = 0").rewritten)
    assert first in {file.path for file in table.plan_write(DELTA, where=where).rewritten}


@pytest.mark.parametrize("where", ["d <= 10", "d >= 1", "d = 1 OR d <> 1", "d > 5"])
def test_files_that_may_hold_nan_are_read(tmp_path: Path, where: str) -> None:
    rows = pa.table({"d": [1.0, float("nan"), 2.0]})
    write_deltalake(tmp_path, rows)
    table = Table.open(tmp_path)
    schema = delta_schema(rows.schema)
    plan = table.plan_write(schema, cluster=False, where=where)
    assert (len(plan.removed), len(plan.rewritten)) == (1, 1)
    below = table.plan_write(schema, cluster=False, where="d BETWEEN 5 AND 9")
    assert below.removed == ()


def test_null_counts_of_elements_are_not_those_of_a_column(tmp_path: Path) -> None:
    rows = pa.table(
        {"value": [5, None], "m": pa.array([[("a", 1)]] * 2, pa.map_(pa.string(), pa.int64()))}
    )
    write_deltalake(tmp_path, rows)
    commit = tmp_path / "_delta_log" / f"{0:020}.json"
    # As delta-rs 0.22.3 and 1.1.4 write it.
    stated = commit.read_text().replace(r"{\"value\":1}", r"{\"value\":0,\"key\":0}")
    assert stated != commit.read_text()
    commit.write_text(stated)
    table = Table.open(tmp_path)
    assert table.scan("value IS NULL").files.num_rows == 1
    plan = table.plan_write(table.snapshot().schema, cluster=False, where="value > 0")
    assert len(plan.rewritten) == 1


@pytest.mark.parametrize(
    "where",
    [
        "rand() < 0.5",
        "x > 3 AND uuid() = 'a'",
        "input_file_name() = 'a'",
        "x IN (SELECT 1)",
        "monotonically_increasing_id() < 9",
    ],
)
def test_conditions_that_change_their_mind_are_refused(table: Table, where: str) -> None:
    with pytest.raises(UsageError, match="the same answer for a row each time"):
        table.plan_write(DELTA, where=where)


def test_the_current_time_is_a_constant_of_the_plan(tmp_path: Path) -> None:
    schema = pa.schema([("t", pa.timestamp("us", "UTC")), ("day", pa.date32())])
    made = Table.create(tmp_path / "t", schema=schema)
    for year in (1999, 2999):
        moment = dt.datetime(year, 1, 1, tzinfo=dt.UTC)
        made.append(pa.table([[moment], [moment.date()]], schema=schema))
    for where in ("t < current_timestamp()", "day < current_date - INTERVAL 1 DAY", "t < now()"):
        plan = made.plan_write(delta_schema(schema), cluster=False, where=where)
        assert (len(plan.removed), len(plan.rewritten)) == (1, 0)
        assert plan.where is not None
        assert "current" not in plan.where.lower()


def test_an_overwrite_removes_what_it_replaces(table: Table) -> None:
    plan = table.plan_write(DELTA, where="x >= 10")
    done = table.commit_write(plan, write(plan, rows(11)))
    assert (done.replaced_files, done.rows) == (2, 1)
    assert values(table) == [*range(10), 11]
    commit = table.history(1)[0]
    assert commit["isBlindAppend"] is False
    assert commit["operationParameters"]["predicate"] == "x >= 10"
    everything = table.plan_write(DELTA, where="true")
    table.commit_write(everything, write(everything, rows()))
    assert values(table) == []


@pytest.mark.parametrize("switch", ["delta.enableRowTracking", "delta.enableChangeDataFeed"])
def test_other_rows_are_not_moved_where_that_is_recorded(tmp_path: Path, switch: str) -> None:
    made = Table.create(tmp_path / "t", schema=SCHEMA, properties={switch: "true"})
    made.append(rows(*range(10)))
    with pytest.raises(UsageError, match="cannot be moved"):
        made.plan_write(DELTA, cluster=False, where="x >= 5")
    assert len(made.plan_write(DELTA, cluster=False, where="x >= 0").removed) == 1


def test_rows_that_come_meanwhile_are_a_conflict_if_they_may_match(table: Table) -> None:
    plan = table.plan_write(DELTA, where="x >= 10")
    result = write(plan, rows(11))
    table.append(rows(5))
    again = table.plan_write(DELTA, where="x >= 10")
    result_again = write(again, rows(12))
    table.append(rows(25))
    with pytest.raises(CommitConflictError, match="were added that may have rows"):
        table.commit_write(plan, result)
    with pytest.raises(CommitConflictError, match="were added that may have rows"):
        table.commit_write(again, result_again)
    assert runs_in(table.uri) == ()
    assert {path.name for path in Path(table.uri).glob("*.parquet")} == set(
        table.files()["path"].to_pylist()
    )
    plan = table.plan_write(DELTA, where="x >= 20")
    result = write(plan, rows(21))
    table.append(rows(5))
    assert table.commit_write(plan, result).version == 7


def test_files_that_went_meanwhile_are_a_conflict(table: Table) -> None:
    plan = table.plan_write(DELTA, where="x >= 10")
    result = write(plan, rows(11))
    other = table.plan_write(DELTA, where="x >= 20")
    table.commit_write(other, write(other, rows()))
    with pytest.raises(CommitConflictError, match="removed 1 input file"):
        table.commit_write(plan, result)


def test_an_append_outlasts_others_but_no_change_of_the_table(table: Table) -> None:
    plan, late = table.plan_write(DELTA), table.plan_write(DELTA)
    result, late_result = write(plan, rows(40)), write(late, rows(41))
    table.append(rows(50))
    assert table.commit_write(plan, result).version == 5
    table.set_properties({"delta.appendOnly": "true"})
    with pytest.raises(CommitConflictError, match="metadata"):
        table.commit_write(late, late_result)


def test_an_append_that_may_have_landed_stays(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise CommitStateUnknownError(4, "no answer")

    monkeypatch.setattr(commit, "put_commit", unknown)
    with pytest.raises(CommitStateUnknownError):
        table.append(rows(1))
    assert len([*Path(table.uri).glob("*.parquet")]) == 4


def test_all_of_an_appended_file_is_proved(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "_PROVED_BYTES", 64)
    assert table.append(rows(*range(10_000))).rows == 10_000


def test_a_transaction_lands_once(table: Table) -> None:
    for version, skipped in ((5, False), (5, True), (4, True), (6, False)):
        plan = table.plan_write(DELTA)
        done = table.commit_write(plan, write(plan, rows(version)), txn=("job", version))
        assert done.skipped is skipped
    assert table.opened.last_transaction("job") == 6
    assert table.opened.last_transaction("other") is None
    assert len(values(table)) == 32
    assert runs_in(table.uri) == ()


def test_columns_are_added_in_the_same_commit(table: Table) -> None:
    wider = pa.schema([*SCHEMA, ("day", pa.date32())])
    plan = table.plan_write(delta_schema(wider), merge_schema=True)
    more = rows(40).append_column("day", pa.array([1], pa.date32()))
    assert table.commit_write(plan, write(plan, more)).version == 4
    assert [field.name for field in table.snapshot().schema.fields] == ["x", "s", "day"]


@pytest.mark.parametrize(
    "lie",
    [
        {"rows_read": 9},
        {"checksum_read": "0" * 32},
        {"rows_read": 9, "rows_written": 9},
        {"write_id": "another"},
        {"run": "0123456789ab"},
    ],
    ids=str,
)
def test_a_result_that_proves_nothing_is_refused(table: Table, lie: dict[str, object]) -> None:
    plan = table.plan_write(DELTA)
    result: WriteResult = structs.replace(write(plan, rows(40)), **lie)
    with pytest.raises(ResultMismatchError):
        table.commit_write(plan, result)
    assert table.snapshot().version == 3


def test_files_without_values_of_their_partition_are_refused(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", schema=SCHEMA, partition_by=["s"])
    plan = table.plan_write(DELTA, cluster=False)
    with pytest.raises(ResultMismatchError, match="do not have the table's partition columns"):
        table.commit_write(plan, write(plan, rows(40)))
    assert table.snapshot().version == 0


def test_arguments_are_checked(table: Table) -> None:
    for wrong in ({"max_file_size": 0}, {"cluster": 1}, {"where": "x <"}, {"where": "y = 1"}):
        with pytest.raises(UsageError):
            table.plan_write(DELTA, **wrong)


# A Parquet file that somebody writes to while it is appended is refused, and nothing is left.


SOURCE_SCHEMA = pa.schema([("a", pa.int64())])


def _write(path: Path, first: int, row_group_size: int = 10) -> None:
    rows = pa.table({"a": range(first, first + 30)}, schema=SOURCE_SCHEMA)
    pq.write_table(
        rows, path, row_group_size=row_group_size, compression="none", use_dictionary=False
    )


def _in_place(path: Path) -> None:
    other = path.with_suffix(".other")
    _write(other, 1000)
    with path.open("r+b") as file:
        file.write(other.read_bytes())
    os.utime(path)


def _replaced(path: Path) -> None:
    other = path.with_suffix(".other")
    _write(other, 1000)
    other.replace(path)


CHANGES: dict[str, Callable[[Path], None]] = {
    "written in place": _in_place,
    "replaced": _replaced,
    "deleted": Path.unlink,
}


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path, change: str, groups: int) -> None:
    table = Table.create(str(tmp_path / "t"), schema=SOURCE_SCHEMA)
    source = tmp_path / "x.parquet"
    _write(source, 0, row_group_size=30 // groups)

    ids: list[str] = []

    def new_id() -> str:
        # The write has the first id, its run the second one, when sources are open.
        ids.append(f"id{len(ids)}")
        if len(ids) == len(("write", "run")):
            CHANGES[change](source)
        return ids[-1]

    clock = Clock(now_ms=lambda: 0, new_id=new_id)
    with pytest.raises(DataFileError):
        append(OpenedTable(open_store(table.uri), clock), [str(source)])
    assert table.snapshot().version == 0
    assert [file.name for file in (tmp_path / "t").iterdir()] == ["_delta_log"]


def test_a_file_that_changes_while_another_is_read_is_not_appended(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), schema=SOURCE_SCHEMA)
    source = tmp_path / "x.parquet"
    _write(source, 0)

    def batches() -> Iterator[pa.RecordBatch]:
        _in_place(source)
        yield pa.record_batch([pa.array([1])], schema=SOURCE_SCHEMA)

    second = pa.RecordBatchReader.from_batches(SOURCE_SCHEMA, batches())
    with pytest.raises(DataFileError):
        table.append([str(source), second])
    assert table.snapshot().version == 0
    assert [file.name for file in (tmp_path / "t").iterdir()] == ["_delta_log"]


def test_a_table_whose_text_lengths_cannot_be_read_is_refused(tmp_path: Path) -> None:
    Table.create(str(tmp_path / "t"), schema=pa.schema([("a", pa.string())]))
    commit = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    marked = '{\\\\"__CHAR_VARCHAR_TYPE_STRING\\\\":\\\\"char(\\\\"}'.replace("\\\\", "\\")
    text = commit.read_text().replace('\\"metadata\\":{}', f'\\"metadata\\":{marked}')
    commit.write_text(text)
    table = Table.open(str(tmp_path / "t"))
    assert isinstance(table.snapshot().metadata, Metadata)
    sources = [pa.table({"a": ["x"]})]
    with pytest.raises(UnsupportedFeatureError) as caught:
        append(OpenedTable(open_store(table.uri), system_clock()), sources)
    (feature,) = caught.value.features
    assert "column a" in feature


def test_an_append_of_files_is_blind_and_one_of_rows_if_said(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", schema=SOURCE_SCHEMA)
    _write(tmp_path / "f.parquet", 0)
    rows = pa.table({"a": [1]}, schema=SOURCE_SCHEMA)

    def logged(*sources: object, blind: bool | None = None) -> bool:
        table.append(list(sources), blind=blind)
        return bool(table.history(1)[0]["isBlindAppend"])

    assert logged(tmp_path / "f.parquet")
    assert not logged(tmp_path / "f.parquet", rows)
    assert not logged(rows)
    assert logged(rows, blind=True)
    assert not logged(tmp_path / "f.parquet", blind=False)
    (tmp_path / "link").symlink_to(tmp_path / "t")
    own = table.files()["path"][0].as_py()
    assert not logged(tmp_path / "link" / own)


def test_addresses_are_apart_only_if_that_is_certain() -> None:
    for one, other, apart in (
        ("s3a://lake/a/t", "s3://lake/a", False),
        ("s3a://lake/a/t/x.parquet", "s3://lake/a/u", True),
        ("s3://lake/at", "s3://lake/a", True),
        ("s3://other/a", "s3://lake/a", True),
        ("dbfs:/mnt/lake", "s3://lake/a", False),
        ("/mnt/lake/b", "s3://lake/a", False),
        ("abfss://c@one.dfs.core.windows.net/b", "az://c/a", False),
        ("file:/x/a", "/x/a b", True),
        ("file:/x", "/x/a", False),
    ):
        assert are_apart(one, other) is apart
        assert are_apart(other, one) is apart
