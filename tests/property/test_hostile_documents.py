"""Plans and results are documents anybody can write: no such document costs a row, or a file."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from liquidlog.cli import rewriting
from liquidlog.errors import EXIT_CONFLICT
from liquidlog.plan import ClusteringPlan, GroupFailure, encode_plan, encode_rewritten_group
from liquidlog.table import Table
from support.arrow_executor import execute
from support.effort import effort
from support.hostile import confuse
from support.probing import EXPECTED_STATUSES, command_status
from support.writers import SCHEMA, rows

PARTS, EXAMPLES = effort((1, 25), (5, 1_000))
APPENDS = 3


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a table, a plan and its result, to be copied; and files not to touch."""
    directory = tmp_path_factory.mktemp("documents")
    table = Table.create(str(directory / "table"), schema=SCHEMA, cluster_by=["x", "s"])
    for number in range(APPENDS):
        table.append(rows(number))
    plan = table.plan()
    (directory / "plan.json").write_bytes(encode_plan(plan))
    groups = execute(plan).groups
    (directory / "result.jsonl").write_bytes(b"".join(map(encode_rewritten_group, groups)))
    (directory / "passwd").write_text("keep me")
    return directory


def content(table: Path) -> list[tuple[Any, ...]]:
    scanned = pa.RecordBatchReader.from_stream(DeltaTable(table).scan()).read_all()
    return sorted(zip(*(scanned[name].to_pylist() for name in SCHEMA.names), strict=True))


def expected() -> list[tuple[Any, ...]]:
    table = pa.concat_tables([rows(number) for number in range(APPENDS)])
    return sorted(tuple(row.values()) for row in table.to_pylist())


@st.composite
def damage(draw: st.DrawFn, plan: bytes, result: bytes) -> tuple[bytes, bytes]:
    """One to three damages to a plan and its result."""
    for _ in range(draw(st.sampled_from((1, 1, 2, 3)))):
        if draw(st.booleans()):
            plan = damaged(draw, plan)
        else:
            result = damaged(draw, result)
    return plan, result


def damaged(draw: st.DrawFn, text: bytes) -> bytes:
    place = draw(st.integers(0, max(len(text) - 1, 0)))
    match draw(st.sampled_from(("confuse", "confuse", "confuse", "cut", "flip", "double"))):
        case "confuse":
            return confuse(draw, text)[0] + b"\n"
        case "cut":
            return text[:place]
        case "flip":
            return text[:place] + bytes([draw(st.integers(0, 255))]) + text[place + 1 :]
        case _:
            return text + text


def fail(plan: ClusteringPlan, groups: Sequence[int], _: object) -> Iterator[GroupFailure]:
    """Do as an executor for which every group fails: what is tried is the way to it."""
    del plan
    return (GroupFailure(group_id=group, reason="no") for group in groups)


def refusing_executor(*_: object, **__: object) -> AbstractContextManager[Any]:
    return nullcontext(fail)


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("part", range(PARTS))
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_document_never_costs_a_row_or_a_file(
    work: Path, part: int, data: st.DataObject
) -> None:
    del part  # so that several processes share the long form
    directory = Path(tempfile.mkdtemp())
    try:
        shutil.copytree(work, directory, dirs_exist_ok=True)
        swap = (str(work).encode(), str(directory).encode())
        plan = (work / "plan.json").read_bytes().replace(*swap)
        documents = data.draw(damage(plan, (work / "result.jsonl").read_bytes()))
        for name, text in zip(("plan.json", "result.jsonl"), documents, strict=True):
            (directory / name).write_bytes(text)
        before = set((directory / "table").iterdir())
        plan_path, result_path = str(directory / "plan.json"), str(directory / "result.jsonl")
        statuses = EXPECTED_STATUSES | {EXIT_CONFLICT}
        with mock.patch.object(rewriting, "open_executor", refusing_executor):
            words = ("run", plan_path, "-o", str(directory / "out.jsonl"))
            assert command_status(*words) in EXPECTED_STATUSES
        assert command_status("commit", plan_path, result_path, "--dry-run") in statuses
        assert command_status("commit", plan_path, result_path) in statuses
        assert content(directory / "table") == expected()
        assert (directory / "passwd").read_text() == "keep me"
        live = set(Table.open(str(directory / "table")).files()["path"].to_pylist())
        kept = {path.name for path in (directory / "table").iterdir()}
        assert live <= kept
        assert len(before) - len(kept) <= 1
    finally:
        shutil.rmtree(directory)
