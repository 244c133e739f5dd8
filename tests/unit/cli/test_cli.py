"""The command contract: documents on stdout, talk on stderr, exit statuses."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from liquidlog.operations.optimize import read_plan
from liquidlog.plan import encode_rewritten_group
from liquidlog.table import Table
from support.arrow_executor import execute
from support.commands import call, said
from support.deleted import commit_vectors, write_vector
from support.effort import effort

LOGS = Path(__file__).parents[3] / "fixtures" / "logs"
CASES = sorted(path.parent.name for path in LOGS.glob("*/expected.json"))


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "source.parquet"
    table = pa.table({"id": list(range(100)), "x": [n % 7 for n in range(100)], "s": ["a"] * 100})
    pq.write_table(table, path)
    return str(path)


@pytest.fixture
def table(tmp_path: Path, source: str) -> str:
    path = str(tmp_path / "t")
    assert call("create", path, "--schema-from", source, "--cluster-by", "x,id")[0] == 0
    for _ in range(3):
        assert call("append", path, source)[0] == 0
    return path


def test_rows_deleted_meanwhile_are_told(table: str, tmp_path: Path) -> None:
    opened = Table.open(table)
    plan_path, result_path = tmp_path / "p.json", tmp_path / "r.jsonl"
    call("plan", table, "-o", str(plan_path))
    plan = read_plan(str(plan_path))
    result_path.write_bytes(encode_rewritten_group(execute(plan).groups[0]))
    theirs = Path(table) / "theirs.bin"
    vector = write_vector(theirs, [1, 2]).descriptor
    vector = structs.replace(vector, storage_type="p", path_or_inline_dv=theirs.as_uri())
    version = commit_vectors(Path(table), {plan.groups[0].inputs[0].path: vector})
    words = (str(plan_path), str(result_path))
    _, document, _ = call("commit", *words, "--dry-run")
    not_looked = {"files": None, "bytes_read": None, "seconds": None}
    assert document["reconciled"] == {"rows": 2, **not_looked, "versions": [version]}
    assert said("commit", *words, "--dry-run")[1].count("would delete them") == 1
    status, text, _ = said("commit", *words)
    assert status == 0
    assert f"version(s) {version} deleted 2 row(s) meanwhile; they were deleted from" in text
    assert opened.snapshot().version == version + 1


def test_create_with_column_mapping(tmp_path: Path, source: str) -> None:
    path = str(tmp_path / "mapped")
    words = ("--schema-from", source, "--cluster-by", "x", "--column-mapping", "id")
    assert call("create", path, *words)[0] == 0
    assert call("create", path + "2", "--like", path)[0] == 0
    first, second = (Table.open(name).snapshot() for name in (path, path + "2"))
    assert first.metadata.configuration["delta.columnMapping.mode"] == "id"
    assert first.metadata.configuration == second.metadata.configuration
    names = {one.physical_name for made in (first, second) for one in made.schema.fields}
    assert len([name for name in names if name.startswith("col-")]) == 6


READING = ["detail", "files", "history", "health", "plan", "doctor"]


@pytest.mark.parametrize("verb", READING)
def test_no_recorded_log_makes_a_traceback(verb: str) -> None:
    for case in CASES[READING.index(verb) % effort(4, 1) :: effort(4, 1)]:
        status, out, err = call(verb, str(LOGS / case / "table"))
        assert status in {0, 1, 2, 5}, case
        assert (out == "") == (status != 0), case
        assert status != 5 or err["error"]["features"], case


def _in_shell(line: str, *words: str) -> tuple[int, str]:
    """Run a line of the shell, in which "$@" is a command of ours; return status and stderr."""
    command = [sys.executable, "-c", "from liquidlog.cli import main; main()", *words]
    shell = ["/bin/bash", "-c", line, "bash", *command]
    done = subprocess.run(shell, check=False, capture_output=True)
    return done.returncode, done.stderr.decode()


FULL = "error: standard output: cannot be written: No space left on device"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    ("redirected", "words", "status", "begins"),
    [
        (">/dev/full", ["detail", "{}"], 1, FULL),
        (">/dev/full", ["files", "{}", "--json"], 1, '{\n  "error": {\n    "code": "storage"'),
        (">/dev/full", ["--version"], 1, FULL),
        (">&-", ["--help"], 1, "error: standard output is closed"),
        (">&- 2>&-", ["detail", "{}"], 1, ""),
        ("<&-", ["detail", "{}"], 0, ""),
        ("2>&-", ["detail", "nothing"], 1, ""),
        ("2>/dev/full", ["detail", "{}", "-v"], 0, ""),
        ("| true; exit ${PIPESTATUS[0]}", ["--help"], None, ""),
    ],
)
def test_output_that_cannot_be_written_is_one_sentence(
    redirected: str, words: list[str], status: int | None, begins: str, table: str
) -> None:
    found, said = _in_shell(f'"$@" {redirected}', *(word.format(table) for word in words))
    assert status is None or found == status
    assert said.startswith(begins)
    assert bool(said) == bool(begins)
    assert said.startswith("{") or said.count("\n") <= 1


@pytest.mark.parametrize("package", ["click", "liquidlog.cli.main", "pyarrow", "liquidlog.table"])
def test_an_interrupt_of_the_imports_is_one_sentence(package: str) -> None:
    program = f"""
import sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == {package!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from liquidlog.cli import main
main()
"""
    command = [sys.executable, "-c", program, "detail", "t"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    # click ends the line of the terminal's ^C.
    assert done.stderr.lstrip() == "interrupted; groups that were committed stay committed\n"


def test_a_name_with_a_line_end_stays_in_one_line(tmp_path: Path) -> None:
    for words in (["detail", f"{tmp_path}/a\nb"], ["run", "a\nb", "-o", "x"], ["a\nb"]):
        _, _, err = said(*words)
        assert "a\\nb" in err
        assert err.count("\n") == 1


def test_where_the_disk_is_full_it_says_what_is_left(
    table: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    for words in (["append", table, source], ["cluster-by", table, "id"], ["checkpoint", table]):
        status, _, err = said(*words)
        assert status == 1
        assert "No space left on device; free some space there and run this again" in err
