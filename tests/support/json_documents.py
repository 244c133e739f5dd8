"""Every document that `--json` prints: each verb with the options that change what it prints."""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from liquidlog import errors
from liquidlog.cli import rewriting, upkeeping
from liquidlog.clustering.change import FilesAdded
from liquidlog.clustering.staleness import TooManyDeletedRows
from liquidlog.commit.conflicts import (
    ConcurrentDeleteRead,
    DomainMetadataChanged,
    MetadataChanged,
    ProtocolChanged,
    RowsMayBeBack,
)
from liquidlog.data.runs import Run
from liquidlog.errors import LiquidlogError, Outdated, SchemaProblem, SchemaProblemKind
from liquidlog.operations.batches import TooMuchToRead
from liquidlog.operations.rewrite import GroupConflict
from liquidlog.plan import ClusteringPlan, RewrittenGroup
from liquidlog.report.jsonable import render_error
from liquidlog.spec.text import set_properties
from liquidlog.table import Table
from support.arrow_executor import execute
from support.commands import said
from support.partitioned import partitioned_table
from support.repository import ROOT

Words = Sequence[str]

_OVERLAP: Final = "--strategy overlap --max-file-size 2KiB --set tolerance=1"


def documents(home: Path) -> dict[str, list[Mapping[str, Any]]]:
    """Run every verb below a directory that is the working directory; return its documents.

    They are keyed by verb, the documents of errors by "error"; one of every class is among these.
    """
    _sources(home)
    found: dict[str, list[Mapping[str, Any]]] = {}
    with (
        mock.patch.object(rewriting, "open_executor", _open_executor),
        mock.patch.object(upkeeping, "open_executor", _open_executor),
    ):
        for words in _calls(home):
            status, out, err = said(*words, "--json")
            # A run over many tables tells of each, those that failed too.
            tells = status == 0 or words[0] in {"tick", "fleet"}
            assert tells == bool(out.strip()), (words, status, out, err)
            verb = _kind(words) if tells else "error"
            found.setdefault(verb, []).append(json.loads(out if tells else err))
    found["error"] += [json.loads(render_error(error)) for error in EXAMPLES]
    return found


def _kind(words: Words) -> str:
    """Return the name of the document that a command prints."""
    if words[0] == "sql":
        return "alter"
    extra = {"--cubes": "cubes", "--why": "explain"}
    return next((extra[word] for word in words if word in extra), words[0])


def _calls(home: Path) -> Iterator[Words]:
    yield from _commands("""
        dry create t --schema-from rows.parquet --cluster-by x
        detail t
        health t
        append t rows.parquet
        append t rows.parquet
        append t rows.parquet
        append t rows.parquet
        dry append t rows.parquet --cluster
        dry cluster-by t x,s
    """)
    named = {"a": "b", "delta.columnMapping.mode": "name"}
    yield from _dry(_alter("t", set_properties(named)))
    yield from _looks("t")
    yield from _commands(f"""
        plan t {_OVERLAP} --workload w.jsonl
        plan t --where 'x < 9' {_OVERLAP}
        plan t --set prefix=s --workload open.jsonl
        plan t --max-file-size 2KiB --workload open.jsonl --set row_group_rows=5000
        optimize t --workload open.jsonl --set row_group_rows=5000 --dry-run
        doctor t --workload w.jsonl --payback-days 1
        plan t -o plan.json --full --max-file-size 2KiB
        dry run plan.json -o result.jsonl --set read_back=false
        dry commit plan.json result.jsonl
        commit plan.json result.jsonl
        append t rows.parquet
        dry optimize t {_OVERLAP} --set final=true --set min_gain=0 --set read_back=false
        append t rows.parquet
        dry optimize t --set read_back=false
        optimize t
    """)
    yield from _looks("t")
    yield from _dry(_alter("t", "RENAME COLUMN s TO word"))
    yield from _commands("dry doctor t --fix missing-statistics")
    yield from _dry(_alter("t", "DROP COLUMN unused"))
    yield from _commands("dry checkpoint t")
    _leave_an_orphan(home / "t")
    yield from _commands("""
        dry orphans t --delete
        dry vacuum t --retain 0s --allow-short-retention
    """)
    yield from _ticks(home)
    yield from _commands("fleet . nowhere -o pages")
    yield from _migrations(home)
    yield from _other_tables()
    (home / "broken.json").write_text("{}")
    yield from _commands("""
        detail nowhere
        plan t --strategy fast
        detail t --version 999
        create t --schema-from rows.parquet
        append t other.parquet
        cluster-by t a,b
        detail t --timestamp 1999-01-01
        run broken.json -o broken.jsonl
    """)


def _migrations(home: Path) -> Iterator[Words]:
    remembered = {"delta.targetFileSize": "1048576"}
    partitioned_table(home / "parted", files={"a": 2, None: 1}, configuration=remembered)
    (home / "parted.jsonl").write_text(
        '{"where": "p = 1"}\n{"where": "upper(v) = \'A\'"}\n{"where": "p = )"}\n'
    )
    moments = pa.table({"id": [1], "p": pa.array([0], pa.timestamp("us", tz="UTC"))})
    write_deltalake(str(home / "zoneless"), moments, partition_by=["p"])
    log = home / "zoneless" / "_delta_log" / f"{0:020d}.json"
    log.write_text(re.sub(r'"p":"1970-01-01[^"]*"', '"p":"1970-01-01 00:00:00"', log.read_text()))
    words = "parted --cluster-by p,id --set bloom_filter=v --set row_group_rows=5000"
    yield from _commands(f"""
        migrate {words} --workload parted.jsonl --dry-run
        migrate {ROOT}/fixtures/partitions/deletion_vectors --cluster-by k --dry-run
        migrate zoneless --cluster-by p --dry-run --set partition_time_zone=Asia/Tokyo
        set-properties zoneless liquidlog.partitionTimeZone=UTC
        migrate zoneless --cluster-by p --dry-run
        migrate {words} -o migration.json
        migrate {words} --workload parted.jsonl --yes --set read_back=false
    """)


def _ticks(home: Path) -> Iterator[Words]:
    chores = '[rewrite.when]\ncommits = 1\n[checkpoint]\ncommits = 1\n[vacuum]\nage = "1d"\n'
    (home / "policy.toml").write_text(f'tables = ["t*"]\n{chores}')
    yield from _commands("create ticked --schema-from many.parquet --cluster-by x")
    yield from [["append", "ticked", "many.parquet"]] * 8
    yield from _commands("""
        fleet ticked -o fleet
        fleet nowhere
        tick ticked --plan-only -o plans
        dry tick --policy policy.toml
        tick nowhere
    """)


def _commands(lines: str) -> Iterator[Words]:
    """Yield the words of each line; one that begins with "dry" is first run so."""
    for line in lines.strip().splitlines():
        words = shlex.split(line)
        yield from _dry(words[1:]) if words[0] == "dry" else [words]


def _alter(table: str, clause: str) -> Words:
    return ["sql", f"ALTER TABLE delta.`{table}` {clause}"]


def _dry(words: Words) -> Iterator[Words]:
    yield from ([*words, "--dry-run"], words)


def _looks(table: str) -> Iterator[Words]:
    yield from _commands(f"""
        detail {table}
        history {table}
        files {table}
        health {table}
        health {table} --cubes
        plan {table}
        doctor {table}
        orphans {table}
        plan {table} --why
        history {table} --amplification
        health {table} --where 'x < 9'
        scan {table} --where 'x < 9'
        scan {table} --workload w.jsonl
        health {table} --workload w.jsonl
        health {table} --where "upper(s) = 'A' AND x < 9"
        workload import w.sql -o imported.jsonl
        report {table} -o page.html
        report {table} -o page.html --workload w.jsonl --payback-days 1
    """)


def _other_tables() -> Iterator[Words]:
    """Tables with deletion vectors, with row tracking, without clustering columns, and others."""
    for case in ("12_dv_live", "15_row_tracking", "24_partitioned_zorder"):
        table = str(ROOT / "fixtures" / "logs" / case / "table")
        yield from ([verb, table] for verb in ("plan", "detail", "files", "history"))
        yield ["optimize", table, "--full", "--dry-run"]
    yield from _commands("create asked --schema-from many.parquet")
    yield from [["append", "asked", "many.parquet"]] * 4
    asked = "advise asked --workload many.jsonl --max-file-size 1KiB"
    yield from _commands(f"""
        advise asked --workload w.jsonl --min-gain 100%
        {asked}
        dry {asked} --apply -o advice.json
        plan asked --advice advice.json
        create plain --schema-from rows.parquet
        append plain rows.parquet
        append plain rows.parquet
        dry optimize plain --zorder-by x,s
        health plain
        files plain
        plan plain
        optimize plain
        health plain --columns x,s
        cluster-by plain x --yes
        dry drop-feature plain clustering
        create marked --schema-from rows.parquet --property delta.enableDeletionVectors=true
        cluster-by marked x --yes
        drop-feature marked clustering
    """)
    yield from _files_that_lie_well()
    yield from _a_table_that_remembers()
    partitioned_table(Path("parts"), files={"a": 2, None: 2})
    yield from _commands("""
        plan parts -o parts.json
        plan parts --where "p = 'a'" --zorder-by v
        dry run parts.json -o parts.jsonl
        dry commit parts.json parts.jsonl
    """)


def _a_table_that_remembers() -> Iterator[Words]:
    remembered = {
        "liquidlog.strategy": "overlap",
        "liquidlog.curve": "kd",
        "liquidlog.tolerance": "1.5",
        "liquidlog.minCubeSize": "1GiB",
        "liquidlog.targetCubeSize": "2GiB",
        "delta.targetFileSize": "2048",
    }
    yield from _commands("""
        create mine --schema-from rows.parquet --cluster-by x,s
        append mine rows.parquet
    """)
    yield _alter("mine", set_properties(remembered))
    yield _alter("mine", set_properties({"liquidlog.zorderBy": "x"}))
    yield from ([verb, "mine"] for verb in ("detail", "plan", "doctor", "optimize"))


def _files_that_lie_well() -> Iterator[Words]:
    yield from _commands("""
        create apart --schema-from rows.parquet --cluster-by x
        append apart rows.parquet
        append apart far.parquet
        append apart rows.parquet
    """)
    size = max(Table.open("apart").snapshot().files["size"].to_pylist())
    keeping = f"apart --set skip_clustered=true --max-file-size {size}"
    yield from _commands(f"""
        plan {keeping}
        plan {keeping} --why
        dry optimize {keeping}
    """)


def _leave_an_orphan(table: Path) -> None:
    run = Run(str(table), "0123456789ab")
    run.begin()
    left = table / f"{run.name_prefix}00000-x.c000.zstd.parquet"
    left.write_bytes(b"12345")
    for path in (left, *table.glob("_liquidspark-*")):
        os.utime(path, (0, 0))


def _sources(home: Path) -> None:
    rows = {"x": list(range(100)), "s": ["a", "b"] * 50, "unused": [None, 1.5] * 50}
    pq.write_table(pa.table(rows), home / "rows.parquet")
    far = {**rows, "x": list(range(200, 300))}
    pq.write_table(pa.table(far), home / "far.parquet")
    pq.write_table(pa.table({"y": [1]}), home / "other.parquet")
    many = {"x": [n * 7919 % 1000 for n in range(1000)], "s": ["a", "b"] * 500}
    pq.write_table(pa.table(many), home / "many.parquet")
    many_asked = [{"where": f"x BETWEEN {n * 20} AND {n * 20 + 9}"} for n in range(40)]
    many_asked += [{"where": "x > 5 AND x < 8.5 AND s > 'a' AND s < 'c'"}, {"where": "x >= 0"}]
    many_asked += [{"where": "x < 9 AND lower(s) = 'a'"}, {"where": "nope = 1"}]
    (home / "many.jsonl").write_text("".join(json.dumps(one) + "\n" for one in many_asked))
    readers = [{"where": "x < 9", "weight": 3}, {"where": "lower(s) = 'a'"}]
    readers.append({"where": "SELECT 1"})
    (home / "open.jsonl").write_text(
        """{"where": "s > 'a' AND s < 'c' OR x IS NULL AND s = 'b'"}"""
    )
    (home / "w.sql").write_text("SELECT * FROM t WHERE x = 1; DROP TABLE t")
    (home / "w.jsonl").write_text("".join(json.dumps(one) + "\n" for one in readers))


def _open_executor(*_: object, read_back: bool = True, **__: object) -> AbstractContextManager[Any]:
    def rewrite(
        plan: ClusteringPlan, pending: Sequence[int], _: object
    ) -> Iterator[RewrittenGroup]:
        return iter(execute(plan, pending, read_back=read_back).groups)

    return nullcontext(rewrite)


# One instance of every error and of every conflict, with arguments as they occur

CONFLICTS = (
    ConcurrentDeleteRead(8, ("a.parquet", "b.parquet")),
    RowsMayBeBack(8, ("c.parquet",)),
    MetadataChanged(9),
    ProtocolChanged(10),
    DomainMetadataChanged(11, "delta.clustering"),
    Outdated("the table's schema changed"),
    TooManyDeletedRows(30, 100, 0.2),
    TooMuchToRead(3 << 30, 1 << 30),
    FilesAdded((7, 8), ("d.parquet", "e.parquet")),
    GroupConflict(3, MetadataChanged(9)),
)
SCHEMA_PROBLEMS = (
    SchemaProblem(SchemaProblemKind.COLUMN_EXISTS, "there is a column x already", column="x"),
    SchemaProblem(
        SchemaProblemKind.FEATURE_MISSING,
        "delta.enableDeletionVectors=true needs the table feature deletionVectors",
        property="delta.enableDeletionVectors",
        feature="deletionVectors",
    ),
)
PROBLEMS = ("x is a map", "y does not exist")
EXAMPLES = (
    LiquidlogError("something went wrong"),
    errors.UsageError("no size", value="3 parsecs", columns=("a", "b"), limit=None, most=1.5),
    errors.ClusteringColumnError(PROBLEMS),
    errors.SchemaChangeError(SCHEMA_PROBLEMS),
    errors.LogError("the log is not there"),
    errors.TableNotFoundError("/data/orders", "it is empty"),
    errors.TableExistsError("/data/orders"),
    errors.VersionNotFoundError(7, 2, 5),
    errors.TimestampNotFoundError("2024-01-01T00:00:00.000Z", "2025-01-01", "2026-01-01"),
    errors.CorruptLogError("00000000000000000003.json", "no JSON", line=4),
    errors.StorageError("s3://bucket/orders", "access denied"),
    errors.UnsupportedFeatureError("/data/orders", "written", ("v2Checkpoint", "x")),
    errors.SchemaMismatchError("new.parquet", "a: long", "a: string", ("a is string",)),
    errors.DataFileError("part-0.parquet", "it is cut off"),
    errors.DocumentError("plan.json", "it is no plan"),
    errors.ResultMismatchError(PROBLEMS),
    errors.RowsNotFoundError(10, 3),
    errors.ReconcileLimitError(3 << 30, 1 << 30),
    errors.CheckpointMismatchError(12, PROBLEMS),
    errors.ExecutorError("group 1: lost", failures=("group 1: lost",)),
    errors.CommitError("nothing was committed"),
    errors.CommitConflictError(6, CONFLICTS),
    errors.TableReplacedError("/data/orders", "it has another id", read_version=6),
    errors.CommitStateUnknownError(13, "the connection was lost"),
)
