"""-v and -vv, on every verb: lines of the log on stderr, and stdout as it is without."""

import logging
import re
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.cli.main import cli
from liquidlog.cli.verbosity import VERBOSE, executors_heard, logged
from liquidlog.operations.executors import EXECUTOR_GROUP
from liquidlog.table import Table
from support.commands import said

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|DEBUG|WARNING) liquid[\w.]+: \S.*")
ROWS = pa.table({"x": range(10)})


@pytest.fixture
def table(tmp_path: Path) -> str:
    made = Table.create(tmp_path / "t", schema=ROWS.schema, cluster_by=["x"])
    made.append(ROWS)
    made.append(ROWS)
    return made.uri


@pytest.mark.parametrize("name", list(cli.commands))
def test_every_verb_has_it(name: str) -> None:
    assert VERBOSE in cli.commands[name].params


def test_lines_are_added_on_stderr_and_stdout_stays(table: str) -> None:
    status, quiet, nothing = said("plan", table, "--json", "--max-file-size", "1GiB")
    assert (status, nothing) == (0, "")
    ids = re.compile(r'"(?:plan_id|zcube_id)": "[^"]+"')
    lengths = []
    for words, levels in (("-v", {"INFO"}), ("-vv", {"INFO", "DEBUG"})):
        status, out, err = said("plan", table, "--json", "--max-file-size", "1GiB", words)
        assert status == 0
        assert ids.sub("", out) == ids.sub("", quiet)
        found = [LINE.fullmatch(line) for line in err.splitlines()]
        assert all(found)
        assert {line[1] for line in found if line} == levels
        lengths.append(len(found))
    assert 0 < lengths[0] < lengths[1]


def test_an_error_comes_after_the_lines(table: str) -> None:
    status, out, err = said("detail", table, "--version", "9", "-vv")
    assert (status, out) == (1, "")
    assert err.splitlines()[-1].startswith("error: ")


def test_it_ends_with_the_command(table: str) -> None:
    log = logging.getLogger("liquidlog")
    before = log.level, list(log.handlers)
    assert said("detail", table, "-vv")[0] == 0
    assert (log.level, log.handlers) == before
    assert said("detail", table)[2] == ""


def test_what_executors_say_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    with logged(logging.INFO), executors_heard(as_json=False):
        logging.getLogger(EXECUTOR_GROUP).info("starting\x1b[31m\nSpark")
    (line,) = capsys.readouterr().err.splitlines()
    assert LINE.fullmatch(line)
    assert line.endswith(r"INFO liquidlog.executors: starting\x1b[31m\nSpark")


def test_three_are_too_many(table: str) -> None:
    status, out, err = said("detail", table, "-vvv")
    assert (status, out) == (2, "")
    assert "-v can be given twice" in err
