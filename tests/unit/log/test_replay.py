import io
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from liquidlog.commit import OpenedTable
from liquidlog.errors import CorruptLogError, LiquidlogError, VersionNotFoundError
from liquidlog.log.checkpoints import implausible, read_adds, read_statistics
from liquidlog.log.history import read_history
from liquidlog.log.loader import (
    LogSegment,
    advance,
    candidate_segments,
    list_log,
    list_recent_log,
    load_bounds,
    load_snapshot,
    open_store,
    parse_commit,
)
from liquidlog.snapshot import CheckpointFile, Snapshot, reconciled_files, replay_tail, tail_files
from liquidlog.spec.actions import (
    LAST_CHECKPOINT,
    AddFile,
    AnyAction,
    DeletionVector,
    DomainMetadata,
    LogFile,
    RemoveFile,
    canonical_path,
    commit_name,
)
from liquidlog.spec.schema import leaves
from liquidlog.storage.files import LocalTableStore, Source, open_input
from liquidlog.table import Table, as_table, system_clock
from support.arrow_executor import execute
from support.logs import added, commit_actions, write_actions
from support.memory_store import MemoryStore
from support.repository import ROOT
from support.table_rows import plain_bounds

VECTOR = DeletionVector(
    storage_type="u", path_or_inline_dv="abc", offset=1, size_in_bytes=2, cardinality=3
)


def add(path: str, **fields: object) -> AddFile:
    base = {"partition_values": {}, "size": 1, "modification_time": 1, "data_change": True}
    return AddFile(path=path, **{**base, **fields})  # type: ignore[arg-type]


def remove(path: str, vector: DeletionVector | None = None) -> RemoveFile:
    return RemoveFile(path=path, data_change=True, deletion_vector=vector)


def live(*commits: tuple[AnyAction, ...]) -> list[str]:
    newest_first = list(reversed(list(enumerate(commits))))
    return sorted(tail_files(replay_tail(newest_first))["path"].to_pylist())


WITH_VECTOR = add("a", deletion_vector=VECTOR)


@pytest.mark.parametrize(
    ("commits", "left"),
    [
        ([(add("a"), add("b")), (remove("a"),)], ["b"]),
        ([(add("a"),), (remove("a"),), (add("a"),)], ["a"]),
        ([(add("a"),), (remove("a"), add("a"))], ["a"]),
        ([(add("a"), remove("a"))], []),
        ([(WITH_VECTOR,), (remove("a"),)], ["a"]),
        ([(WITH_VECTOR,), (remove("a", VECTOR),)], []),
        ([(add("a%20b"),), (remove("a%20b"),)], []),
        ([(add("a%2Bb"),), (remove("a+b"),)], ["a%2Bb"]),
        ([(add("x//a"),), (remove("x/./a"),)], []),
        ([(add("file:/d/x%20y"),), (remove("file:///d/x%20y"),)], []),
        ([(add("/d/x"),), (remove("file:/d/x"),)], []),
    ],
    ids=str,
)
def test_files_live_until_removed(commits: list[tuple[AnyAction, ...]], left: list[str]) -> None:
    assert live(*commits) == left


def test_the_newest_domain_wins_and_a_tombstone_is_one() -> None:
    old = DomainMetadata(domain="d", configuration="old", removed=False)
    gone = DomainMetadata(domain="d", configuration="", removed=True)
    assert replay_tail([(2, (gone,)), (1, (old,))]).domains["d"].removed


@pytest.mark.parametrize("decided", ["a", "a%20b"])
def test_checkpoint_files_that_a_commit_decided_are_dropped(decided: str) -> None:
    checkpoint = tail_files(replay_tail([(1, (add("a"), add("a%20b"), add("c")))]))
    tail = replay_tail([(2, (remove(decided),))])
    kept = reconciled_files(tail, checkpoint, 0)["path"].to_pylist()
    assert kept == sorted({"a", "a%20b", "c"} - {decided})


def test_a_checkpoint_file_with_another_vector_survives() -> None:
    checkpoint = tail_files(replay_tail([(1, (add("a", deletion_vector=VECTOR),))]))
    other, same = (replay_tail([(2, (remove("a", vector),))]) for vector in (None, VECTOR))
    assert reconciled_files(other, checkpoint, 0).num_rows == 1
    assert reconciled_files(same, checkpoint, 0).num_rows == 0


# Adds of a checkpoint, read from its columns.


FIELDS = [("path",), ("stats_parsed", "minValues", "d"), ("stats_parsed", "minValues", "i")]


@pytest.mark.parametrize(("version", "known"), [("2.4.8", False), ("3.4.0", True)])
def test_bounds_that_other_calendars_moved_are_unknown(version: str, *, known: bool) -> None:
    days = pa.array([-150_000, 0], pa.int32()).cast(pa.date32())
    ends = pa.StructArray.from_arrays([days, pa.array([1, 2])], names=["d", "i"])
    statistics = pa.StructArray.from_arrays([ends], names=["minValues"])
    adds = pa.StructArray.from_arrays([pa.array(["a", "b"]), statistics], ["path", "stats_parsed"])
    written, footer = io.BytesIO(), {"org.apache.spark.version": version}
    pq.write_table(pa.table({"add": adds}).replace_schema_metadata(footer), written)

    def lows(found: pa.StructArray) -> list[Any]:
        return [row["stats_parsed"]["minValues"] for row in found.to_pylist()]

    (rows,) = read_adds(lambda: io.BytesIO(written.getvalue()), FIELDS, lows)
    assert [row["i"] for row in rows] == [1, 2]
    assert [row["d"] is not None for row in rows] == [known, True]


def test_a_checkpoint_that_was_replaced_while_it_was_read_is_refused() -> None:
    written = io.BytesIO()
    adds = pa.StructArray.from_arrays([pa.array(["a", "b"])], ["path"])
    pq.write_table(pa.table({"add": adds}), written)
    store: Any = SimpleNamespace(open_log=lambda _: io.BytesIO(written.getvalue()))
    assert read_statistics(store, CheckpointFile("c.parquet", 2), [("path",)], len) == [2]
    for count in (1, 3):
        with pytest.raises(CorruptLogError, match="replaced"):
            read_statistics(store, CheckpointFile("c.parquet", count), [("path",)], len)


# Files and tables whose paths hold what URIs encode, read and rewritten where they are.


SCHEMA = pa.schema([("a", pa.int64())])
ODD_NAMES = ["x%20y", "%2e%2e", "back\\slash #?ü+ tab\tnew\nline p%"]


def _clone(directory: Path, spelled: list[str], removed: str | None = None) -> Table:
    """A table whose files have these absolute paths, and that perhaps removes one of them."""
    table = Table.create(str(directory), schema=SCHEMA, cluster_by=["a"])
    for path in spelled:
        commit_actions(directory, added(path, 1))
    if removed is not None:
        remove = {"path": removed, "deletionTimestamp": 1, "dataChange": True}
        commit_actions(directory, {"remove": remove})
    return table


def _file(path: Path, first: int) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"a": range(first, first + 100)}, schema=SCHEMA), path)
    return path.stat().st_size


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_clone_is_rewritten_from_where_its_log_says(tmp_path: Path, name: str) -> None:
    files = [tmp_path / name / "f1.parquet", tmp_path / name / "f2.parquet"]
    for number, file in enumerate(files):
        _file(file, number * 100)
    decoy = tmp_path / "x y" / "f1.parquet"
    _file(decoy, 5000)
    table = _clone(tmp_path / "t", [f"file:{quote(str(file))}" for file in files])
    for number, file in enumerate(files, start=1):
        commit = tmp_path / "t" / "_delta_log" / commit_name(number)
        size = f'"size": {file.stat().st_size},'
        commit.write_text(commit.read_text().replace('"size": 1,', size))
    plan = table.plan()
    assert plan.groups[0].inputs.columns["path"].to_pylist() == [str(file) for file in files]
    table.commit(plan, execute(plan))
    found = [
        pq.read_table(tmp_path / "t" / path) for path in table.snapshot().files["path"].to_pylist()
    ]
    assert sorted(pa.concat_tables(found)["a"].to_pylist()) == list(range(200))


def test_a_file_on_another_host_is_not_opened(tmp_path: Path) -> None:
    table = _clone(tmp_path / "t", ["file://host/x.parquet", "file://host/y.parquet"])
    plan = table.plan()
    with pytest.raises(LiquidlogError):
        execute(plan)


def test_a_file_named_by_its_name_and_by_its_address_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "t"
    table = _clone(directory, ["a.parquet", f"{directory}/a.parquet"])
    with pytest.raises(CorruptLogError) as caught:
        table.snapshot()
    assert caught.value.path == f"_delta_log/{0:020d}.json"
    other = _clone(tmp_path / "u", ["a.parquet"], f"{tmp_path}/u/a.parquet")
    assert other.snapshot().files["path"].to_pylist() == ["a.parquet"]


def test_delta_rs_is_asked_about_the_table_itself(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "sub" / "x%20y"), schema=SCHEMA, cluster_by=["a"])
    table.append(pa.table({"a": [1]}, schema=SCHEMA))
    table.append(pa.table({"a": [2]}, schema=SCHEMA))
    # What delta-rs would read if it decoded the path: another table.
    decoy = tmp_path / "sub" / "x y"
    shutil.copytree(table.uri, decoy)
    plan = table.plan()
    assert table.commit(plan, execute(plan)).versions == (3,)


def test_engines_that_spell_a_remove_in_their_own_way_stop_a_rewrite(tmp_path: Path) -> None:
    """The reference engine finds `file:///x` in a removal of `file:/x`, or not, by its hash."""
    size = _file(tmp_path / "ext" / "x.parquet", 0)
    directory = tmp_path / "t"
    uri = f"{tmp_path}/ext/x.parquet"
    table = _clone(directory, [f"file:{uri}"], f"file://{uri}")
    assert size
    assert table.snapshot().files.num_rows == 0
    table.append(pa.table({"a": [1]}, schema=SCHEMA))
    table.append(pa.table({"a": [2]}, schema=SCHEMA))
    plan = table.plan()
    with pytest.raises(CorruptLogError):
        table.commit(plan, execute(plan))


# The next version costs its commits: nothing that was read before is read again.


LOGS = ROOT / "fixtures" / "logs"
CASES = ["05_alter_columns", "12_dv_stable_becomes_partial", "17_checkpoint_single", "34_restore"]


class CountingStore(LocalTableStore):
    """Remembers what was read of the log; `hide_after` hides newer commits."""

    def __init__(self, root: Path, hide_after: int | None = None) -> None:
        super().__init__(root)
        self.read: list[str] = []
        self.hide_after = hide_after

    def list_log(self, first_version: int = 0) -> tuple[LogFile, ...]:
        hidden = self.hide_after
        return tuple(
            file
            for file in super().list_log(first_version) or ()
            if hidden is None or file.version <= hidden
        )

    def read_logs(self, names: Sequence[str]) -> tuple[bytes | None, ...]:
        return tuple(self.read_log(name) for name in names)

    def read_log(self, name: str) -> bytes | None:
        self.read.append(name)
        return super().read_log(name)

    def open_log(self, name: str) -> Source:
        self.read.append(name)
        return super().open_log(name)


def table_at(path: Path, clustered_by: tuple[str, ...] = ("x",)) -> Table:
    schema = pa.schema([("x", pa.int64())])
    return Table.create(str(path), schema=schema, cluster_by=clustered_by)


def some_rows(number: int) -> pa.Table:
    return pa.table({"x": pa.array([number, number + 1], pa.int64())})


def content(snapshot: Snapshot, store: LocalTableStore) -> Any:
    bounds = load_bounds(store, snapshot, list(leaves(snapshot.schema))[:2])
    return (
        snapshot.version,
        snapshot.timestamp_ms,
        snapshot.protocol,
        snapshot.metadata,
        snapshot.domains,
        snapshot.transactions,
        # The row of the statistics and the adding commit depend on the checkpoint used.
        snapshot.files.drop_columns(["statistics_row", "version"]).to_pylist(),
        repr(plain_bounds(bounds)),
    )


@pytest.mark.parametrize("case", CASES)
def test_versions_reached_commit_by_commit_are_those_loaded_whole(case: str) -> None:
    root = LOGS / case / "table"
    newest = Table.open(str(root)).snapshot().version
    files = LocalTableStore(root).list_log() or ()
    start = max((f.version for f in files if "checkpoint" in f.name), default=0)
    start = min(start, newest)
    store = CountingStore(root, hide_after=start)
    snapshot = load_snapshot(store)
    for version in range(start + 1, newest + 1):
        store.hide_after = version
        snapshot, commits = advance(store, snapshot)
        assert [commit.version for commit in commits] == [version]
        assert content(snapshot, store) == content(load_snapshot(store), store)


def test_only_new_commits_are_read(tmp_path: Path) -> None:
    other = table_at(tmp_path)
    other.append(some_rows(1))
    store = CountingStore(tmp_path)
    table = as_table(OpenedTable(store, system_clock()))
    assert table.snapshot().version == 1
    assert store.read == ["_last_checkpoint", commit_name(1), commit_name(0)]
    store.read.clear()
    assert table.snapshot().version == 1
    assert store.read == []
    other.append(some_rows(2))
    assert table.snapshot().files.num_rows == 2
    assert store.read == [commit_name(2)]


def replaced(path: Path) -> None:
    for file in (path / "_delta_log").iterdir():
        file.unlink()
    table_at(path, ())
    Table.open(str(path)).append(some_rows(5))


def shortened(path: Path) -> None:
    (path / "_delta_log" / commit_name(2)).unlink()


@pytest.mark.parametrize("change", [replaced, shortened])
def test_another_log_is_loaded_anew(change: Callable[[Path], None], tmp_path: Path) -> None:
    table = table_at(tmp_path)
    table.append(some_rows(1))
    table.append(some_rows(2))
    assert table.snapshot().version == 2
    change(tmp_path)
    fresh = Table.open(str(tmp_path)).snapshot()
    assert table.snapshot().metadata == fresh.metadata
    assert table.snapshot().files.equals(fresh.files)


@pytest.mark.parametrize("odd", ["a%20b.parquet", "./c.parquet", "s3://bucket/d.parquet"])
def test_paths_are_known_to_be_plain_only_while_all_are(tmp_path: Path, odd: str) -> None:
    table = table_at(tmp_path / "t")
    store = LocalTableStore(tmp_path / "t")
    snapshot = load_snapshot(store)
    for version, paths in enumerate((["a.parquet"], ["b.parquet", odd], ["e.parquet"]), start=1):
        write_actions(tmp_path / "t", version, *(added(path, 1) for path in paths))
        snapshot, _ = advance(store, snapshot)
        assert snapshot.paths().equals(load_snapshot(store).paths())
        assert (snapshot.plain_files is snapshot.files) == (version == 1)
    assert canonical_path(odd) in table.snapshot().paths().to_pylist()


def test_one_file_under_two_names_is_found_in_a_later_commit(tmp_path: Path) -> None:
    table_at(tmp_path / "t")
    store = LocalTableStore(tmp_path / "t")
    snapshot = load_snapshot(store)
    write_actions(tmp_path / "t", 1, added("a+b.parquet", 1))
    snapshot, _ = advance(store, snapshot)
    write_actions(tmp_path / "t", 2, added("a%2Bb.parquet", 1))
    for load in (lambda: advance(store, snapshot), lambda: load_snapshot(store)):
        with pytest.raises(CorruptLogError):
            load()


def checkpoint_name(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def part_name(version: int, part: int, parts: int) -> str:
    return f"{version:020d}.checkpoint.{part:010d}.{parts:010d}.parquet"


def segments(*names: str, version: int | None = None) -> tuple[LogSegment, ...]:
    store = MemoryStore(log=dict.fromkeys(names, b""))
    return candidate_segments(list_log(store), version)


def shape(segment: LogSegment) -> tuple[int | None, list[int]]:
    start = None if segment.checkpoint is None else segment.checkpoint.version
    return start, [commit.version for commit in segment.commits]


def test_the_newest_checkpoint_comes_first_and_older_ways_follow() -> None:
    names = [*(commit_name(v) for v in range(5)), checkpoint_name(1), checkpoint_name(3)]
    assert [shape(s) for s in segments(*names)] == [
        (3, [4]),
        (1, [2, 3, 4]),
        (None, [0, 1, 2, 3, 4]),
    ]


@pytest.mark.parametrize("missing", [0, 2, 3])
def test_a_gap_is_an_error_that_names_it(missing: int) -> None:
    names = [commit_name(v) for v in range(5) if v != missing]
    with pytest.raises(CorruptLogError) as error:
        segments(*names)
    assert str(missing) in error.value.detail


def test_a_version_beyond_the_log_is_not_found() -> None:
    with pytest.raises(VersionNotFoundError) as error:
        segments(commit_name(0), version=1)
    assert error.value.version == 1


def test_a_version_whose_commits_are_cleaned_up_is_not_found() -> None:
    with pytest.raises(VersionNotFoundError):
        segments(commit_name(4), checkpoint_name(3), version=2)


def test_a_multi_part_checkpoint_counts_only_with_all_its_parts() -> None:
    commits = [commit_name(v) for v in range(5)]
    whole = [part_name(3, number, 2) for number in (1, 2)]
    (found,) = segments(*whole, commits[4])
    assert shape(found) == (3, [4])
    assert found.checkpoint is not None
    assert found.checkpoint.names == tuple(whole)
    assert [shape(s) for s in segments(whole[1], *commits)] == [(None, [0, 1, 2, 3, 4])]
    for parts in ([whole[1]], [whole[0], part_name(3, 2, 3)]):
        with pytest.raises(CorruptLogError):
            segments(*parts, commits[4])


# Rare actions of a checkpoint are found in whatever row group they are.


TABLE = ROOT / "fixtures/logs/17_checkpoint_single/table"


@pytest.mark.parametrize(("rows_in_a_group", "statistics"), [(1, True), (3, False), (1000, False)])
def test_actions_are_in_any_row_group(
    tmp_path: Path, rows_in_a_group: int, *, statistics: bool
) -> None:
    checkpoint = max(TABLE.rglob("*.checkpoint.parquet"))
    log = tmp_path / "_delta_log"
    log.mkdir()
    content = pq.read_table(checkpoint)
    pq.write_table(
        content.take(pa.array(range(len(content) - 1, -1, -1))),
        log / checkpoint.name,
        row_group_size=rows_in_a_group,
        write_statistics=statistics,
    )
    version = int(checkpoint.name.split(".")[0])
    expected = load_snapshot(open_store(str(TABLE)), version)
    found = load_snapshot(open_store(str(tmp_path)), version)
    assert (found.protocol, found.metadata) == (expected.protocol, expected.metadata)
    assert (found.domains, found.transactions) == (expected.domains, expected.transactions)
    assert found.domains
    assert found.files["path"].equals(expected.files["path"])


# Checkpoints that are small on disk and enormous in memory.


GIGABYTE = 1 << 30


def indices(rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int8(), rows, [None, pa.py_buffer(bytes(rows))])


def adds(paths: pa.Array) -> pa.Table:
    return pa.table({"add": pa.StructArray.from_arrays([paths], names=["path"])})


def write(log: Path, table: pa.Table, **options: object) -> Path:
    log.mkdir(parents=True)
    path = log / "00000000000000000001.checkpoint.parquet"
    pq.write_table(table, path, compression="zstd", write_statistics=False, **options)
    return path


def one_value(value: str, rows: int) -> pa.Table:
    return adds(pa.DictionaryArray.from_arrays(indices(rows), [value]))


def tags_of_one_text() -> pa.StructArray:
    values = pa.DictionaryArray.from_arrays(indices(50_000), ["x" * 1_000_000])
    keys = pa.array([str(number) for number in range(50_000)])
    tags = pa.MapArray.from_arrays(pa.array(range(50_001), pa.int32()), keys, values)
    return pa.StructArray.from_arrays([tags], names=["tags"])


BOMBS = {
    "rows": lambda log: write(log, one_value("x", 5_000_000)),
    "repeated text": lambda log: write(log, one_value("x" * 1_000_000, 60_000)),
    "page": lambda log: write(log, adds(pa.array(["x" * 100_000_000])), use_dictionary=False),
    "repeated text in a map": lambda log: write(log, pa.table({"add": tags_of_one_text()})),
    "growing encoding": lambda log: write(
        log,
        adds(pa.array(["x" * 300_000 + str(number) for number in range(1_000)])),
        use_dictionary=False,
        column_encoding="DELTA_BYTE_ARRAY",
    ),
}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_refused_before_it_is_decoded(kind: str, tmp_path: Path) -> None:
    path = BOMBS[kind](tmp_path / "_delta_log")
    assert path.stat().st_size < 1 << 20
    assert implausible(lambda: open_input(str(path))) is not None
    program = (
        "import resource, sys; from liquidlog.table import Table;"
        "from liquidlog.errors import CorruptLogError\n"
        f"resource.setrlimit(resource.RLIMIT_DATA, ({2 * GIGABYTE}, {2 * GIGABYTE}))\n"
        "try: Table.open(sys.argv[1]).files()\n"
        "except CorruptLogError as error: print(error.detail)\n"
        "print(next(s for s in open('/proc/self/status') if 'VmHWM' in s).split()[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    detail, kilobytes = done.stdout.splitlines()
    assert "plausible" in detail
    assert int(kilobytes) < GIGABYTE >> 10


def test_a_checkpoint_of_many_files_of_few_cubes_is_plausible(tmp_path: Path) -> None:
    rows = 200_000
    keys = pa.array(["ZCUBE_ID"] * rows)
    cubes = pa.DictionaryArray.from_arrays(indices(rows), ["0b4f9e4c-8a2e-4b29-ae07-e6a3ad1f2a1d"])
    tags = pa.MapArray.from_arrays(pa.array(range(rows + 1), pa.int32()), keys, cubes)
    paths = pa.array([f"part-{number:05d}.parquet" for number in range(rows)])
    add = pa.StructArray.from_arrays([paths, tags], names=["path", "tags"])
    path = write(tmp_path / "_delta_log", pa.table({"add": add}))
    assert implausible(lambda: open_input(str(path))) is None


def test_a_table_of_many_files_opens_from_a_checkpoint_of_delta_rs_alone(tmp_path: Path) -> None:
    # delta-rs gives `remove` a path that is required; where nothing was removed the column has no
    # dictionary, and from some hundred files on the lengths of texts are measured.
    schema = pa.schema([("x", pa.int64())])
    table = Table.create(str(tmp_path / "t"), schema=schema, cluster_by=["x"])
    log = tmp_path / "t" / "_delta_log"
    add = (
        '{{"add":{{"path":"{}","partitionValues":{{}},"size":1,"modificationTime":1,'
        '"dataChange":true,"stats":"{}"}}}}\n'
    )
    stats = [f'{{\\"numRecords\\":{number}{" " * 200}}}' for number in range(1_000)]
    lines = [add.format(f"{number}.parquet", text) for number, text in enumerate(stats)]
    (log / f"{1:020d}.json").write_text('{"commitInfo":{}}\n' + "".join(lines))
    assert table.snapshot().files.num_rows == 1_000
    DeltaTable(str(tmp_path / "t")).create_checkpoint()
    (log / f"{0:020d}.json").unlink()
    opened = Table.open(str(tmp_path / "t")).snapshot()
    assert (opened.version, opened.files.num_rows) == (1, 1_000)


def test_a_commit_of_absurd_size_is_refused_unread(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    with (log / "00000000000000000000.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptLogError):
        Table.open(str(tmp_path))


# JSON nested deeper than a stack, and text that is no UTF-8, wherever a log holds a document.


DEEP = "[" * 50_000
TEXTS = {
    "deep": DEEP.encode(),
    "deep in an unknown field": b'{"x":%s' % DEEP.encode(),
    "not UTF-8": b'{"\xff":1}',
    "not JSON": b"?",
    "another document": b'["version"]',
    "a version that is none": b'{"version":-1}',
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_hint_that_cannot_be_read_is_no_hint(text: str) -> None:
    store = MemoryStore(log={commit_name(0): b"{}", LAST_CHECKPOINT: TEXTS[text]})
    assert list_recent_log(store).newest == 0


@pytest.mark.parametrize("text", ["deep", "deep in an unknown field", "not UTF-8"])
def test_a_commit_info_that_cannot_be_read_is_refused_with_its_line(text: str) -> None:
    line = b'{"commitInfo":{"x":%s' % TEXTS[text]
    with pytest.raises(CorruptLogError) as refusal:
        read_history(MemoryStore(log={commit_name(0): b"{}\n" + line}))
    assert refusal.value.line == 2


def test_only_a_wrong_in_commit_timestamp_is_refused_in_a_commit_info() -> None:
    line = b'{"commitInfo":{"%s":"soon","operation":"WRITE"}}'
    info = parse_commit(line % b"timestamp", 0).info
    assert (info.timestamp, info.operation) == (None, "WRITE")
    with pytest.raises(CorruptLogError) as refusal:
        parse_commit(line % b"inCommitTimestamp", 0)
    assert refusal.value.line == 1
