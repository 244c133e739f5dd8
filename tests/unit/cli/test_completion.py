"""What shells are offered: verbs, options, names, files."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pyarrow as pa
import pytest
from click.shell_completion import ShellComplete

from liquidlog.cli.main import SECTIONS, cli
from liquidlog.cli.options import FILE_NAME
from liquidlog.table import Table

VERBS = {name: verb for verbs in SECTIONS.values() for name, verb in verbs.items()}
BIN = Path(sys.executable).parent
"""Where the command `liquidlog` is."""


def offered(*words: str) -> list[tuple[str, str, str | None]]:
    """Return (type, value, help) of each thing that is offered behind the last word."""
    complete = ShellComplete(cli, {}, "liquidlog", "_LIQUIDLOG_COMPLETE")
    items = complete.get_completions([*words[:-1]], words[-1])
    return [(item.type, item.value, item.help) for item in items]


def values(*words: str) -> list[str]:
    return [value for _, value, _ in offered(*words)]


def test_verbs_are_offered_with_their_summaries() -> None:
    expected = [("plain", name, verb.summary) for name, verb in VERBS.items()]
    assert offered("") == expected
    assert values("dr") == ["drop-feature"]
    assert values("zz") == []


def test_options_are_offered() -> None:
    for verb, command in cli.commands.items():
        options = {
            name
            for one in command.params
            if isinstance(one, click.Option)
            for name in one.opts
            if name.startswith("--")
        }
        assert set(values(verb, "--")) == options | {"--help"}


def test_names_and_paths_are_offered() -> None:
    for words, expected in (
        ("plan t --strategy ", ["cube", "overlap"]),
        ("optimize t --curve z", ["zorder"]),
        ("optimize t --executor ", ["auto", "local", "spark"]),
        ("tick --executor l", ["local"]),
        ("optimize t --set compr", ["compression="]),
        ("workload ", ["import"]),
    ):
        assert values(*words.split(" ")) == expected
    for words, kind in (
        ("detail ./s", "dir"),
        ("tick a ./s", "dir"),
        ("append t day", "file"),
        ("run pl", "file"),
        ("commit plan.json re", "file"),
        ("health t --openmetrics a", "file"),
    ):
        assert offered(*words.split(" ")) == [(kind, words.split(" ")[-1], None)]


def test_columns_of_a_table_are_offered(tmp_path: Path) -> None:
    place = pa.struct([("city", pa.string())])
    schema = pa.schema([("day", pa.date32()), ("store", pa.int64()), ("place", place)])
    table = Table.create(tmp_path / "t", schema=schema).uri
    every = ["day", "store", "place.city"]
    assert values("advise", table, "--columns", "") == every
    assert values("health", table, "--columns", "p") == ["place.city"]
    assert values("migrate", table, "--cluster-by", "x") == []
    assert values("optimize", table, "--zorder-by", "day,") == ["day,store", "day,place.city"]
    assert values("cluster-by", table, "day,s") == ["day,store"]
    for elsewhere in ("s3://bucket/t", str(tmp_path / "none")):
        assert values("cluster-by", elsewhere, "") == []


def test_no_file_of_defaults_gets_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FILE_NAME).write_text("no TOML")
    monkeypatch.chdir(tmp_path)
    assert values("plan", "t", "--config", "none", "-vvv", "--strategy", "c") == ["cube"]


BASH = """
compopt() { printf 'compopt %s\\n' "$*"; }
eval "$(_LIQUIDLOG_COMPLETE=bash_source liquidlog)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_liquidlog_completion liquidlog
printf '%s\\n' "${COMPREPLY[@]}"
"""


def test_bash_completes_verbs_names_and_directories(tmp_path: Path) -> None:
    def completed(*words: str) -> list[str]:
        done = subprocess.run(
            ["bash", "-c", BASH, "bash", "liquidlog", *words],
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"},
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.stderr == ""
        return done.stdout.split()

    assert completed("dr") == ["drop-feature"]
    assert completed("plan", "t", "--strategy", "o") == ["overlap"]
    assert completed("detail", "sa") == ["compopt", "-o", "dirnames"]
