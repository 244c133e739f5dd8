import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from liquidlog.errors import CorruptLogError, VersionNotFoundError
from liquidlog.log.checkpoints import implausible
from liquidlog.log.history import read_history
from liquidlog.log.loader import (
    LogSegment,
    candidate_segments,
    list_log,
    list_recent_log,
    load_snapshot,
    open_store,
)
from liquidlog.spec.paths import LAST_CHECKPOINT, commit_name
from liquidlog.storage.files import open_input
from liquidlog.table import Table
from support.memory_store import MemoryStore
from support.repository import ROOT


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
def test_actions_are_found_in_every_row_group(
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
