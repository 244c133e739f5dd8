"""Long listings: all of it in a pipe, the first with --limit, files explained together."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.data.runs import Run
from liquidlog.operations.planning import explain_together
from liquidlog.table import Table
from support.commands import call, said
from support.logs import added, write_actions

FILES = 250
PROGRAM = "from liquidlog.cli import main; main()"
TOKEN = "0123456789ab"  # noqa: S105  the name of a run


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table of 250 files in two commits, 3 of them in a cube each, and 4 files of a dead run."""
    uri = str(tmp_path_factory.mktemp("listed") / ("t" * 120))
    made = Table.create(uri, schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    adds = []
    for number in range(FILES):
        cube = {"ZCUBE_ID": f"cube-{number}", "ZCUBE_ZORDER_BY": '["x"]'} if number < 3 else {}
        bounds = {"minValues": {"x": number}, "maxValues": {"x": number + 1}}
        add = added(
            f"part-{number:05d}-{'p' * 150}.parquet",
            1000 + number,
            stats=json.dumps({"numRecords": 2, "nullCount": {"x": 0}, **bounds}),
            tags={**cube, "ZCUBE_ZORDER_CURVE": "hilbert"},
            clusteringProvider="liquid" if cube else None,
        )
        adds.append(add)
    write_actions(uri, 1, {"commitInfo": {"timestamp": 0, "operation": "WRITE"}}, *adds)
    Run(uri, TOKEN).begin()
    for number in range(4):
        (Path(uri) / f"{Run(uri, TOKEN).name_prefix}{number}.parquet").write_bytes(b"1")
    return made.uri


ROOTS = [
    (("history",), "history", 2),
    (("history", "--amplification"), "amplification", 2),
    (("files",), "files", FILES),
    (("health", "--cubes"), "cubes", 3),
    (("scan", "--where", "x >= 0"), "files", FILES),
    (("plan", "--why"), "explain", FILES),
    (("orphans",), "files", 4),
]


@pytest.mark.parametrize(("words", "root", "total"), ROOTS)
def test_a_listing_is_whole_and_with_a_limit_its_first(
    words: tuple[str, ...], root: str, total: int, table: str
) -> None:
    verb, *options = words
    status, document, _ = call(verb, table, *options)
    assert (status, document["format_version"], len(document[root])) == (0, 1, total)
    status, limited, rest = call(verb, table, *options, "--limit", "1")
    assert (status, limited["format_version"]) == (0, 1)
    oldest_first = options == ["--amplification"]
    expected = document[root][-1:] if oldest_first else document[root][:1]
    assert [row.get("path", row) for row in limited[root]] == [
        row.get("path", row) for row in expected
    ]
    assert rest == f"{total - 1} more of {total} left out by --limit 1\n"
    assert call(verb, table, *options, "--limit", str(total))[2] == ""

    every = ["--limit", str(total)] if root == "explain" else []
    status, text, err = said(verb, table, *options, *every)
    lines = [line for line in text.splitlines() if line.strip()]
    assert (status, len(lines) >= total, err) == (0, True, "")
    if root in {"files", "explain"}:
        paths = [row["path"] for row in document[root]]
        assert all(sum(path in line for line in lines) == 1 for path in paths)


def test_explain_together_says_what_each_row_says(table: str) -> None:
    opened = Table.open(table)
    for policy in ({}, {"strategy": "overlap", "budget": 20_000}):
        plan = opened.plan(**policy)  # type: ignore[arg-type]
        counted: dict[tuple[str, str], int] = {}
        for row in opened.explain(plan):
            key = (row["decision"], row["reason"])
            counted[key] = counted.get(key, 0) + 1
        together = explain_together(plan, examples=3)
        assert {(one.decision, one.reason): one.files for one in together} == counted


def test_an_environment_without_unicode_gets_escapes(tmp_path: Path) -> None:
    made = Table.create(tmp_path / "t", schema=pa.schema([("é", pa.string())]), cluster_by=["é"])
    made.append(pa.table({"é": ["日本", "x"]}))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "health", made.uri],
        env={**os.environ, "PYTHONUTF8": "0", "LC_ALL": "POSIX"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout.isascii()) == (0, b"", True)
    assert rb"\xe9" in done.stdout
    assert rb"\u65e5" in done.stdout


def test_a_reader_that_stops_reading_is_no_error(table: str) -> None:
    command = [sys.executable, "-c", PROGRAM, "files", table]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
