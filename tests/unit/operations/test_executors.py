"""What executors are asked to do, and what they can be asked to leave out."""

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from liquidlog.clustering.planner import plan
from liquidlog.errors import UsageError
from liquidlog.logs import Log
from liquidlog.operations import executors
from liquidlog.operations.executors import AUTO, Executor, choose_executor, open_executor
from liquidlog.plan import ClusteringPlan, ClusteringPolicy, decode_result, encode_rewritten_group
from liquidlog.table import Table
from support.plans import finished
from support.repository import modules, text
from support.snapshots import FileSpec, snapshot_of

Given = Mapping[str, str]

GROUP = finished()


def test_an_executor_hears_of_read_back_if_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bool | None] = []

    def start(
        _: Given, __: Given, *, read_back: bool | None = None
    ) -> AbstractContextManager[Executor]:
        heard.append(read_back)
        return nullcontext(lambda *_: iter(()))

    monkeypatch.setattr(executors, "find_executor", lambda _: start)
    open_executor("other", {}, {})
    open_executor("other", {}, {}, read_back=False)
    assert heard == [None, False]
    monkeypatch.setattr(executors, "find_executor", lambda _: lambda _, __: start({}, {}))
    with pytest.raises(UsageError, match="takes no read_back") as caught:
        open_executor("other", {}, {}, read_back=False)
    assert caught.value.fields == {"option": "no_read_back"}
    assert heard == [None, False]


def test_a_result_says_that_it_was_not_read_back() -> None:
    whole = encode_rewritten_group(GROUP)
    assert b"read_back" not in whole  # as it was before, so that digests stay
    left_out = encode_rewritten_group(structs.replace(GROUP, read_back=False))
    assert b'"read_back":false' in left_out
    assert decode_result(left_out, where="r").groups[0].read_back is False


def test_auto_is_local_for_small_plans_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in executors._MASTERS:
        monkeypatch.delenv(name, raising=False)
    small, large = plan_of_bytes(4 << 30), plan_of_bytes((4 << 30) + 1)

    def chosen(plan: ClusteringPlan = small, name: str = AUTO, **how: Any) -> str:
        return choose_executor(name, plan, how.pop("configuration", {}), **how).name

    assert (chosen(), chosen(large)) == ("local", "spark")
    assert chosen(configuration={"spark.master": "yarn"}) == "spark"
    assert chosen(session=object()) == "spark"
    assert chosen(limit_bytes=1 << 30) == "spark"
    assert chosen(large, limit_bytes=5 << 30) == "local"
    assert chosen(large, name="local") == "local"
    assert "4.0 GiB" in choose_executor(AUTO, large, {}).reason
    monkeypatch.setattr(executors, "find_spec", lambda _: None)
    assert chosen(large) == "local"
    monkeypatch.setenv("SPARK_REMOTE", "sc://somewhere")
    assert choose_executor(AUTO, small, {}).reason == "SPARK_REMOTE is set"


def plan_of_bytes(size_bytes: int) -> ClusteringPlan:
    snapshot = snapshot_of([FileSpec(path=name, size=size_bytes // 2) for name in ("a", "b")])
    made = plan(snapshot, ClusteringPolicy(max_file_bytes=1 << 40), new_id=lambda: "id")
    rest = size_bytes - made.size_bytes
    assert 0 <= rest <= 1
    if not rest:
        return made
    more = [FileSpec(path=name, size=size_bytes // 2 + n) for n, name in enumerate(("a", "b"))]
    return plan(snapshot_of(more), ClusteringPolicy(max_file_bytes=1 << 40), new_id=lambda: "id")


# What the packages log: what was read, decided and written, to whoever asked for it.


ROWS = pa.table({"x": range(100), "s": [str(n) for n in range(100)]})


def made(path: Path) -> Table:
    table = Table.create(path, schema=ROWS.schema, cluster_by=["x"])
    table.append(ROWS)
    table.append(ROWS)
    return table


def test_values_are_masked_and_lines_name_their_place(caplog: pytest.LogCaptureFixture) -> None:
    log = Log("liquidlog.some.module")
    log.warning("at %s after %d", "https://user:word@host/x?sig=abc", 3)
    (record,) = caplog.records
    assert record.getMessage() == "at https://***@host/x?sig=*** after 3"
    assert (record.filename, record.funcName) == (
        "test_executors.py",
        "test_values_are_masked_and_lines_name_their_place",
    )
    with caplog.at_level(logging.INFO):
        assert log.is_heard


def test_no_module_logs_past_what_masks_values() -> None:
    past = {name for name in modules() if "logging.getLogger(" in text(name)}
    # Two silence packages that log beside errors of ours, one listens.
    others = {
        "liquidlog/storage/objects.py",
        "liquidlog/workload/statements.py",
        "liquidlog/cli/output.py",
    }
    assert past == {"liquidlog/logs.py", *others}


def test_what_applications_configure_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = logging.getLogger("liquidlog")
    assert own.level == logging.NOTSET
    assert [type(one) for one in own.handlers] == [logging.NullHandler]
    uri = made(tmp_path / "t").uri
    with caplog.at_level(logging.ERROR, logger="liquidlog.log"), caplog.at_level(logging.INFO):
        caplog.clear()
        Table.open(uri).snapshot()
        Log("liquidlog.other").warning("a warning")
    assert [record.name for record in caplog.records] == ["liquidlog.other"]
