"""Tables as their owners have them: every command says the same, and doing it slows nobody down."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from liquidlog.table import Table
from support.commands import said

Make = Callable[[str], None]
DAY = np.datetime64("2026-09-01", "D")


def _events(day: int, rows: int, seed: int = 0) -> pa.Table:
    random = np.random.default_rng(100 * seed + day)
    return pa.table(
        {
            "day": np.full(rows, DAY + day),
            "device": random.integers(0, 5000, rows),
            "value": random.random(rows),
        }
    )


def daily_appends(uri: str) -> None:
    for day in range(20):
        write_deltalake(uri, _events(day, 20_000), mode="append")


def tiny_files_in_partitions(uri: str) -> None:
    for day in range(4):
        for part in range(12):
            rows = _events(day, 200, part)
            write_deltalake(uri, rows, mode="append", partition_by=["day"])


def clustered(uri: str) -> Table:
    return Table.create(
        uri,
        schema=_events(0, 1).schema,
        cluster_by=["device", "day"],
        properties={"liquidlog.maxFileSize": str(256 << 10)},
    )


def clustered_with_a_tail(uri: str) -> None:
    table = clustered(uri)
    table.append(pa.concat_tables(_events(day, 20_000) for day in range(10)))
    table.optimize(executor="local")
    for day in range(10, 20):
        table.append(_events(day, 2_000))


def wide_dimension(uri: str) -> None:
    random = np.random.default_rng(3)
    for part in range(6):
        columns = {f"c{number:02d}": random.integers(0, 1 << 40, 2_000) for number in range(60)}
        rows = pa.table({"key": np.arange(2_000) * 6 + part, **columns})
        write_deltalake(uri, rows, mode="append")


def freshly_clustered(uri: str) -> None:
    table = clustered(uri)
    for day in range(10):
        table.append(_events(day, 20_000))
    table.optimize(executor="local")


ASSUMED: dict[Make, tuple[str, ...]] = {
    daily_appends: ("day = '2026-09-03'",),
    tiny_files_in_partitions: ("day = '2026-09-03'",),
    clustered_with_a_tail: ("day = '2026-09-03'", "device = 77"),
    wide_dimension: (),
    freshly_clustered: ("day = '2026-09-03'", "device = 77"),
}
"""What readers ask who are assumed where there is no workload, beside full scans."""


def first_line(*words: str) -> str:
    status, text, error = said(*words)
    assert status == 0, error
    return text.splitlines()[0]


def said_by_all(uri: str, workload: list[str]) -> str:
    """Return the verdict that every command shows."""
    verdict = first_line("doctor", uri, *workload)
    assert first_line("plan", uri, *workload) == verdict
    assert verdict in first_line("report", uri, "-o", "page.html", *workload)
    status, text, _ = said("fleet", uri, "--json", *workload)
    assert (status, json.loads(text)["tables"][0]["reason"]) == (0, verdict)
    policy = ["[rewrite.when]", "commits = 1"]
    if workload:
        policy.insert(0, f"[rewrite]\nworkload = {json.dumps(workload[1])}")
    Path("policy.toml").write_text("\n".join(policy))
    status, text, _ = said("tick", "--policy", "policy.toml", uri, "--dry-run", "--json")
    ticked = json.loads(text)["tables"][0]
    assert status == 0
    # A table that nobody wrote to since its last rewrite is not judged again.
    assert ticked["verdict"] is None or ticked["verdict"]["sentence"] == verdict
    return verdict


READS = ("device = 77", "device = 4000", "day = '2026-09-03'")


@pytest.mark.parametrize(
    ("make", "reads"),
    [
        (daily_appends, READS),
        (tiny_files_in_partitions, READS),
        (tiny_files_in_partitions, ()),
        (clustered_with_a_tail, READS),
        (clustered_with_a_tail, ()),
        (wide_dimension, ()),
        (freshly_clustered, ()),
    ],
    ids=lambda value: getattr(value, "__name__", "asked" if value else "assumed"),
)
def test_all_commands_say_one_verdict_and_doing_it_slows_nobody_down(
    tmp_path: Path, make: Make, reads: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    uri = str(tmp_path / "lake" / "t")
    make(uri)
    workload = []
    if reads:
        Path("queries.sql").write_text("".join(f"SELECT * FROM t WHERE {one};\n" for one in reads))
        workload = ["--workload", str(tmp_path / "queries.sql")]
    verdict = said_by_all(uri, workload)
    source = workload[1] if workload else None
    found = Table(uri).judge(workload=source or (), workload_source=source)
    assert found.sentence == verdict
    if found.best is None:
        return
    asked = reads if workload else ASSUMED[make]
    before = [_waited(uri, where) for where in asked]
    for words in found.best.command.split(" && "):
        more = ["--yes"] if "cluster-by" in words or "migrate" in words else []
        more += ["--executor", "local"] if "optimize" in words or "migrate" in words else []
        status, _, error = said(*shlex.split(words)[1:], *more)
        assert status == 0, error
    for where, (files, size_bytes) in zip(asked, before, strict=True):
        now_files, now_bytes = _waited(uri, where)
        assert _seconds(now_files, now_bytes) <= 1.2 * _seconds(files, size_bytes), where


def _waited(uri: str, where: str) -> tuple[float, float]:
    found = Table(uri).scan(where)
    return found.files_read, found.bytes_read


def _seconds(files: float, size_bytes: float) -> float:
    return 0.005 * files + size_bytes / 800e6
