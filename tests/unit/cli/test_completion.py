"""What shells are offered: verbs, options, names, files; in bash, zsh and fish where they are."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from click.shell_completion import ShellComplete

from liquidlog.cli.defaults import FILE_NAME
from liquidlog.cli.main import SECTIONS, cli
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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["plan", "t", "--strategy", ""], ["cube", "overlap"]),
        (["optimize", "t", "--curve", "z"], ["zorder"]),
        (["optimize", "t", "--executor", ""], ["auto", "local", "spark"]),
        (["tick", "--executor", "l"], ["local"]),
        (["optimize", "t", "--set", "compr"], ["compression="]),
        (["workload", ""], ["import"]),
    ],
)
def test_names_are_offered(words: list[str], expected: list[str]) -> None:
    assert values(*words) == expected


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


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["detail", "./s"], "dir"),
        (["tick", "a", "./s"], "dir"),
        (["append", "t", "day"], "file"),
        (["run", "pl"], "file"),
        (["commit", "plan.json", "re"], "file"),
        (["health", "t", "--openmetrics", "a"], "file"),
    ],
)
def test_paths_are_left_to_the_shell(words: list[str], kind: str) -> None:
    assert offered(*words) == [(kind, words[-1], None)]


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
ZSH = """
compdef() { : }
compadd() { print -l -- $completions }
_describe() { print -l -- ${completions_with_descriptions%%:*} }
_path_files() { print compopt $1 }
eval "$(_LIQUIDLOG_COMPLETE=zsh_source liquidlog)"
words=("$@"); CURRENT=$#
_liquidlog_completion
"""
FISH = """
eval (_LIQUIDLOG_COMPLETE=fish_source liquidlog | string collect)
complete --do-complete "$argv" | string split --fields 1 \\t
"""
SHELLS = {
    "bash": ["bash", "-c", BASH, "bash"],
    "zsh": ["zsh", "-f", "-c", ZSH, "zsh"],
    "fish": ["fish", "--no-config", "-c", FISH],
}


def completed(shell: str, words: Sequence[str], home: Path) -> list[str]:
    """Return the lines that a shell shows, after loading the script as the documents say."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} on this machine")
    environment: dict[str, Any] = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        [*SHELLS[shell], *words],
        env=environment,
        cwd=home,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_completes_verbs_and_names(shell: str, tmp_path: Path) -> None:
    found = completed(shell, ["liquidlog", "dr"], tmp_path)
    assert sorted(found) == ["drop-feature"]
    words = ["liquidlog", "plan", "t", "--strategy", "o"]
    assert completed(shell, words, tmp_path) == ["overlap"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_completes_directories(shell: str, tmp_path: Path) -> None:
    (tmp_path / "sales").mkdir()
    (tmp_path / "salt.txt").touch()
    found = completed(shell, ["liquidlog", "detail", "sa"], tmp_path)
    expected = {"bash": ["compopt", "-o", "dirnames"], "zsh": ["compopt", "-/"], "fish": ["sales/"]}
    assert found == expected[shell]
