"""A log is untrusted text: whatever it says, the answer is an answer or an error of ours, soon."""

import contextlib
import functools
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
import pyarrow.parquet as pq
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
from support.logs import added, metadata_of, write_actions
from support.repository import ROOT
from support.writers import SCHEMA, rows

# Recorded logs, damaged. A log is a mapping of file names to bytes; mutations work on that mapping,
# so that any number of them add up; only `write_log` touches the disk.

LOGS: Final = ROOT / "fixtures" / "logs"

Log = dict[str, bytes]
Mutation = Callable[[st.DrawFn, Log, str], None]
"""Changes a log in place, beginning with the file of this name."""

_MARK: Final = "@@mark@@"

_CONFUSED: Final = r"""
    null true 0 -1 1 1.5 -0.0 1e2 1e400 -1e400 NaN Infinity 2147483648 9223372036854775807
    9223372036854775808 -9223372036854775808 -9223372036854775809 18446744073709551616 007
    253402300800000 -62135596800001 8640000000000001 20 99999999999
    "" "x" "1" "-1" "99999999999999999999" "NaN" "true" "none" "id"
    "\u0000" "\ud800" "a\ud800b" "\udc00\ud800"
    "../../../etc/passwd" "/etc/passwd" "file:///etc/passwd" "s3://bucket/key" "file://host/x"
    "file:relative" "//host/share" "%2e%2e%2f%2e%2e%2fx" "a%00b" "%" "%zz" "%ff" "a/../../b" "."
    "_delta_log/00000000000000000000.json"
    [] {} [null] [""] ["x","x"] [[]] [["x"]] {"":""} {"x":null} {"x":{"x":{}}} {"x":1,"x":2}
    [1,"a",null,{}] {"type":"struct"} "decimal(99,99)" "decimal(0,-5)"
    "decimal(99999999999999999999,1)" "integer" "timestamp" "0001-01-01T00:00:00.000Z"
    "99999-12-31T23:59:59.999Z" "2024-02-30" "[]" "{}" "null" "[\"x\"]"
    "{\"numRecords\":1e99}" "{\"numRecords\":-1}" "{\"numRecords\":99999999999999999999}"
    "{\"type\":\"struct\",\"fields\":[]}" "{\"type\":\"struct\",\"fields\":[null]}"
"""
CONFUSED: Final = (
    *_CONFUSED.split(),
    *('"\ufeff"', '"\u202e"', '"\xe9"', "1" + "0" * 400, "0.1" + "0" * 400, f'"{"a" * 70_000}"'),
    *("[" * 50_000, '{"x":' * 2_000 + "1" + "}" * 2_000),
    *("[" * depth + "]" * depth for depth in (50, 900, 2_000)),
)
"""Raw JSON texts, each wrong almost everywhere; some of them no encoder would write."""

_DEEP_SCHEMA: Final = (
    '{"type":"struct","fields":[{"name":"x","nullable":true,"metadata":{},"type":' * 1200
    + '"integer"'
    + "}]}" * 1200
)

_LINES: Final = rb"""
    {"add":null,"remove":null}
    {"add":{}}
    {"unknown":{"x":1}}
    {"protocol":{"minReaderVersion":1,"minWriterVersion":2}}
    {"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["x"]}}
    {"add":{"path":"x","size":-1,"modificationTime":-1,"dataChange":true}}
    {"add":{"path":"x","size":9223372036854775807,"dataChange":true,"tags":{"ZCUBE_ID":"\u0000"}}}
    {"add":{"path":"x","size":1,"dataChange":true,"tags":{"ZCUBE_ID":"","ZCUBE_ZORDER_BY":"[[]]"}}}
    {"add":{"path":"y","size":1,"stats":"{\"numRecords\":9223372036854775807}","dataChange":true}}
    {"add":{"path":"y","size":1,"dataChange":true,"deletionVector":{"storageType":"z","offset":-1}}}
    {"add":{"path":"","size":0,"modificationTime":0,"dataChange":true}}
    {"remove":{"path":"","dataChange":true}}
    {"domainMetadata":{"domain":"delta.clustering","configuration":"","removed":false}}
    {"commitInfo":{"timestamp":9223372036854775807,"inCommitTimestamp":-9223372036854775808}}
    {"commitInfo":{"operationParameters":{"a":[[[]]],"b":1e300},"operationMetrics":{"x":"y"}}}
"""
LINES: Final = (
    *(b"", b"null", b"[]", b"{}", b'"x"', b"\xff\xfe", b"\x00", b"{" * 100_000),
    *_LINES.split(),
    (
        rb'{"domainMetadata":{"domain":"delta.clustering","removed":false,"configuration":'
        rb'"{\"clusteringColumns\":[[\"x\"],[\"x\"]]}"}}'
    ),
    json.dumps(metadata_of(_DEEP_SCHEMA)).encode(),
)


@functools.cache
def recorded_log(name: str) -> Log:
    """Return the files of a recorded log by their name below `_delta_log`."""
    root = LOGS / name / "table" / "_delta_log"
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


RECORDED: Final = tuple(sorted(path.parent.name for path in LOGS.glob("*/expected.json")))


def write_log(log: Log, table: Path) -> None:
    """Write a log below `table`; a name that ends with a slash becomes a directory."""
    directory = table / "_delta_log"
    directory.mkdir(parents=True)
    for name, content in log.items():
        target = directory / name.rstrip("/")
        if name.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
        elif not target.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


@st.composite
def hostile_logs(draw: st.DrawFn) -> Log:
    """Return a recorded log after one to four mutations."""
    log = dict(recorded_log(draw(st.sampled_from(RECORDED))))
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3, 4)))):
        mutation, suffix = draw(st.sampled_from(_MUTATIONS))
        name = _file(draw, log, suffix)
        if name is not None:
            mutation(draw, log, name)
    return log


def _file(draw: st.DrawFn, log: Log, suffix: str = "") -> str | None:
    names = sorted(name for name in log if name.endswith(suffix) and not name.endswith("/"))
    return draw(st.sampled_from(names)) if names else None


def _place(draw: st.DrawFn, length: int) -> int:
    return draw(st.integers(0, max(length - 1, 0)))


def _flip_bytes(draw: st.DrawFn, log: Log, name: str) -> None:
    content = bytearray(log[name])
    for _ in range(draw(st.integers(1, 4)) if content else 0):
        content[_place(draw, len(content))] ^= draw(st.integers(1, 255))
    log[name] = bytes(content)


def _truncate(draw: st.DrawFn, log: Log, name: str) -> None:
    log[name] = log[name][: _place(draw, len(log[name]))]


def _change_lines(draw: st.DrawFn, log: Log, name: str) -> None:
    lines = log[name].split(b"\n")
    place, other = _place(draw, len(lines)), _place(draw, len(lines))
    match draw(st.sampled_from(("delete", "double", "swap", "insert", "copy"))):
        case "delete":
            del lines[place]
        case "double":
            lines.insert(place, lines[place])
        case "swap":
            lines[place], lines[other] = lines[other], lines[place]
        case "insert":
            lines.insert(place, draw(st.sampled_from(LINES)))
        case _:
            log[_file(draw, log, ".json") or name] += b"\n" + lines[place] + b"\n"
            return
    log[name] = b"\n".join(lines)


def _confuse_value(draw: st.DrawFn, log: Log, name: str) -> None:
    """Replace one value, or one key, of one action, also inside JSON that is a string."""
    lines = log[name].split(b"\n")
    place = _place(draw, len(lines))
    lines[place] = confuse(draw, lines[place])
    log[name] = b"\n".join(lines)


def confuse(draw: st.DrawFn, text: bytes) -> bytes:
    """Return a JSON text with one value replaced by a confused one."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return text
    value = draw(st.sampled_from(CONFUSED))
    confused = json.dumps(_marked(draw, document), ensure_ascii=False)
    for depth in range(3):
        quote = "\\" * (2**depth - 1) + '"'
        escaped = value
        for _ in range(depth):
            escaped = json.dumps(escaped, ensure_ascii=False)[1:-1]
        confused = confused.replace(quote + _MARK + quote, escaped)
    return confused.encode("utf-8", "surrogatepass")


def _marked(draw: st.DrawFn, value: Any) -> Any:
    """Return `value` with a mark in the place of one of its values, or without one."""
    if isinstance(value, str) and value[:1] in {"{", "["} and draw(st.booleans()):
        try:
            return json.dumps(_marked(draw, json.loads(value)), ensure_ascii=False)
        except (ValueError, RecursionError):
            return _MARK
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        key = draw(st.sampled_from(sorted(value)))
        if not draw(st.integers(0, 9)):
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: _marked(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 5)):
        index = _place(draw, len(value))
        return [*value[:index], _marked(draw, value[index]), *value[index + 1 :]]
    return _MARK


def _double_key(draw: st.DrawFn, log: Log, name: str) -> None:
    key = draw(st.sampled_from((b"path", b"size", b"stats", b"tags", b"schemaString", b"domain")))
    value = draw(st.sampled_from(CONFUSED)).encode("utf-8", "surrogatepass")
    log[name] = log[name].replace(b'"%s":' % key, b'"%s":%s,"%s":' % (key, value, key), 1)


def _move_file(draw: st.DrawFn, log: Log, name: str) -> None:
    """Let a file go, or have another name."""
    content = log.pop(name) if draw(st.booleans()) else log[name]
    version = draw(st.sampled_from((0, 1, 2, 3, 10, 10**18, 2**63, 10**20 - 1)))
    part = draw(
        st.sampled_from(
            (
                *(None, None, None, "json", "checkpoint.parquet", "json.tmp"),
                "checkpoint.0000000001.0000000001.parquet",
                "checkpoint.0000000001.9999999999.parquet",
                "checkpoint.0000000000.0000000000.parquet",
                "checkpoint.00000000-0000-0000-0000-000000000000.json",
                "checkpoint.00000000-0000-0000-0000-000000000000.parquet",
            )
        )
    )
    if part is None:
        log.pop(name, None)
    else:
        log[f"{version:020d}.{part}"] = content


def _replace_file(draw: st.DrawFn, log: Log, name: str) -> None:
    other = log[_file(draw, log) or name]
    found = draw(st.sampled_from((other, b"", bytes(5000), log[name] * 2, None)))
    if found is None:
        del log[name]
        log[f"{name}/"] = b""
    else:
        log[name] = found


def _last_checkpoint(draw: st.DrawFn, log: Log, _: str) -> None:
    value = draw(st.sampled_from(CONFUSED))
    text = draw(st.sampled_from((value, f'{{"version":{value},"size":{value},"parts":{value}}}')))
    log["_last_checkpoint"] = text.encode("utf-8", "surrogatepass")


def _rewrite_checkpoint(draw: st.DrawFn, log: Log, name: str) -> None:
    """Write a checkpoint anew, a column or a field of it lost, nulled or of another type."""
    with contextlib.suppress(pa.ArrowException, OSError, IndexError):
        table = pq.read_table(pa.BufferReader(log[name]))
        index = _place(draw, table.num_columns)
        array = _changed(draw, table.column(index).combine_chunks())
        column = table.column_names[index]
        table = table.remove_column(index)
        if array is not None:
            table = table.add_column(index, column, array)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        log[name] = sink.getvalue().to_pybytes()


def _changed(draw: st.DrawFn, array: pa.Array) -> pa.Array | None:
    if isinstance(array, pa.StructArray) and array.type.num_fields and draw(st.integers(0, 5)):
        names = [field.name for field in array.type]
        index = _place(draw, len(names))
        children: dict[str, pa.Array | None] = {name: array.field(name) for name in names}
        children[names[index]] = _changed(draw, array.field(index))
        left = {name: child for name, child in children.items() if child is not None}
        if not left:
            return None
        return pa.StructArray.from_arrays([*left.values()], names=[*left], mask=array.is_null())
    length, texts = len(array), pa.map_(pa.string(), pa.string())
    return draw(
        st.sampled_from(
            (
                None,
                pa.nulls(length, array.type),
                pa.array([True] * length),
                pa.array([-1] * length, pa.int64()),
                pa.array([2**63 - 1] * length, pa.int64()),
                pa.array([float("nan")] * length),
                pa.array(["\0x"] * length),
                pa.array(["../../x"] * length),
                pa.array([b"\xff\xfe"] * length),
                pa.array([[1]] * length),
                pa.array([{"x": 1}] * length),
                pa.array([[("x", None)]] * length, texts),
                pa.array([[("x", "y")] * 2] * length, texts),
            )
        )
    )


_MUTATIONS: Final[tuple[tuple[Mutation, str], ...]] = (
    *[(_confuse_value, ".json")] * 4,
    *[(_rewrite_checkpoint, ".parquet")] * 3,
    *[(_change_lines, ".json")] * 2,
    *[(_flip_bytes, "")] * 2,
    *((_truncate, ""), (_double_key, ".json"), (_last_checkpoint, "")),
    *((_move_file, ""), (_move_file, ""), (_replace_file, "")),
)
"""What may be done to files whose names end so."""


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
@given(log=hostile_logs(), command=st.sampled_from(COMMANDS), as_json=st.booleans())
def test_a_damaged_log_is_read_or_refused_and_never_written(
    part: int,
    log: Log,
    command: str,
    as_json: bool,  # noqa: FBT001  Hypothesis hands it over
) -> None:
    del part  # so that several processes share the long form
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
            return confuse(draw, text) + b"\n"
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
def test_a_damaged_document_costs_no_row_or_file(
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
        add = added(
            "p%1B%5B2J-%5B%2Fb%5D-%E2%80%AE.parquet",
            1,
            stats=json.dumps({"numRecords": 1}),
            tags={"ZCUBE_ID": name, "ZCUBE_ZORDER_BY": name, "CLUSTERING_PROVIDER": name},
            clusteringProvider=name,
        )
        write_actions(uri, 3, {"commitInfo": {"timestamp": 0, **info}}, add)
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
@example('a[/b]c[red]e\x1b[2J\x1b]0;owned\x07\u202e\n:smile:é<b>\\"')
def test_nothing_that_a_log_says_acts_and_nothing_is_lost(name: str) -> None:
    with table_of(name) as uri:
        for verb, *options in VERBS:
            require_inert(verb, [verb, uri, *options], name)
        for verb, *options in FAILING:
            require_inert_refusal([verb, uri, *(option.format(name=name) for option in options)])
        page, numbers = Path(uri).parent / "r.html", Path(uri).parent / "n.prom"
        assert shown(["report", uri, "-o", str(page)])[0] == 0
        assert shown(["health", uri, "--openmetrics", str(numbers)])[0] == 0
        for path in (page, numbers):
            assert_inert(path.read_text(encoding="utf-8"))
        line = re.compile(r'#.*|liquidlog_\w+\{(?:\w+="(?:[^"\\]|\\[n"\\])*",?)+\} \S+|')
        assert all(map(line.fullmatch, numbers.read_text(encoding="utf-8").split("\n")))
        assert_inert(Table.open(uri).health()._repr_html_())


def require_inert(verb: str, words: list[str], name: str) -> None:
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


def require_inert_refusal(words: list[str]) -> None:
    for encoding in ("utf-8", "ascii"):
        status, out, err = shown(words, terminal=True, encoding=encoding)
        assert status in {1, 2}
        assert out == ""
        assert_inert(err)
        assert len([line for line in err.splitlines() if line.startswith("error")]) <= 1
