"""What the commits of a run share: a commit of the log is read a few times, not once per group."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.log import second_opinion
from liquidlog.log.local_store import LocalTableStore
from liquidlog.snapshot import Snapshot
from liquidlog.spec.paths import commit_name
from liquidlog.table import Table
from support.arrow_executor import execute

GROUPS = 12
READERS = 4
"""What may read a commit: which groups have landed, the next version, delta-rs's agreement; and
one of them twice where a race was lost."""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    schema = pa.schema([("x", pa.int64())])
    properties = {"delta.checkpointInterval": "1000"}
    table = Table.create(tmp_path / "t", schema=schema, cluster_by=["x"], properties=properties)
    for first in range(2 * GROUPS):
        table.append(pa.table({"x": [first, first + 100]}))
    return table


def test_commits_since_the_plan_are_not_read_for_every_group(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Counter[str] = Counter()
    agreed: list[int] = []
    read_logs, require_agreement = LocalTableStore.read_logs, second_opinion.require_agreement

    def counted(store: LocalTableStore, names: Sequence[str]) -> tuple[bytes | None, ...]:
        read.update(names)
        return read_logs(store, names)

    def counted_agreement(snapshot: Snapshot, *rest: object) -> None:
        agreed.append(snapshot.version)
        require_agreement(snapshot, *rest)  # type: ignore[arg-type]

    size = max(table.files()["size_bytes"].to_pylist())
    plan = table.plan(min_cube_size=1, target_cube_size=2 * size)
    assert len(plan.groups) == GROUPS
    result = execute(plan)
    for first in range(GROUPS):
        table.append(pa.table({"x": [first]}))
    monkeypatch.setattr(LocalTableStore, "read_logs", counted)
    monkeypatch.setattr(second_opinion, "require_agreement", counted_agreement)
    report = table.commit(plan, result, groups_per_commit=1)
    assert len(report.versions) == GROUPS
    since = [commit_name(v) for v in range(plan.read_version + 1, report.versions[-1] + 1)]
    assert max(read[name] for name in since) <= READERS
    assert len(agreed) == 1
