"""A log is untrusted text: whatever it says, the answer is an answer or an error of ours, soon."""

import contextlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final
from unittest import mock
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from liquidlog.cli import rewriting
from liquidlog.cli.failures import DEBUG_VARIABLE
from liquidlog.cli.main import cli, run
from liquidlog.data.runs import Run
from liquidlog.errors import (
    EXIT_CONFLICT,
    EXIT_ERROR,
    EXIT_OK,
    EXIT_UNSUPPORTED,
    EXIT_USAGE,
    LiquidlogError,
)
from liquidlog.plan import ClusteringPlan, GroupFailure, encode_plan, encode_rewritten_group
from liquidlog.report.jsonable import render_json
from liquidlog.spec.text import visible
from liquidlog.table import Table
from support.arrow_executor import execute
from support.effort import effort
from support.hostile import Log, confuse, hostile_logs, write_log
from support.writers import SCHEMA, rows

EXPECTED_STATUSES: Final = {EXIT_OK, EXIT_ERROR, EXIT_USAGE, EXIT_UNSUPPORTED}

STAGES: Final[dict[str, Callable[[Table], Any]]] = {
    "detail": Table.detail,
    "files": Table.files,
    "history": Table.history,
    "cubes": Table.cubes,
    "health": Table.health,
    "health where": lambda table: table.health(where="x > 1 and s < 'b' or y is null"),
    "plan": lambda table: table.plan(min_cube_size=1000, target_cube_size=3000),
    "full plan": lambda table: table.plan(full=True),
    "explain": lambda table: table.explain(),
}

COMMANDS: Final = ("detail", "files", "history", "health", "plan")


def look_through_facade(uri: str) -> dict[str, str]:
    """Return what each stage said: `ok` or the code of our error.

    Any other exception is let through: it would be a traceback for a user.
    """
    return {name: _outcome(stage, uri) for name, stage in STAGES.items()}


def _outcome(stage: Callable[[Table], Any], uri: str) -> str:
    try:
        render_json(stage(Table.open(uri)))
    except LiquidlogError as error:
        render_json(error.document())
        return error.code
    return "ok"


def command_status(*words: str) -> int:
    """Run a command with its output thrown away; unexpected exceptions are let through."""
    sink = io.StringIO()
    with surfaced(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        return run(cli, list(words))


@contextlib.contextmanager
def surfaced() -> Iterator[None]:
    """Let exceptions out of the command line that it would turn into a sentence."""
    with mock.patch.dict(os.environ, {DEBUG_VARIABLE: "1"}):
        yield


def tree(root: Path) -> dict[str, tuple[int, int]]:
    """Return (size in bytes, time of change in ns) of every file below `root`."""
    return {
        str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in root.rglob("*")
    }


PARTS, EXAMPLES = effort((1, 25), (20, 500))
SECONDS = 10
"""Of the processor: far above what any log here takes, far below a hang."""


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("part", range(PARTS))
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(damaged=hostile_logs(), command=st.sampled_from(COMMANDS), as_json=st.booleans())
def test_a_damaged_log_is_read_or_refused_and_never_written(
    part: int,
    damaged: tuple[str, Log],
    command: str,
    as_json: bool,  # noqa: FBT001  Hypothesis hands it over
) -> None:
    del part  # so that several processes share the long form
    _, log = damaged
    directory = Path(tempfile.mkdtemp())
    try:
        table = directory / "table"
        write_log(log, table)
        before = tree(directory)
        started = time.process_time()
        look_through_facade(str(table))
        words = [command, str(table), *(["--json"] if as_json else [])]
        assert command_status(*words) in EXPECTED_STATUSES
        assert time.process_time() - started < SECONDS
        assert tree(directory) == before
    finally:
        shutil.rmtree(directory)


# Plans and results are documents anybody can write: no such document costs a row, or a file.


PARTS_HOSTILE_DOCUMENTS, EXAMPLES_HOSTILE_DOCUMENTS = effort((1, 25), (5, 1_000))
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
@pytest.mark.parametrize("part", range(PARTS_HOSTILE_DOCUMENTS))
@settings(max_examples=EXAMPLES_HOSTILE_DOCUMENTS, suppress_health_check=list(HealthCheck))
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


# What a log says reaches nobody's terminal as markup or escapes, and nothing of it is lost.


FRAGMENTS = [
    "[/b]",
    "[red]",
    "[link=http://evil]x[/link]",
    ":smile:",
    "\x1b[2J",
    "\x1b]0;owned\x07",
    "\x9b31m",
    "\x7f\b",
    "\u202e\u2066",
    "\u200b\u2028",
    "\n error: no\r",
    "<b onclick='x'>&\"",
    "é日🎈",
    "%s{x}$title\\",
]
HOSTILE = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), min_size=1, max_size=4).map(
    lambda parts: "n" + "".join(parts).encode("utf-8", "ignore").decode().replace("`", "")
)
STYLE = re.compile(r"\x1b\[(?:\d+(?:;\d+)*)?m")
TOKEN = "0123456789ab"  # noqa: S105  the name of a run
VERBS = (
    ("history",),
    ("detail",),
    ("files",),
    ("health", "--cubes"),
    ("health",),
    ("doctor",),
    ("plan",),
    ("plan", "--why"),
    ("plan", "--why", "--limit", "5"),
    ("orphans",),
    ("scan", "--where", "id = 1"),
    ("plan", "--where", "id = 1", "--strategy", "overlap"),
    ("cluster-by", "id", "--dry-run"),
    ("checkpoint", "--dry-run"),
    ("optimize", "--dry-run"),
)
FAILING = (
    ("scan", "--where", "nope = 1"),
    ("cluster-by", "nope"),
    ("plan", "--why", "{name}"),
    ("scan", "--where", "{name}"),
    ("health", "--fail-if", "{name}"),
)


class Stream(io.TextIOWrapper):
    """Standard output of an encoding, a terminal's or not, with what was written to it."""

    def __init__(self, *, terminal: bool, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True, newline="")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal

    @property
    def text(self) -> str:
        self.seek(0)
        return self.read()


@contextmanager
def table_of(name: str) -> Iterator[str]:
    """A table whose log holds a hostile name wherever a log can."""
    directory = tempfile.mkdtemp()
    try:
        uri = f"{directory}/t"
        quoted = f"`{name}`"
        schema = pa.schema([("id", pa.int64()), (name, pa.string())])
        table = Table.create(
            uri,
            schema=schema,
            cluster_by=[quoted],
            properties={"delta.columnMapping.mode": "name", name: name},
        )
        for number in range(2):
            table.append(pa.table([[number, 2], [name, name * 2]], schema=schema))
        info = {
            "operation": name,
            "operationParameters": {name: name},
            "operationMetrics": {name: name},
            "engineInfo": name,
        }
        add = {
            "path": "p%1B%5B2J-%5B%2Fb%5D-%E2%80%AE.parquet",
            "partitionValues": {},
            "size": 1,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps({"numRecords": 1}),
            "tags": {"ZCUBE_ID": name, "ZCUBE_ZORDER_BY": name, "CLUSTERING_PROVIDER": name},
        }
        lines = [
            {"commitInfo": {"timestamp": 0, **info}},
            {"add": {**add, "clusteringProvider": name}},
        ]
        log = Path(uri) / "_delta_log" / f"{3:020d}.json"
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        Run(uri, TOKEN).begin()
        (Path(uri) / f"{Run(uri, TOKEN).name_prefix}\x1b[2J\u202e[b].parquet").write_bytes(b"1")
        yield uri
    finally:
        shutil.rmtree(directory)


def shown(
    words: list[str], *, terminal: bool = False, encoding: str = "utf-8"
) -> tuple[int, str, str]:
    """Run a command; return its status and what came on standard output and error."""
    out, err = (Stream(terminal=terminal, encoding=encoding) for _ in range(2))
    wide = {"COLUMNS": "100000", "TERM": "xterm-256color"}
    with patch.object(sys, "stdout", out), patch.object(sys, "stderr", err):
        with patch.dict(os.environ, wide):
            status = run(cli, words)
        return status, out.text, err.text


def assert_inert(text: str) -> None:
    assert visible(STYLE.sub("", text).replace("\n", "")) == STYLE.sub("", text).replace("\n", "")


@settings(max_examples=effort(1, 60), deadline=None)
@given(HOSTILE)
@example("a[/b]c[red]")
@example("e\x1b[2J\x1b]0;owned\x07\u202e\n:smile:é")
def test_nothing_that_a_log_says_acts_and_nothing_is_lost(name: str) -> None:
    with table_of(name) as uri:
        for verb, *options in VERBS:
            words = [verb, uri, *options]
            status, piped, talk = shown(words)
            assert status == 0, talk
            assert_inert(piped)
            assert "\x1b" not in piped
            assert shown(words, encoding="ascii")[0] == 0
            _, styled, _ = shown(words, terminal=True)
            assert_inert(styled)
            document = shown([*words, "--json"])[1]
            assert_inert(document)
            plain = shown([*words, "--json"], encoding="ascii")[1]
            assert plain.isascii()
            assert set(json.loads(plain)) == set(json.loads(document))
            if verb in {"history", "detail", "health", "files"}:
                quoted = visible(name)
                assert quoted in piped
                assert quoted in STYLE.sub("", styled)
                assert json.dumps(name)[1:-1] in json.dumps(json.loads(document))


@settings(max_examples=effort(1, 60), deadline=None)
@given(HOSTILE)
@example("e\x1b[2J\x1b]0;owned\x07\u202e\nerror: é[/b]")
def test_errors_are_inert_too(name: str) -> None:
    with table_of(name) as uri:
        for verb, *options in FAILING:
            words = [verb, uri, *(option.format(name=name) for option in options)]
            for encoding in ("utf-8", "ascii"):
                status, out, err = shown(words, terminal=True, encoding=encoding)
                assert status in {1, 2}
                assert out == ""
                assert_inert(err)
                heads = [line for line in err.splitlines() if line.startswith("error")]
                assert len(heads) <= 1


@settings(max_examples=effort(1, 30), deadline=None)
@given(HOSTILE)
@example('e\x1b[2J\u202e\n\r<b>é\\"')
def test_pages_and_numbers_are_inert_too(name: str) -> None:
    with table_of(name) as uri:
        page, numbers = Path(uri).parent / "r.html", Path(uri).parent / "n.prom"
        assert shown(["report", uri, "-o", str(page)])[0] == 0
        assert shown(["health", uri, "--openmetrics", str(numbers)])[0] == 0
        for path in (page, numbers):
            assert_inert(path.read_text(encoding="utf-8"))
        lines = numbers.read_text(encoding="utf-8").split("\n")
        assert all(
            re.fullmatch(r'#.*|liquidlog_\w+\{(?:\w+="(?:[^"\\]|\\[n"\\])*",?)+\} \S+|', line)
            for line in lines
        )
        assert_inert(Table.open(uri).health()._repr_html_())
