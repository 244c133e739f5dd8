"""Checkpoints that are small on disk and enormous in memory."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from liquidlog.errors import CorruptLogError
from liquidlog.log.checkpoints import implausible
from liquidlog.storage.files import open_input
from liquidlog.table import Table
from support.repository import ROOT

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


BOMBS = {
    "rows": lambda log: write(log, one_value("x", 5_000_000)),
    "repeated text": lambda log: write(log, one_value("x" * 1_000_000, 60_000)),
    "page": lambda log: write(log, adds(pa.array(["x" * 100_000_000])), use_dictionary=False),
    "repeated text in a map": lambda log: write(
        log,
        pa.table(
            {
                "add": pa.StructArray.from_arrays(
                    [
                        pa.MapArray.from_arrays(
                            pa.array(range(50_001), pa.int32()),
                            pa.array([str(number) for number in range(50_000)]),
                            pa.DictionaryArray.from_arrays(indices(50_000), ["x" * 1_000_000]),
                        )
                    ],
                    names=["tags"],
                )
            }
        ),
    ),
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


def test_every_recorded_checkpoint_is_plausible() -> None:
    recorded = [*(ROOT / "fixtures").rglob("*.checkpoint*.parquet")]
    assert len(recorded) > 20
    sound = [path for path in recorded if path.stat().st_size > 100]
    problems = {}
    for path in sound:
        try:
            problems[path.name] = implausible(partial(open_input, str(path)))
        except pa.ArrowException:
            continue
    assert set(problems.values()) == {None}


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
