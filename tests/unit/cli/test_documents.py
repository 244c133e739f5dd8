"""Every document of `--json` is of its schema, and a dry run does all of a real run but writing.

Every verb runs, on tables where it has something to do, with options that change what it prints.
A line that begins with "dry" is first run dry, in JSON and in text; so is one with "idle", which
may change nothing. One that begins with "fails" and an exit status has to fail alike in both.
"""

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, chdir, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from jsonschema import Draft202012Validator

from liquidlog.cli import rewriting, upkeeping
from liquidlog.data.runs import Run
from liquidlog.plan import ClusteringPlan, RewrittenGroup
from liquidlog.report.jsonable import render_json
from liquidlog.spec.text import set_properties
from liquidlog.table import Table
from support.arrow_executor import execute
from support.commands import commands, said
from support.copies import copy_table
from support.error_examples import EXAMPLES
from support.partitioned import partitioned_table
from support.repository import ROOT

Words = Sequence[str]
Document = Mapping[str, Any]

SCHEMAS: Final = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in (ROOT / "docs" / "reference" / "json").glob("*.json")
}
OVERLAP: Final = "--strategy overlap --max-file-size 2KiB --set tolerance=1"
CLAIM: Final = re.compile(
    r"(?<!would be )(?<!nothing was )(?<!no file was )"
    r"\b(created|appended|committed|deleted|written|rewritten|repaired|verified)\b"
)
UNLIKE: Final = {
    *("seconds", "zcube_id", "average_depth", "rows_verified"),
    *("findings", "verdict", "read_back"),
}
"""Times, ids, predictions, the rows of all rounds, what was wrong before a repair, proofs."""


@dataclass
class Printed:
    """The documents of all verbs, those of errors by "error", and what dry runs did wrong."""

    documents: dict[str, list[Document]] = field(default_factory=dict)
    dry: set[str] = field(default_factory=set)
    wrong: list[tuple[Words, object]] = field(default_factory=list)

    def run(self, words: Words) -> Document:
        """Run a verb, keep its document and return it."""
        status, out, err = said(*words, "--json")
        # A run over many tables tells of each, those that failed too.
        tells = status == 0 or words[0] in {"tick", "fleet"}
        assert tells == bool(out.strip()), (words, status, out, err)
        document: Document = json.loads(out if tells else err)
        name = _kind(words) if tells else "error"
        self.documents.setdefault(name, []).append(document)
        return document

    def rehearse(self, words: Words, *, always_changes: bool = True) -> None:
        """Run a verb dry, in JSON and in text, then for good, and compare."""
        self.dry.add(words[0])
        before = tree()
        would = dict(self.run([*words, "--dry-run"]))
        status, text, _ = said(*words, "--dry-run")
        told = status == 0 and "would" in text and CLAIM.search(text) is None
        if not told or tree() != before or would.pop("dry_run", None) is not True:
            self.wrong.append((words, text))
        did = dict(self.run(words))
        if "rounds" in did:
            # Which rounds follow the first depends on what it makes.
            did["rounds"], did["versions"] = did["rounds"][:1], did["versions"][:1]
        self.wrong += [(words, where) for where in unlike(would, did, "")]
        if always_changes and tree() == before:
            self.wrong.append((words, "changed nothing"))

    def fail(self, status: int, words: Words) -> None:
        """Run a verb dry and for good; both must fail with the same error."""
        before = tree()
        dry = said(*words, "--json", "--dry-run")
        is_same = tree() == before
        real = said(*words, "--json")
        code = [re.findall(r'"code": "\w+"', err)[:1] for _, _, err in (dry, real)]
        is_alike = dry[:2] == real[:2] == (status, "") and code[0] == code[1]
        if not is_same or not is_alike or "were committed" in dry[2]:
            self.wrong.append((words, (dry, real)))


def tree() -> dict[str, bytes | None]:
    """Return every file below the working directory with its bytes, directories with None."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in Path().rglob("*")}


def unlike(would: Any, did: Any, where: str) -> Iterator[str]:
    """Yield where two documents have other fields, or other values of what a dry run knows."""
    if would is None:
        return
    if isinstance(would, dict) and would.keys() - UNLIKE == did.keys() - UNLIKE:
        for key in would.keys() - UNLIKE:
            yield from unlike(would[key], did[key], f"{where}.{key}")
    elif isinstance(would, list) and len(would) == len(did):
        for one, other in zip(would, did, strict=True):
            yield from unlike(one, other, where)
    elif would != did:
        yield f"{where}: {would!r}, {did!r}"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    """Run every verb in a directory of its own."""
    home = tmp_path_factory.mktemp("documents")
    _sources(home)
    found = Printed()
    with (
        chdir(home),
        mock.patch.object(rewriting, "open_executor", _open_executor),
        mock.patch.object(upkeeping, "open_executor", _open_executor),
    ):
        for words in _calls(home):
            match words[0]:
                case "dry":
                    found.rehearse(words[1:])
                case "idle":
                    found.rehearse(words[1:], always_changes=False)
                case "fails":
                    found.fail(int(words[1]), words[2:])
                case _:
                    found.run(words)
    found.documents["error"] += [json.loads(render_json({"error": error})) for error in EXAMPLES]
    return found


def _open_executor(*_: object, read_back: bool = True, **__: object) -> AbstractContextManager[Any]:
    def rewrite(
        plan: ClusteringPlan, pending: Sequence[int], _: object
    ) -> Iterator[RewrittenGroup]:
        return iter(execute(plan, pending, read_back=read_back).groups)

    return nullcontext(rewrite)


def _kind(words: Words) -> str:
    """Return the name of the document that a command prints."""
    if words[0] == "sql":
        return "alter"
    extra = {"--cubes": "cubes", "--why": "explain"}
    return next((extra[word] for word in words if word in extra), words[0])


def _commands(lines: str) -> Iterator[Words]:
    return map(shlex.split, lines.strip().splitlines())


def _alter(table: str, clause: str) -> str:
    return shlex.join(["sql", f"ALTER TABLE delta.`{table}` {clause}"])


def _calls(home: Path) -> Iterator[Words]:
    named = set_properties({"a": "b", "delta.columnMapping.mode": "name"})
    yield from _commands(f"""
        dry create t --schema-from rows.parquet --cluster-by x
        detail t
        health t
        append t rows.parquet
        append t rows.parquet
        dry append t rows.parquet far.parquet
        append t rows.parquet
        dry append t rows.parquet --cluster
        idle append t empty.parquet
        dry cluster-by t x,s
        idle cluster-by t x,s
        dry {_alter("t", named)}
    """)
    yield from _looks("t")
    yield from _commands(f"""
        plan t {OVERLAP} --workload w.jsonl
        plan t --where 'x < 9' {OVERLAP}
        plan t --set prefix=s --workload open.jsonl
        plan t --max-file-size 2KiB --workload open.jsonl --set row_group_rows=5000
        optimize t --workload open.jsonl --set row_group_rows=5000 --dry-run
        doctor t --workload w.jsonl --payback-days 1
        plan t -o stale.json --full
        run stale.json -o stale.jsonl
        plan t -o plan.json --full --max-file-size 2KiB
        dry run plan.json -o result.jsonl --set read_back=false
        dry commit plan.json result.jsonl
        idle commit plan.json result.jsonl
        fails 3 commit stale.json stale.jsonl
        append t rows.parquet
        idle optimize t {OVERLAP} --set final=true --set min_gain=99
        append t rows.parquet
        dry optimize t --set read_back=false
        optimize t
    """)
    yield from _looks("t")
    yield from _commands(f"""
        dry {_alter("t", "RENAME COLUMN s TO word")}
        idle doctor t --fix missing-statistics
        idle doctor t --fix broken-domain
        dry {_alter("t", "DROP COLUMN unused")}
        dry checkpoint t
        idle checkpoint t
        idle orphans t --delete
    """)
    _leave_an_orphan(home / "t")
    yield from _commands("""
        dry orphans t --delete
        dry vacuum t --retain 0s --allow-short-retention
        idle vacuum t
    """)
    copy_table("tables", "09_cm_name_rename", home)
    yield from _commands("""
        dry doctor 09_cm_name_rename --fix renamed-cubes --fix missing-statistics
    """)
    yield from _groups()
    yield from _ticks(home)
    yield from _commands("fleet . nowhere -o pages")
    yield from _migrations(home)
    yield from _other_tables()
    yield from _failures(home)


def _groups() -> Iterator[Words]:
    """Three groups: the second and third are looked at on what the first one saw."""
    yield from _commands("create three --schema-from rows.parquet --cluster-by x")
    yield from [["append", "three", "rows.parquet"]] * 3
    yield from _commands(f"""
        plan three -o three.json --set target_cube_size=1B --set min_cube_size=1B
        run three.json -o three.jsonl
        dry commit three.json three.jsonl
        append three rows.parquet
        dry optimize three {OVERLAP} --set final=true --set min_gain=0 --set read_back=false
        append three rows.parquet
        append three far.parquet
        plan three -o other.json --full
        run other.json -o other.jsonl
        dry cluster-by three --none
        fails 3 commit other.json other.jsonl
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
    partitioned_table(home / "emptied", files={"a": 1})
    DeltaTable(str(home / "emptied")).delete()
    words = "parted --cluster-by p,id --set bloom_filter=v --set row_group_rows=5000"
    yield from _commands(f"""
        migrate {words} --workload parted.jsonl --dry-run
        migrate {ROOT}/fixtures/partitions/deletion_vectors --cluster-by k --dry-run
        migrate zoneless --cluster-by p --dry-run --set partition_time_zone=Asia/Tokyo
        {_alter("zoneless", set_properties({"liquidlog.partitionTimeZone": "UTC"}))}
        migrate zoneless --cluster-by p --dry-run
        migrate {words} -o migration.json
        dry migrate emptied --cluster-by p,id --yes
        dry migrate {words} --workload parted.jsonl --yes --set read_back=false
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
        tick --policy policy.toml --dry-run
        tick --policy policy.toml
        tick nowhere
    """)


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
        {asked} -o advice.json
        dry {asked} --apply
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
        create apart --schema-from rows.parquet --cluster-by x
        append apart rows.parquet
        append apart far.parquet
        append apart rows.parquet
    """)
    size = max(Table.open("apart").snapshot().files["size"].to_pylist())
    keeping = f"apart --set skip_clustered=true --max-file-size {size}"
    remembered = {
        "liquidlog.strategy": "overlap",
        "liquidlog.curve": "kd",
        "liquidlog.tolerance": "1.5",
        "liquidlog.minCubeSize": "1GiB",
        "liquidlog.targetCubeSize": "2GiB",
        "delta.targetFileSize": "2048",
    }
    partitioned_table(Path("parts"), files={"a": 2, None: 2})
    yield from _commands(f"""
        plan {keeping}
        plan {keeping} --why
        dry optimize {keeping}
        create mine --schema-from rows.parquet --cluster-by x,s
        append mine rows.parquet
        {_alter("mine", set_properties(remembered))}
        {_alter("mine", set_properties({"liquidlog.zorderBy": "x"}))}
        detail mine
        plan mine
        doctor mine
        optimize mine
        plan parts -o parts.json
        plan parts --where "p = 'a'" --zorder-by v
        dry run parts.json -o parts.jsonl
        dry commit parts.json parts.jsonl
    """)


def _failures(home: Path) -> Iterator[Words]:
    (home / "broken.json").write_text("{}")
    columns = "x BIGINT NOT NULL, s STRING, unused DOUBLE"
    assert said("sql", f"CREATE TABLE delta.`strict` ({columns}) CLUSTER BY (x)")[0] == 0
    yield from _commands(f"""
        detail nowhere
        plan t --strategy fast
        detail t --version 999
        append t other.parquet
        detail t --timestamp 1999-01-01
        run broken.json -o broken.jsonl
        create gone --schema-from rows.parquet --cluster-by x
        append gone rows.parquet
        plan gone -o gone.json
        run gone.json -o gone.jsonl
        fails 1 create t --schema-from rows.parquet
        fails 2 cluster-by t a,b
        fails 2 {_alter("mine", "DROP COLUMN x")}
        fails 2 {_alter("mine", "RENAME COLUMN unused TO x")}
        fails 2 {_alter("t", set_properties({"delta.nope": "1"}))}
        fails 1 append strict rows.parquet nulls.parquet
        fails 1 append t nowhere.parquet
        fails 1 run gone.json -o no/such/result.jsonl
        fails 2 optimize t --executor magic
    """)
    live = set(Table.open("gone").files()["path"].to_pylist())
    for path in (home / "gone").glob("*.parquet"):
        if path.name not in live:
            path.unlink()
    log = home / "strict" / "_delta_log" / f"{0:020d}.json"
    features = '"writerFeatures":['
    log.write_text(log.read_text().replace(features, f'{features}"nobodyKnows",'))
    yield from _commands(f"""
        fails 1 commit gone.json gone.jsonl
        fails 5 {_alter("strict", set_properties({"a": "b"}))}
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
    many = {"x": [n * 7919 % 1000 for n in range(1000)], "s": ["a", "b"] * 500}
    tables = {
        "rows": pa.table(rows),
        "far": pa.table({**rows, "x": list(range(200, 300))}),
        "empty": pa.table(rows).slice(0, 0),
        "other": pa.table({"y": [1]}),
        "many": pa.table(many),
        "nulls": pa.table({**rows, "x": pa.nulls(100, pa.int64())}),
    }
    for name, table in tables.items():
        pq.write_table(table, home / f"{name}.parquet")
    many_asked = [f"x BETWEEN {n * 20} AND {n * 20 + 9}" for n in range(40)]
    many_asked += ["x > 5 AND x < 8.5 AND s > 'a' AND s < 'c'", "x >= 0"]
    many_asked += ["x < 9 AND lower(s) = 'a'", "nope = 1"]
    (home / "many.jsonl").write_text("".join(json.dumps({"where": w}) + "\n" for w in many_asked))
    readers = [{"where": "x < 9", "weight": 3}, {"where": "lower(s) = 'a'"}, {"where": "SELECT 1"}]
    (home / "w.jsonl").write_text("".join(json.dumps(one) + "\n" for one in readers))
    (home / "open.jsonl").write_text(
        """{"where": "s > 'a' AND s < 'c' OR x IS NULL AND s = 'b'"}"""
    )
    (home / "w.sql").write_text("SELECT * FROM t WHERE x = 1; DROP TABLE t")


def test_every_verb_has_a_schema_and_those_that_write_run_dry_here(printed: Printed) -> None:
    options = {
        name: {option for one in command.params for option in one.opts}
        for name, command in commands().items()
    }
    # sql prints the documents of other verbs, and its own of ALTER TABLE.
    others = {"error", "alter", "cubes", "explain"}
    assert (
        set(SCHEMAS) == {name for name in options if "--json" in options[name]} - {"sql"} | others
    )
    # What tick decides, dry and for good, is compared in test_tick.
    assert printed.dry == {name for name in options if "--dry-run" in options[name]} - {"tick"}


def test_a_dry_run_says_what_the_real_run_does_and_changes_nothing(printed: Printed) -> None:
    assert not printed.wrong, "\n".join(map(str, printed.wrong))


def test_documents_are_of_their_schema(printed: Printed) -> None:
    wrong = [
        f"{name} {error.json_path}: {error.message}"
        for name, schema in SCHEMAS.items()
        for document in printed.documents[name]
        for error in Draft202012Validator(schema).iter_errors(document)
    ]
    assert wrong == []


def test_schemas_describe_every_field_and_every_field_occurs(printed: Printed) -> None:
    for name, schema in SCHEMAS.items():
        Draft202012Validator.check_schema(schema)
        fields = set()
        for part in _parts(schema):
            kinds = part.get("type", ())
            if "object" in ([kinds] if isinstance(kinds, str) else kinds):
                assert "additionalProperties" in part or "else" in part, (name, part)
            for key, value in part.get("properties", {}).items():
                assert value.get("description", value.get("$ref")), (name, key)
                fields.add(key)
        assert fields - set(_seen(printed.documents[name])) == set(), name


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and every schema in it that stands for a value."""
    yield schema
    children: list[Any] = [*schema.get("properties", {}).values()]
    children += schema.get("patternProperties", {}).values()
    children += schema.get("$defs", {}).values()
    children += (schema[key] for key in ("items", "additionalProperties", "else") if key in schema)
    for child in children:
        if isinstance(child, dict):
            yield from _parts(child)


def _seen(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for child in value:
            yield from _seen(child)


def test_a_dry_optimize_says_of_its_worth_what_a_plan_says(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    for count in (30, 40, 50):
        table.append(pa.table({"x": range(count)}))
    for more in ([], ["--max-file-size", "1KiB"]):
        worth = said("plan", table.uri, *more)[1].splitlines()[0]
        assert worth in said("optimize", table.uri, "--dry-run", *more)[1].splitlines()
