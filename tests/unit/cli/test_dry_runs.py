"""A dry run does everything but the writing: same checks, same fields, same numbers, no change.

Every verb that writes is run dry in JSON and in text, then for good, on a table where it has
something to do; and where the real run fails, the dry one fails alike.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from liquidlog.cli.main import cli, run
from liquidlog.data.runs import Run
from liquidlog.plan import ClusteringPlan, encode_plan, encode_rewritten_group
from liquidlog.spec.schema import PrimitiveType, StructField, StructType
from liquidlog.table import Table
from support.arrow_executor import execute
from support.commands import Call, said
from support.copies import copy_table
from support.partitioned import partitioned_table

pytestmark = pytest.mark.usefixtures("started")

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int64()), ("s", pa.string())])
DELTA_SCHEMA = StructType(
    (
        StructField("id", PrimitiveType("long"), nullable=False),
        StructField("x", PrimitiveType("long")),
        StructField("s", PrimitiveType("string")),
    )
)
MAPPED = {"delta.columnMapping.mode": "name"}

Words = list[str]


def rows(count: int) -> pa.Table:
    ids = list(range(count))
    return pa.table([ids, [n % 7 for n in ids], [str(n) for n in ids]], schema=SCHEMA)


def made(tmp_path: Path) -> Table:
    """A mapped table of three files, clustered by x."""
    uri = str(tmp_path / "t")
    table = Table.create(uri, schema=DELTA_SCHEMA, cluster_by=["x"], properties=MAPPED)
    for count in (30, 40, 50):
        table.append(rows(count))
    return table


def saved(tmp_path: Path, table: Table, **policy: Any) -> tuple[Words, ClusteringPlan]:
    """Save a plan and its result; return their paths and the plan."""
    plan = table.plan(**policy)
    (tmp_path / "plan.json").write_bytes(encode_plan(plan))
    done = b"".join(encode_rewritten_group(group) for group in execute(plan).groups)
    (tmp_path / "result.jsonl").write_bytes(done)
    return [str(tmp_path / "plan.json"), str(tmp_path / "result.jsonl")], plan


def create(tmp_path: Path) -> Words:
    return ["create", str(tmp_path / "new"), "--like", made(tmp_path).uri, "--cluster-by", "id"]


def append(tmp_path: Path, *options: str) -> Words:
    for name, count in (("a", 1000), ("b", 500), ("empty", 0)):
        pq.write_table(rows(count), tmp_path / f"{name}.parquet", row_group_size=300)
    sources = [str(tmp_path / f"{name}.parquet") for name in ("a", "b", "empty")]
    return ["append", made(tmp_path).uri, *sources, *options]


def append_nothing(tmp_path: Path) -> Words:
    pq.write_table(rows(0), tmp_path / "empty.parquet")
    return ["append", made(tmp_path).uri, str(tmp_path / "empty.parquet")]


def checkpoint_again(tmp_path: Path) -> Words:
    table = made(tmp_path)
    table.checkpoint()
    return ["checkpoint", table.uri]


def doctor(tmp_path: Path) -> Words:
    copy_table("tables", "09_cm_name_rename", tmp_path)
    (path,) = tmp_path.glob("**/_delta_log")
    fixes = ["--fix", "renamed-cubes", "--fix", "missing-statistics"]
    return ["doctor", str(path.parent), *fixes]


def orphans(tmp_path: Path) -> Words:
    table = made(tmp_path)
    run = Run(table.uri, "0123456789ab")
    run.begin()
    left = Path(table.uri) / f"{run.name_prefix}00000-x.c000.zstd.parquet"
    left.write_bytes(b"12345")
    for path in (left, *Path(table.uri).glob("_liquidspark-*")):
        os.utime(path, (0, 0))
    return ["orphans", table.uri, "--delete"]


def vacuum(tmp_path: Path) -> Words:
    table = made(tmp_path)
    plan = table.plan()
    table.commit(plan, execute(plan))
    return ["vacuum", table.uri, "--retain", "0s", "--allow-short-retention"]


def advise(tmp_path: Path) -> Words:
    readers = tmp_path / "readers.jsonl"
    readers.write_text("".join(f'{{"where": "id = {n}"}}\n' for n in range(30)))
    size = ["--max-file-size", "1KiB"]
    return ["advise", made(tmp_path).uri, "--workload", str(readers), *size, "--apply"]


def commit(tmp_path: Path) -> Words:
    paths, _ = saved(tmp_path, made(tmp_path))
    return ["commit", *paths]


def commit_groups(tmp_path: Path) -> Words:
    """Three groups: the second and third are looked at on what the first one saw."""
    table = made(tmp_path)
    paths, plan = saved(tmp_path, table, target_cube_size=1, min_cube_size=1)
    assert len(plan.groups) == 3
    return ["commit", *paths]


def commit_again(tmp_path: Path) -> Words:
    table = made(tmp_path)
    paths, plan = saved(tmp_path, table)
    table.commit(plan, execute(plan))
    return ["commit", *paths]


def migrate(tmp_path: Path) -> Words:
    table = partitioned_table(tmp_path / "t", files={"a": 2, None: 1})
    return ["migrate", table.uri, "--cluster-by", "p,id", "--yes"]


def migrate_empty(tmp_path: Path) -> Words:
    words = migrate(tmp_path)
    DeltaTable(words[1]).delete()
    return words


def run_plan(tmp_path: Path) -> Words:
    paths, _ = saved(tmp_path, made(tmp_path))
    return ["run", paths[0], "-o", str(tmp_path / "another.jsonl")]


def on_table(verb: str, *words: str) -> Callable[[Path], Words]:
    return lambda tmp_path: [verb, made(tmp_path).uri, *words]


def altered(clause: str) -> Callable[[Path], Words]:
    return lambda tmp_path: ["sql", f"ALTER TABLE delta.`{made(tmp_path).uri}` {clause}"]


FINAL = ("--strategy", "overlap", "--max-file-size", "2KiB", "--set", "final=true")


def sql(tmp_path: Path) -> Words:
    return ["sql", f"ALTER TABLE '{made(tmp_path).uri}' RECLUSTER"]


CASES: Mapping[str, Callable[[Path], Words]] = {
    "create": create,
    "advise": advise,
    "append": append,
    "append --cluster": lambda tmp_path: append(tmp_path, "--cluster"),
    "append nothing": append_nothing,
    "cluster-by": on_table("cluster-by", "s,id"),
    "cluster-by --none": on_table("cluster-by", "--none"),
    "cluster-by the same": on_table("cluster-by", "x"),
    "drop-feature": on_table("drop-feature", "clustering"),
    "rename": altered("RENAME COLUMN s TO word"),
    "drop": altered("DROP COLUMN s"),
    "properties": altered("SET TBLPROPERTIES ('a' = 'b')"),
    "checkpoint": on_table("checkpoint"),
    "checkpoint again": checkpoint_again,
    "doctor": doctor,
    "doctor without need": on_table("doctor", "--fix", "broken-domain"),
    "orphans": orphans,
    "orphans without any": on_table("orphans", "--delete"),
    "vacuum": vacuum,
    "vacuum of nothing": on_table("vacuum"),
    "optimize": on_table("optimize"),
    "optimize --final": on_table("optimize", *FINAL, "--set", "min_gain=0"),
    "optimize --final without gain": on_table("optimize", *FINAL, "--set", "min_gain=99"),
    "migrate": migrate,
    "migrate without files": migrate_empty,
    "run": run_plan,
    "commit": commit,
    "commit of groups": commit_groups,
    "commit again": commit_again,
    "sql": sql,
}

NOTHING_TO_DO = {
    "append nothing",
    "cluster-by the same",
    "rename-column the same",
    "checkpoint again",
    "doctor without need",
    "orphans without any",
    "vacuum of nothing",
    "optimize --final without gain",
}

CLAIM = re.compile(
    r"(?<!would be )(?<!nothing was )(?<!no file was )"
    r"\b(created|appended|committed|deleted|written|rewritten|repaired|verified)\b"
)


def tree(directory: Path) -> dict[str, bytes | None]:
    """Return every file below a directory with its bytes, and every directory with None."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in directory.rglob("*")
    }


def test_every_verb_that_can_run_dry_is_here() -> None:
    dry = {
        name
        for name, command in cli.commands.items()
        for p in command.params
        if p.name == "dry_run"
    }
    of_many_tables = {"tick"}  # Its decisions, dry and real, are compared in test_tick.
    altering = {"rename", "drop", "properties"}  # by sql
    assert {name.split()[0] for name in CASES} - altering == dry - of_many_tables


@pytest.mark.parametrize("name", CASES)
def test_a_dry_run_says_what_the_real_run_does_and_changes_nothing(
    name: str, tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    words = CASES[name](tmp_path)
    before = tree(tmp_path)
    status, would, _ = call(*words, "--dry-run")
    assert (status, tree(tmp_path)) == (0, before)
    assert run(cli, [*words, "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert tree(tmp_path) == before
    assert "would" in said
    assert CLAIM.search(said) is None

    status, did, _ = call(*words)
    assert status == 0
    assert would.pop("dry_run") is True
    assert "dry_run" not in did
    if name.startswith("optimize --final"):
        # Which rounds follow the first depends on what it makes.
        did["rounds"], did["versions"] = did["rounds"][:1], did["versions"][:1]
    # What is judged after a repair is the repaired table.
    would.pop("verdict", None), did.pop("verdict", None)
    assert_same_as_known(would, did, name)
    if name not in NOTHING_TO_DO and not name.startswith("commit again"):
        assert tree(tmp_path) != before


def assert_same_as_known(would: Any, did: Any, where: str) -> None:
    """Assert the same fields, and the same values but for what only the real run can know."""
    if would is None:
        return
    if isinstance(would, dict):
        assert set(would) == set(did), where
        for key in set(would) - UNLIKE:
            value = would[key]
            assert_same_as_known(value, did[key], f"{where}.{key}")
    elif isinstance(would, list):
        assert len(would) == len(did), where
        for one, other in zip(would, did, strict=True):
            assert_same_as_known(one, other, where)
    else:
        assert would == did, where


UNLIKE = {"seconds", "zcube_id", "average_depth", "rows_verified", "findings"}
"""Times, ids drawn anew, predictions, the rows of all rounds, what was wrong before the mending."""


def stale_plan(tmp_path: Path) -> Words:
    table = made(tmp_path)
    paths, _ = saved(tmp_path, table)
    other = table.plan()
    table.commit(other, execute(other))
    return ["commit", *paths]


def changed_columns(tmp_path: Path) -> Words:
    words = commit(tmp_path)
    Table.open(str(tmp_path / "t")).cluster_by(["s"])
    return words


def missing_output(tmp_path: Path) -> Words:
    table = made(tmp_path)
    live = {path.name for path in Path(table.uri).glob("*.parquet")}
    paths, _ = saved(tmp_path, table)
    for path in Path(table.uri).glob("*.parquet"):
        if path.name not in live:
            path.unlink()
    return ["commit", *paths]


def no_writer(tmp_path: Path) -> Words:
    """A table of a feature that nobody knows."""
    table = made(tmp_path)
    log = Path(table.uri) / "_delta_log" / f"{0:020d}.json"
    text = log.read_text()
    log.write_text(text.replace('"writerFeatures":[', '"writerFeatures":["nobodyKnows",'))
    assert log.read_text() != text
    return ["sql", f"ALTER TABLE delta.`{table.uri}` SET TBLPROPERTIES ('a' = 'b')"]


def null_in_a_column_without(tmp_path: Path) -> Words:
    source = tmp_path / "bad.parquet"
    pq.write_table(pa.table([[1, None], [1, 2], ["a", "b"]], schema=SCHEMA), source)
    return ["append", made(tmp_path).uri, str(source)]


def result_nowhere(tmp_path: Path) -> Words:
    paths, _ = saved(tmp_path, made(tmp_path))
    return ["run", paths[0], "-o", str(tmp_path / "no" / "such" / "result.jsonl")]


FAILING: Mapping[str, tuple[int, Callable[[Path], Words]]] = {
    "create where a table is": (1, lambda p: ["create", made(p).uri, "--like", str(p / "t")]),
    "a column that is not": (2, on_table("cluster-by", "nope")),
    "a column in use": (2, altered("DROP COLUMN x")),
    "a name in use": (2, altered("RENAME COLUMN s TO x")),
    "a property of nobody": (2, altered("SET TBLPROPERTIES ('delta.nope' = '1')")),
    "an unknown feature": (5, no_writer),
    "rows that may not be": (1, null_in_a_column_without),
    "a source that is not": (1, on_table("append", "/no/such/file.parquet")),
    "a stale plan": (3, stale_plan),
    "a plan of other columns": (3, changed_columns),
    "outputs that are gone": (1, missing_output),
    "a result that cannot be": (1, result_nowhere),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_dry_run_fails_as_the_real_run_would(name: str, tmp_path: Path, call: Call) -> None:
    status, setup = FAILING[name]
    words = setup(tmp_path)
    before = tree(tmp_path)
    dry = call(*words, "--dry-run")
    assert dry[0] == status
    assert tree(tmp_path) == before
    real = call(*words)
    assert real[:2] == dry[:2]
    assert real[2]["error"]["code"] == dry[2]["error"]["code"]
    assert "were committed" not in dry[2]["error"]["message"]


def test_an_executor_that_is_not_fails_a_dry_run_too(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    words = [*on_table("optimize")(tmp_path), "--executor", "magic"]
    assert call(*words, "--dry-run")[0] == call(*words)[0] == 2


def test_a_dry_optimize_says_of_its_worth_what_a_plan_says(tmp_path: Path) -> None:
    uri = made(tmp_path).uri
    for more in ([], ["--max-file-size", "1KiB"]):
        _, planned, _ = said("plan", uri, *more)
        _, dry, _ = said("optimize", uri, "--dry-run", *more)
        worth = planned.splitlines()[:1]
        assert len(worth) == 1
        assert worth[0] in dry.splitlines()
