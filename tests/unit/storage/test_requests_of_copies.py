"""How many requests a compaction costs whose row groups are copied, input by input."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from liquidlog.data.spans import READ_BYTES
from liquidlog.plan import CopiedRowGroups, InputFile, RewriteMode, RewrittenGroup
from liquidlog.rewriting import copying
from liquidlog.rewriting.groups import GroupRun
from liquidlog.rewriting.sink import TaskFacts
from liquidlog.rewriting.whole import GroupTask
from liquidlog.storage.files import create
from liquidlog.storage.options import StorageOptions
from support.emulators import Emulator
from support.plans import make_plan, schema_json_of
from support.tasks import compacted, facts_of, numbered

COLUMNS = {"a": "long", "s": "string", "d": "double"}


@pytest.fixture(autouse=True)
def every_row_group_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "SMALL_BYTES", 1)


def rows(count: int, *, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    numbers = random.integers(0, 1 << 62, count)
    texts = [f"{number % 7}" for number in range(count)]
    return pa.table({"a": numbers, "s": texts, "d": pa.nulls(count, pa.float64())})


def uploaded(s3: Emulator, here: Path, counts: list[int]) -> GroupRun:
    """Put one input of so many rows each into a new table; return the compaction of them."""
    options, address = StorageOptions.of(s3.options), s3.new_table()
    inputs = []
    for number, count in enumerate(counts):
        path, name = here / "input", f"input-{number}.parquet"
        settings = {"compression": "zstd", "write_page_index": True, "write_page_checksum": True}
        pq.write_table(rows(count, seed=number), path, row_group_size=50_000, **settings)
        output = create(f"{address}/{name}", options)
        output.write(path.read_bytes())
        output.finish()
        inputs.append(InputFile(path=name, size_bytes=path.stat().st_size))
    plan = make_plan(
        here, schema_json_of(COLUMNS), [(tuple(inputs), 1)], mode=RewriteMode.COMPACTION
    )
    plan = structs.replace(plan, table_uri=address)
    run = GroupRun(plan=plan, group=plan.groups[0], storage=options)
    run.run.begin()
    s3.proxy.clear()
    return run


def copied(run: GroupRun, facts: TaskFacts) -> int:
    group = run.outcome(facts, seconds=1.0)
    assert isinstance(group, RewrittenGroup), group
    assert isinstance(group.copied, CopiedRowGroups)
    return group.copied.rows


def by_tasks(run: GroupRun) -> TaskFacts:
    return compacted(run.work())


def by_one_task(run: GroupRun) -> TaskFacts:
    return facts_of(list(GroupTask(work=run.work(), sample_rows=10)(numbered(0))))


@pytest.mark.parametrize("way", [by_tasks, by_one_task])
def test_a_small_input_is_asked_for_once_to_survey_it_and_once_to_copy_it(
    s3: Emulator, tmp_path: Path, way: object
) -> None:
    run = uploaded(s3, tmp_path, [120_000] * 3)
    assert all(1 << 20 < size < 4 << 20 for size in run.work().sizes_bytes)
    assert copied(run, by_tasks(run) if way is by_tasks else by_one_task(run)) == 360_000
    for number in range(3):
        found = [r.method for r in s3.proxy.requests if f"input-{number}" in r.target]
        assert found == ["GET", "GET"]


def test_a_large_input_is_read_in_ranges_of_bounded_size(s3: Emulator, tmp_path: Path) -> None:
    run = uploaded(s3, tmp_path, [1_500_000, 1_000])
    (size_bytes, _) = run.work().sizes_bytes
    assert size_bytes > READ_BYTES
    assert copied(run, compacted(run.work())) == 1_501_000
    found = [r.method for r in s3.proxy.requests if "input-0" in r.target]
    # Its end twice, and its 30 row groups; a range ends where a column chunk does.
    assert found == ["GET"] * len(found)
    assert len(found) <= 2 + -(-size_bytes // READ_BYTES) + 1
