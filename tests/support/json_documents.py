"""Every document that `--json` prints: each verb with the options that change what it prints."""

import json
import os
import re
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
from liquidlog.operations.reconcile import TooMuchToRead
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

_SMALL: Final = ("--max-file-size", "2KiB")
_OVERLAP: Final = ("--strategy", "overlap", *_SMALL, "--set", "tolerance=1")
_OPEN: Final = ("--workload", "open.jsonl")


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
    yield from _dry(["create", "t", "--schema-from", "rows.parquet", "--cluster-by", "x"])
    yield ["detail", "t"]
    yield ["health", "t"]
    for _ in range(4):
        yield ["append", "t", "rows.parquet"]
    yield from _dry(["append", "t", "rows.parquet", "--cluster"])
    yield from _dry(["cluster-by", "t", "x,s"])
    yield from _dry(
        _alter("t", "SET TBLPROPERTIES ('a' = 'b', 'delta.columnMapping.mode' = 'name')")
    )
    yield from _looks("t")
    yield from _plans()
    yield ["plan", "t", "-o", "plan.json", "--full", *_SMALL]
    yield from _dry(["run", "plan.json", "-o", "result.jsonl", "--set", "read_back=false"])
    yield from _dry(["commit", "plan.json", "result.jsonl"])
    yield ["commit", "plan.json", "result.jsonl"]
    yield ["append", "t", "rows.parquet"]
    yield from _dry(
        [
            "optimize",
            "t",
            *_OVERLAP,
            "--set",
            "final=true",
            "--set",
            "min_gain=0",
            "--set",
            "read_back=false",
        ]
    )
    yield ["append", "t", "rows.parquet"]
    yield from _dry(["optimize", "t", "--set", "read_back=false"])
    yield ["optimize", "t"]
    yield from _looks("t")
    yield from _dry(_alter("t", "RENAME COLUMN s TO word"))
    yield from _dry(["doctor", "t", "--fix", "missing-statistics"])
    yield from _dry(_alter("t", "DROP COLUMN unused"))
    yield from _dry(["checkpoint", "t"])
    _leave_an_orphan(home / "t")
    yield from _deletions()
    yield from _many_tables(home)
    yield from _mistakes(home)


def _many_tables(home: Path) -> Iterator[Words]:
    yield from _ticks(home)
    yield ["fleet", ".", "nowhere", "-o", "pages"]
    yield from _migrations(home)
    yield from _other_tables()


def _migrations(home: Path) -> Iterator[Words]:
    remembered = {"delta.targetFileSize": "1048576"}
    partitioned_table(home / "parted", files={"a": 2, None: 1}, configuration=remembered)
    words = ["migrate", "parted", "--cluster-by", "p,id", "--set", "bloom_filter=v"]
    words += ["--set", "row_group_rows=5000"]
    (home / "parted.jsonl").write_text(
        '{"where": "p = 1"}\n{"where": "upper(v) = \'A\'"}\n{"where": "p = )"}\n'
    )
    readers = ["--workload", "parted.jsonl"]
    yield [*words, *readers, "--dry-run"]
    deleted = str(ROOT / "fixtures" / "partitions" / "deletion_vectors")
    yield ["migrate", deleted, "--cluster-by", "k", "--dry-run"]
    moments = pa.table({"id": [1], "p": pa.array([0], pa.timestamp("us", tz="UTC"))})
    write_deltalake(str(home / "zoneless"), moments, partition_by=["p"])
    log = home / "zoneless" / "_delta_log" / f"{0:020d}.json"
    log.write_text(re.sub(r'"p":"1970-01-01[^"]*"', '"p":"1970-01-01 00:00:00"', log.read_text()))
    migrate = ["migrate", "zoneless", "--cluster-by", "p", "--dry-run"]
    yield [*migrate, "--set", "partition_time_zone=Asia/Tokyo"]
    yield ["set-properties", "zoneless", "liquidlog.partitionTimeZone=UTC"]
    yield migrate
    yield [*words, "-o", "migration.json"]
    yield [*words, *readers, "--yes", "--set", "read_back=false"]


def _ticks(home: Path) -> Iterator[Words]:
    chores = '[rewrite.when]\ncommits = 1\n[checkpoint]\ncommits = 1\n[vacuum]\nage = "1d"\n'
    (home / "policy.toml").write_text(f'tables = ["t*"]\n{chores}')
    yield ["create", "ticked", "--schema-from", "many.parquet", "--cluster-by", "x"]
    yield from [["append", "ticked", "many.parquet"]] * 8
    yield ["fleet", "ticked", "-o", "fleet"]
    yield ["fleet", "nowhere"]
    yield ["tick", "ticked", "--plan-only", "-o", "plans"]
    yield from _dry(["tick", "--policy", "policy.toml"])
    yield ["tick", "nowhere"]


def _deletions() -> Iterator[Words]:
    yield from _dry(["orphans", "t", "--delete"])
    yield from _dry(["vacuum", "t", "--retain", "0s", "--allow-short-retention"])


def _plans() -> Iterator[Words]:
    yield ["plan", "t", *_OVERLAP, "--workload", "w.jsonl"]
    yield ["plan", "t", "--where", "x < 9", *_OVERLAP]
    yield ["plan", "t", "--set", "prefix=s", *_OPEN]
    yield ["plan", "t", *_SMALL, *_OPEN, "--set", "row_group_rows=5000"]
    yield ["optimize", "t", *_OPEN, "--set", "row_group_rows=5000", "--dry-run"]
    yield ["doctor", "t", "--workload", "w.jsonl", "--payback-days", "1"]


def _alter(table: str, clause: str) -> Words:
    return ["sql", f"ALTER TABLE delta.`{table}` {clause}"]


def _dry(words: Words) -> Iterator[Words]:
    yield from ([*words, "--dry-run"], words)


def _looks(table: str) -> Iterator[Words]:
    yield from ([verb, table] for verb in ("detail", "history", "files", "health"))
    yield ["health", table, "--cubes"]
    yield from ([verb, table] for verb in ("plan", "doctor", "orphans"))
    yield ["plan", table, "--why"]
    yield ["history", table, "--amplification"]
    yield ["health", table, "--where", "x < 9"]
    yield ["scan", table, "--where", "x < 9"]
    yield ["scan", table, "--workload", "w.jsonl"]
    yield ["health", table, "--workload", "w.jsonl"]
    yield ["health", table, "--where", "upper(s) = 'A' AND x < 9"]
    yield ["workload", "import", "w.sql", "-o", "imported.jsonl"]
    yield ["report", table, "-o", "page.html"]
    yield ["report", table, "-o", "page.html", "--workload", "w.jsonl", "--payback-days", "1"]


def _mistakes(home: Path) -> Iterator[Words]:
    yield ["detail", "nowhere"]
    yield ["plan", "t", "--strategy", "fast"]
    yield ["detail", "t", "--version", "999"]
    yield ["create", "t", "--schema-from", "rows.parquet"]
    yield ["append", "t", "other.parquet"]
    yield ["cluster-by", "t", "a,b"]
    yield ["detail", "t", "--timestamp", "1999-01-01"]
    (home / "broken.json").write_text("{}")
    yield ["run", "broken.json", "-o", "broken.jsonl"]


def _other_tables() -> Iterator[Words]:
    """Tables with deletion vectors, with row tracking, and without clustering columns."""
    for case in ("12_dv_live", "15_row_tracking", "24_partitioned_zorder"):
        table = str(ROOT / "fixtures" / "logs" / case / "table")
        yield from ([verb, table] for verb in ("plan", "detail", "files", "history"))
        yield ["optimize", table, "--full", "--dry-run"]
    yield from _advised()
    yield ["create", "plain", "--schema-from", "rows.parquet"]
    yield from [["append", "plain", "rows.parquet"]] * 2
    yield from _dry(["optimize", "plain", "--zorder-by", "x,s"])
    yield from ([verb, "plain"] for verb in ("health", "files", "plan", "optimize"))
    yield ["health", "plain", "--columns", "x,s"]
    yield ["cluster-by", "plain", "x", "--yes"]
    yield from _dry(["drop-feature", "plain", "clustering"])
    vectors = ["--property", "delta.enableDeletionVectors=true"]
    yield ["create", "marked", "--schema-from", "rows.parquet", *vectors]
    yield ["cluster-by", "marked", "x", "--yes"]
    yield ["drop-feature", "marked", "clustering"]
    yield from _files_that_lie_well()
    yield from _a_table_that_remembers()
    yield from _partitions()


def _advised() -> Iterator[Words]:
    """Advice to cluster a table, and to leave it alone."""
    yield ["create", "asked", "--schema-from", "many.parquet"]
    yield from [["append", "asked", "many.parquet"]] * 4
    yield ["advise", "asked", "--workload", "w.jsonl", "--min-gain", "100%"]
    asked = ["advise", "asked", "--workload", "many.jsonl", "--max-file-size", "1KiB"]
    yield asked
    yield from _dry([*asked, "--apply", "-o", "advice.json"])
    yield ["plan", "asked", "--advice", "advice.json"]


def _a_table_that_remembers() -> Iterator[Words]:
    remembered = {
        "liquidlog.strategy": "overlap",
        "liquidlog.curve": "kd",
        "liquidlog.tolerance": "1.5",
        "liquidlog.minCubeSize": "1GiB",
        "liquidlog.targetCubeSize": "2GiB",
        "delta.targetFileSize": "2048",
    }
    yield ["create", "mine", "--schema-from", "rows.parquet", "--cluster-by", "x,s"]
    yield ["append", "mine", "rows.parquet"]
    yield _alter("mine", set_properties(remembered))
    yield _alter("mine", set_properties({"liquidlog.zorderBy": "x"}))
    yield from ([verb, "mine"] for verb in ("detail", "plan", "doctor", "optimize"))


def _files_that_lie_well() -> Iterator[Words]:
    yield ["create", "apart", "--schema-from", "rows.parquet", "--cluster-by", "x"]
    for source in ("rows.parquet", "far.parquet", "rows.parquet"):
        yield ["append", "apart", source]
    size = max(Table.open("apart").snapshot().files["size"].to_pylist())
    keeping = ("apart", "--set", "skip_clustered=true", "--max-file-size", str(size))
    yield ["plan", *keeping]
    yield ["plan", *keeping, "--why"]
    yield from _dry(["optimize", *keeping])


def _partitions() -> Iterator[Words]:
    partitioned_table(Path("parts"), files={"a": 2, None: 2})
    yield ["plan", "parts", "-o", "parts.json"]
    yield ["plan", "parts", "--where", "p = 'a'", "--zorder-by", "v"]
    yield from _dry(["run", "parts.json", "-o", "parts.jsonl"])
    yield from _dry(["commit", "parts.json", "parts.jsonl"])


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
