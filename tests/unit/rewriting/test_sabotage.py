"""One bit changed, one row dropped, one row doubled, on any leg of the way: never proved."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from liquidlog.data.runs import Run
from liquidlog.data.writer import DataFileWriter
from liquidlog.plan import GroupFailure, RewrittenGroup
from liquidlog.rewriting import shuffle
from liquidlog.rewriting.groups import GroupRun, rewrite_alone
from liquidlog.rewriting.inputs import GroupWork
from liquidlog.rewriting.outputs import TaskFacts
from support.plans import make_plan, schema_json_of, write_inputs
from support.tasks import compacted, shuffled

COLUMNS = {"a": "long", "b": "string", "d": "double"}
ROWS = 3_000
Sabotage = Callable[[pa.Table], pa.Table]


def change_a_bit(table: pa.Table) -> pa.Table:
    values = table["d"].to_numpy().copy()
    values.view(np.int64)[len(values) // 2] ^= 1
    return table.set_column(2, "d", pa.array(values))


def change_a_letter(table: pa.Table) -> pa.Table:
    values = table["b"].to_pylist()
    values[0] = values[0][:-1] + chr(ord(values[0][-1]) ^ 1)
    return table.set_column(1, "b", pa.array(values))


def drop_a_row(table: pa.Table) -> pa.Table:
    return table.slice(1)


def double_a_row(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(len(table) - 1)])


def put_a_null(table: pa.Table) -> pa.Table:
    return table.set_column(0, "a", pa.array([None, *table["a"].to_pylist()[1:]], pa.int64()))


SABOTAGES = (change_a_bit, change_a_letter, drop_a_row, double_a_row, put_a_null)


@pytest.fixture
def run(tmp_path: Path) -> GroupRun:
    random = np.random.default_rng(2)
    table = pa.table(
        {
            "a": pa.array(random.integers(0, 50, ROWS)),
            "b": pa.array([f"name {number}" for number in random.integers(0, 400, ROWS)]),
            "d": pa.array(random.random(ROWS)),
        }
    )
    inputs = write_inputs(tmp_path, table, 3)
    plan = make_plan(tmp_path, schema_json_of(COLUMNS), [(inputs, 3)], columns=[("a",), ("b",)])
    run = GroupRun(plan=plan, group=plan.groups[0])
    Run(str(tmp_path), run.token).begin()
    return run


def by_shuffle(work: GroupWork) -> TaskFacts:
    return shuffled(work)


def by_two_steps(work: GroupWork) -> TaskFacts:
    return shuffled(work, in_two_steps=True, outputs_per_task=2)


def by_one_task(work: GroupWork) -> TaskFacts:
    return rewrite_alone((work, 500))


def by_compaction(work: GroupWork) -> TaskFacts:
    work = replace(work, curve=None, columns=())
    return compacted(work)


WAYS = (by_shuffle, by_two_steps, by_one_task, by_compaction)


def outcome(run: GroupRun, facts: TaskFacts) -> RewrittenGroup | GroupFailure:
    assert facts.failure is None
    return run.outcome(facts, seconds=1.0)


def refused(run: GroupRun, facts: TaskFacts) -> bool:
    found = outcome(run, facts)
    return isinstance(found, GroupFailure) and "rows changed on the way" in found.reason


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("read_back", [True, False])
def test_what_nobody_touched_is_proved(
    run: GroupRun, way: Callable[[GroupWork], TaskFacts], *, read_back: bool
) -> None:
    found = outcome(run, way(replace(run.work(), read_back=read_back)))
    assert isinstance(found, RewrittenGroup)
    assert found.rows_written == ROWS


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_what_is_written_wrongly_is_refused(
    run: GroupRun,
    way: Callable[[GroupWork], TaskFacts],
    sabotage: Sabotage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    once(monkeypatch, DataFileWriter, "write", lambda f: lambda s, table: f(s, sabotage(table)))
    assert refused(run, way(run.work()))


@pytest.mark.parametrize("read_back", [True, False])
@pytest.mark.parametrize("sabotage", SABOTAGES)
def test_what_arrives_wrongly_is_refused(
    run: GroupRun, sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch, *, read_back: bool
) -> None:
    def of(decode: Callable[[bytes], pa.Table]) -> Callable[[bytes], pa.Table]:
        def wrong(payload: bytes) -> pa.Table:
            table = decode(payload)
            rows = sabotage(table.select(list(COLUMNS)))
            keys = table.column(table.num_columns - 1)
            # A doubled row has the key of the row that it doubles.
            positions = np.minimum(np.arange(len(rows)) + (len(table) > len(rows)), len(table) - 1)
            return rows.append_column(table.schema.field(-1), keys.take(pa.array(positions)))

        return wrong

    once(monkeypatch, shuffle, "decode_table", of)
    facts = shuffled(replace(run.work(), read_back=read_back))
    assert refused(run, facts)


@pytest.mark.parametrize("way", WAYS)
def test_every_byte_that_changes_in_a_file_is_refused(
    run: GroupRun, way: Callable[[GroupWork], TaskFacts], monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(finish: Callable[..., Any]) -> Callable[..., Any]:
        def finish_and_damage(self: DataFileWriter, name: str) -> Any:
            written = finish(self, name)
            path = Path(self._path)
            content = bytearray(path.read_bytes())
            content[len(content) // 3] ^= 1
            path.write_bytes(content)
            return written

        return finish_and_damage

    once(monkeypatch, DataFileWriter, "finish", of)
    facts = way(run.work())
    assert facts.failure is not None
    assert "page" in facts.failure


def once(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, changed: Callable[..., Any]
) -> None:
    """Replace a function by `changed` of it, for its first call."""
    kept = getattr(owner, name)
    calls = []

    def first(*arguments: Any) -> Any:
        calls.append(name)
        return (changed(kept) if len(calls) == 1 else kept)(*arguments)

    monkeypatch.setattr(owner, name, first)
