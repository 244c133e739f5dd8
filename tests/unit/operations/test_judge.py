"""What is worth doing to a table, and what is better left alone, on tables made here."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from liquidlog.data.reader import LogicalFile
from liquidlog.errors import StorageError
from liquidlog.foresee.plans import Foresight
from liquidlog.operations import doctor, planning
from liquidlog.operations.planning import criteria_of, judge_plan
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.table import Table
from support.arrow_executor import execute
from support.commands import said
from support.copies import set_elsewhere
from support.logs import actions_of, commit_actions, log_path

SCHEMA = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("z", pa.int64())])


def rows(count: int, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    columns = [random.integers(0, 2**62, count) for _ in SCHEMA]
    return pa.table([pa.array(column) for column in columns], schema=SCHEMA)


def names(table: Table) -> set[str]:
    return {finding.name for finding in table.doctor()}


def good(uri: str, count: int = 1_000_000) -> Table:
    """A table of eight files of 3 MiB, as an OPTIMIZE left them."""
    table = Table.create(uri, schema=SCHEMA, cluster_by=["x"])
    table.append(rows(count, 0))
    plan = table.plan(max_file_size=table.snapshot().size_bytes // 8)
    table.commit(plan, execute(plan))
    return table


def test_small_files_that_nobody_clustered_are_told(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), schema=SCHEMA)
    for seed in range(30):
        table.append(rows(50, seed))
    assert names(table) == {"small-files", "no-clustering-columns"}
    (small,) = [one for one in table.doctor() if one.name == "small-files"]
    assert small.files == 30
    assert small.command == f"liquidlog optimize {table.uri} --max-file-size 1GiB"
    status, text, _ = said("doctor", table.uri)
    assert (status, "nothing is wrong" in text) == (0, False)
    assert text.splitlines()[1].strip() == small.command
    plan = table.judge().options[0].plan
    table.commit(plan, execute(plan))
    assert table.doctor().findings == ()
    assert table.judge().best is None


def test_what_cannot_be_measured_is_not_recommended_and_not_called_right(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "t"), schema=SCHEMA, cluster_by=["x"])
    for seed in range(8):
        table.append(rows(1000, seed))
    for path in (Path(table.uri) / "_delta_log").glob("*.json"):
        path.write_text(re.sub(r'"stats":"(\\.|[^"\\])*"', '"stats":null', path.read_text()))
    table = Table.open(table.uri)
    found = table.judge()
    assert found.best is None
    assert found.answer == "unknown"
    assert "8 of 8 files" in found.sentence
    assert {"missing-statistics", "unclustered-files"} <= names(table)
    text = said("doctor", table.uri)[1]
    assert "optimize" not in text
    assert text.splitlines()[0] == found.sentence
    plan = table.plan()
    assert judge_plan(table.opened, plan, criteria_of(table.opened)).answer == "unknown"


def test_no_command_is_recommended_that_would_be_refused(tmp_path: Path) -> None:
    table = good(str(tmp_path / "t"), 10_000)
    table.append(rows(100, 1))
    (metadata,) = (one["metaData"] for one in actions_of(table, 0) if "metaData" in one)
    commit_actions(table, {"metaData": {**metadata, "partitionColumns": ["x"]}})
    table = Table.open(table.uri)
    found = table.judge()
    assert (found.best, found.options) == (None, ())
    assert "cannot be optimized" in found.sentence
    assert "partitioned" in names(table)
    assert all("optimize" not in (one.command or "") for one in table.doctor())


def test_no_option_is_recommended_whose_files_would_be_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table.create(tmp_path / "t", schema=SCHEMA, cluster_by=["x"])
    for seed in range(12):
        table.append(rows(40_000, seed))
    assert sum(one.is_worth_it for one in table.judge().options) > 1
    monkeypatch.setattr(planning, "refused_of", lambda *_: ("its old dates are unknown",))
    found = table.judge()
    assert (found.answer, found.best) == ("leave", None)
    assert {one.problem for one in found.options} == {"its old dates are unknown"}


def test_the_option_after_a_refused_one_is_judged_again_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table.create(tmp_path / "t", schema=SCHEMA, cluster_by=["x"])
    for seed in range(12):
        table.append(rows(40_000, seed))
    answers = iter([("its old dates are unknown",)])
    monkeypatch.setattr(planning, "refused_of", lambda *_: next(answers, ()))
    judged = []
    prediction = Foresight.prediction

    def noted(self: Foresight, number: int, *, surely: bool = True) -> object:
        judged.extend([number] if surely else [])
        return prediction(self, number, surely=surely)

    monkeypatch.setattr(Foresight, "prediction", noted)
    assert table.judge().best is not None
    assert len(set(judged)) > 1


def test_what_a_workload_lacks_is_told(tmp_path: Path) -> None:
    table = Table.create(
        str(tmp_path / "t"),
        schema=SCHEMA,
        cluster_by=["x"],
        properties={"delta.dataSkippingStatsColumns": "x,y"},
    )
    for seed in range(4):
        table.append(rows(1000, seed))
    readers = tmp_path / "w.sql"
    readers.write_text("z = 5;\ny < 100;\nupper(x) = 'a';\nx = t.y;\n")
    status, text, error = said("doctor", table.uri, "--workload", str(readers))
    assert (status, error) == (0, "")
    lines = text.splitlines()
    (lacking,) = [n for n, line in enumerate(lines) if line.startswith("statistics-missing-for")]
    assert "4 file(s) without statistics of z" in lines[lacking]
    words = shlex.split(lines[lacking + 1])
    assert '"delta.dataSkippingStatsColumns" = "x,y,z"' in words[2]
    assert said(*words[1:])[0] == 0
    assert any("upper(x) = 'a'" in line for line in lines)
    (unlike,) = [n for n, line in enumerate(lines) if line.startswith("layout-unlike-workload")]
    assert "compare z, y" in lines[unlike]
    assert shlex.split(lines[unlike + 1])[1:] == ["advise", table.uri, "--workload", str(readers)]


def test_many_who_compare_one_column_do_not_wait_longer_for_others(tmp_path: Path) -> None:
    """Each query is one of sixty; half of them find their rows in one file now."""
    table = Table.create(str(tmp_path / "t"), schema=SCHEMA)
    for file in range(12):
        columns = rows(4_000, file).drop_columns(["x"])
        x = pa.array(range(4_000 * file, 4_000 * (file + 1)), pa.int64())
        table.append(columns.add_column(0, "x", x).select(["x", "y", "z"]))
    values = rows(4_000, 0)["y"].to_pylist()
    asked = [f"x = {1_600 * number}" for number in range(30)]
    asked += [f"y = {values[130 * number]}" for number in range(30)]
    found = table.judge(workload=asked, workload_source="queries.sql")
    for option in found.options:
        of_x = [one for one in option.prediction.predicates if one.columns == ("x",)]
        before, after = (
            sum(getattr(one, f"seconds_{when}") for one in of_x) for when in ("before", "after")
        )
        assert len(of_x) == 30
        assert after <= 1.2 * before or not option.is_worth_it
    said_of_x = [one.problem or "" for one in found.options]
    assert any(text.startswith("queries for values of x would wait") for text in said_of_x)


def test_one_sample_answers_all_that_is_asked_by_the_same_criteria(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"x": np.arange(40_000) % 997, "y": np.arange(40_000)})
    table = Table.create(
        tmp_path / "t",
        schema=rows.schema,
        cluster_by=["x", "y"],
        properties={"liquidlog.maxFileSize": "32KiB"},
    )
    for start in range(0, 40_000, 2_500):
        table.append(rows.slice(start, 2_500))
    read = []
    opened = LogicalFile.open

    def counted(located: Any, *arguments: Any, **options: Any) -> LogicalFile:
        read.append(located.path)
        return opened(located, *arguments, **options)

    monkeypatch.setattr(LogicalFile, "open", counted)
    workload = tmp_path / "asked.sql"
    workload.write_text("SELECT * FROM t WHERE x = 5;\nSELECT * FROM t WHERE y = 7;\n")
    status, out, _ = said("plan", str(tmp_path / "t"), "--workload", str(workload), "--json")
    assert status == 0
    assert json.loads(out)["prediction"]["sampled_files"] == 16
    assert len(read) == 16


def test_columns_that_new_files_will_lack_statistics_of(tmp_path: Path) -> None:
    table = Table.create(str(tmp_path / "a table"), schema=SCHEMA, cluster_by=["x", "y"])
    table.append(rows(10, 0))
    # As Delta Spark does; our own set-properties refuses it.
    set_elsewhere(table, {"delta.dataSkippingStatsColumns": "z,y"})
    (found,) = [one for one in table.doctor() if one.name == "unindexed-columns"]
    assert said(*shlex.split(found.command or "")[1:])[0] == 0
    assert table.detail()["properties"]["delta.dataSkippingStatsColumns"] == "z,y,x"
    assert "unindexed-columns" not in names(table)


def test_after_the_last_repair_nothing_is_read_that_could_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table.create(tmp_path, schema=SCHEMA, cluster_by=["x"])
    table.append(rows(10, 0))
    log = log_path(table, 1)
    log.write_text(re.sub(r'"stats":"(\\.|[^"\\])*"', '"stats":null', log.read_text()))

    def fails(_: object) -> None:
        raise StorageError("_delta_log", "cannot be listed")

    monkeypatch.setattr(doctor, "load_snapshot", fails)
    (mended,) = Table.open(table.uri).fix("missing-statistics")
    assert (mended.versions, mended.files) == ((2,), 1)


def narrow_and_even(path: Path) -> Table:
    """Return a table of files that are narrow in `x` only, and of others that are evenly narrow.

    Twelve files have three quarters of `x` in twelve slices, each with all of `y`. Four have the
    rest of `x`, in four slices of `y`.
    """
    table = Table.create(path, schema=SCHEMA, cluster_by=["x", "y"])
    random = np.random.default_rng(0)
    ranges = [((n * 500, (n + 1) * 500), (0, 8_000)) for n in range(12)]
    ranges += [((6_000, 8_000), (n * 2_000, (n + 1) * 2_000)) for n in range(4)]
    for x, y in ranges:
        columns = [random.integers(*x, 2_000), random.integers(*y, 2_000), np.zeros(2_000, "i8")]
        table.append(pa.table(columns, schema=SCHEMA))
    return table


def test_files_are_kept_or_merged_by_what_readers_open(tmp_path: Path) -> None:
    table = narrow_and_even(tmp_path)
    lows = {file["path"]: file["min"]["x"] for file in table.files().to_pylist()}
    on_x, on_y = (
        tuple(WeightedPredicate(f"{name} = {value}") for value in range(30, 8_000, 740))
        for name in "xy"
    )

    def rewritten(**readers: Any) -> set[str]:
        size = table.detail()["sizeInBytes"] // 16
        plan = table.plan(max_file_size=size, skip_clustered=True, **readers)
        taken = [file.path for group in plan.groups for file in group.inputs]
        return {"narrow" if lows[path] < 6_000 else "even" for path in taken}

    # Without readers, files that have all of `y` are the worst; who asks for `x` alone opens one.
    assert "narrow" in rewritten()
    assert rewritten(workload=on_x) == {"even"}
    table.set_properties({"liquidlog.weights": "x=1"})
    assert rewritten() == {"even"}
    assert "narrow" in rewritten(workload=on_y)


# Tables as their owners have them: every command says the same, and doing it slows nobody down.


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
        write_deltalake(uri, _events(day, 5_000), mode="append")


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
    table.append(pa.concat_tables(_events(day, 5_000) for day in range(10)))
    table.optimize(executor="local")
    for day in range(10, 20):
        table.append(_events(day, 500))


def wide_dimension(uri: str) -> None:
    random = np.random.default_rng(3)
    for part in range(6):
        columns = {f"c{number:02d}": random.integers(0, 1 << 40, 2_000) for number in range(60)}
        rows = pa.table({"key": np.arange(2_000) * 6 + part, **columns})
        write_deltalake(uri, rows, mode="append")


def freshly_clustered(uri: str) -> None:
    table = clustered(uri)
    for day in range(10):
        table.append(_events(day, 5_000))
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
