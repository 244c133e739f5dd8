"""The help of the command line: listed by section without an import, with examples that parse."""

import re
import shlex
import subprocess
import sys

import click
import pytest

from liquidlog.cli.main import SECTIONS, cli, run
from liquidlog.errors import EXIT_USAGE
from support.commands import said

VERBS = {name: verb for verbs in SECTIONS.values() for name, verb in verbs.items()}


def examples(command: click.Command) -> list[list[str]]:
    lines = re.findall(r"^  liquidlog (.+)$", command.epilog or "", re.MULTILINE)
    return [shlex.split(line) for line in lines]


def test_every_verb_stands_in_one_section() -> None:
    names = [name for verbs in SECTIONS.values() for name in verbs]
    assert sorted(names) == sorted(set(names)) == sorted(cli.commands)


def test_every_command_of_the_modules_is_a_verb() -> None:
    taken = {id(command) for command in cli.commands.values()}
    modules = {sys.modules[f"liquidlog.cli.{verb.module}"] for verb in VERBS.values()}
    made = {
        value.name
        for module in modules
        for value in vars(module).values()
        if isinstance(value, click.Command) and id(value) not in taken
    }
    assert made == set()


@pytest.mark.parametrize("name", VERBS)
def test_summary_is_how_the_help_begins_and_is_not_cut_off(name: str) -> None:
    command = cli.commands[name]
    first = (command.help or "").split("\n\n")[0].replace("\n", " ")
    assert (command.name, first) == (name, VERBS[name].summary)
    _, out, _ = said("--help")
    (line,) = [line for line in out.splitlines() if line.startswith(f"  {name} ")]
    assert line.endswith(f" {VERBS[name].summary}")
    assert len(line) <= 80


@pytest.mark.parametrize("name", VERBS)
def test_help_ends_with_examples_that_parse(name: str) -> None:
    command = cli.commands[name]
    found = examples(command)
    assert found
    for verb, *words in found:
        assert verb == name
        command.make_context(name, words)
    _, out, _ = said(name, "--help")
    assert shlex.split(out.splitlines()[-1].strip())[1:] == found[-1]


@pytest.mark.parametrize("name", VERBS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    for parameter in cli.commands[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert "README" not in parameter.help


def test_listing_the_verbs_imports_none_of_them() -> None:
    program = (
        "import sys; from liquidlog.cli.main import cli, run; status = run(cli, ['--help'])\n"
        "heavy = {'pyarrow', 'numpy', 'msgspec', 'sqlglot', 'deltalake', 'rich', 'fsspec',"
        "'jinja2'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "sys.exit(status)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_looking_at_a_table_imports_neither_sql_nor_delta_rs() -> None:
    program = (
        "import sys, liquidlog.cli.looking\n"
        "heavy = {'sqlglot', 'deltalake', 'rich', 'fsspec', 'pandas', 'pyspark'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_no_words_at_all_show_the_verbs() -> None:
    status, out, err = said()
    assert (status, out) == (2, "")
    assert err.startswith("Usage: liquidlog")


def test_without_a_command_the_help_is_shown_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(cli, []) == EXIT_USAGE
    shown = capsys.readouterr().err
    assert run(cli, ["--help"]) == 0
    assert shown == capsys.readouterr().out
