"""Options have an effect or are refused where they would have none; help, imports, and -v."""

import io
import logging
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Final

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.shell_completion import ShellComplete
from deltalake import write_deltalake

from liquidlog.cli.main import GONE, SECTIONS, cli, run
from liquidlog.cli.options import FILE_NAME
from liquidlog.cli.output import VERBOSE
from liquidlog.table import Table
from support.commands import commands, said

REFUSED: Final = """
append plain source --cluster
cluster-by two x --none
commit two two --set tolerance=2
commit document empty --set reconcile_limit=1GiB --set max_reconciled_share=0%
create new --like two --schema-from source
create new --like two --schema source
create new --like two --column-mapping id --property delta.columnMapping.mode=name
create memory://bucket/t --schema-from source
advise two --workload readers --dry-run
advise two --workload readers --max-columns 5
advise two --workload readers --min-gain 200%
advise two --workload readers --columns nope
detail two --version 0 --timestamp 2026-01-31
detail two -vvv
doctor two --dry-run
files two --version 0 --timestamp 2026-01-31
optimize plain --full
optimize plain --strategy cube
optimize plain --workload readers
optimize plain --set prefix=x
optimize plain --set min_cube_size=1GiB
optimize one --curve kd
optimize two --zorder-by x
optimize two --budget 1GiB
optimize two --where x=1
optimize two --executor other --spark-conf a=b
optimize two --executor other --set local_limit=1GiB
optimize two --strategy overlap --set skip_clustered=true
optimize two --strategy overlap --set min_gain=0.2
optimize two --set target_cube_size=1GiB
optimize two --set final=true
optimize two --set reconcile_limit=1GiB --set max_reconciled_share=0
optimize two --spark-conf a=1 --spark-conf a=2
optimize two --set max_file_size=1GiB --set max_file_size=2GiB
optimize two --max-file-size 1GiB --set max_file_size=2GiB
optimize two --set tolerance
optimize two --set tolerance=
optimize two --set tolerance=much
optimize two --set tolerence=2
optimize two --set full=yes
optimize two --set min_overlapping_files=-1
optimize two --set weights=x=1
optimize two --set =3
migrate parted --cluster-by x --add-to document
migrate parted --cluster-by x --curve kd --dry-run
migrate parted --cluster-by x --set prefix=s --dry-run
migrate parted --cluster-by x -o new --executor local
migrate parted --cluster-by x --executor local --spark-conf a=b
migrate parted --cluster-by x -o new --yes
migrate parted --cluster-by x -o new --dry-run
migrate parted --cluster-by x --set target_cube_size=1GiB --dry-run
migrate parted --cluster-by x --set sample=true
migrate parted --cluster-by x --set full=true
migrate parted --cluster-by x --set groups_per_commit=3
migrate parted --cluster-by x -o new --set max_reconciled_share=10%
migrate parted --cluster-by x -o new --set read_back=false
orphans two --dry-run
tick two --output plans
tick two --plan-only
tick two --plan-only -o plans --dry-run
tick two --plan-only -o plans --executor spark
tick two --plan-only -o plans --spark-conf a=b
tick two --executor hamsters
vacuum two --allow-short-retention
drop-feature two clustering --truncate-history
plan plain --full
plan two --limit 3
plan two --set tolerance=1.27
plan two --strategy cube --set min_overlapping_files=4
plan two --strategy overlap --set min_overlap=0.5 --set min_overlapping_files=0
plan two --why --set payback_days=3
plan two --set read_back=false
run document -o new --executor other --spark-conf a=b
run document -o new --executor other --set local_limit=1GiB
health two --workload w --columns x
health two --limit 3
health two --where nope=1
health two --cubes --where x=1
scan two --where x=1 --workload w
scan two --where x=1 --version 0 --timestamp 2026-01-31
scan two --where x=1 --time-zone Nowhere/Here
detail s3://b/t --storage-option aws_region=a --storage-option aws_region=b
detail none://bucket/t
"""
"""Words that give an option beside something that takes its effect away, or are wrong."""
LOCAL: Final = """
plan two
optimize two
history two
advise two --workload readers
append two source
commit document empty
create new --like two
migrate parted --cluster-by x --yes
run document -o new
workload import two -o new
"""
"""Verbs on local disk, where a storage has no options."""
OPTIONS_GONE: Final = {
    "optimize two --tolerance 2": "--set tolerance=",
    "plan two --min-cube-size=1GiB": "--set min_cube_size=",
    "optimize two --final": "--set final=true",
    "optimize two --no-read-back": "--set read_back=false",
    "optimize two --skip-clustered": "--set skip_clustered=true",
    "plan two --payback-days 3": "--set payback_days=",
    "plan two --throughput 1GiB": "--workload",
    "health two --row-groups": "page index",
    **{f"{verb} two": instead for verb, instead in GONE.items()},
}
"""Options and verbs of earlier releases, and what the refusal says of each."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with two clustering columns, one and none, a data file and a plan."""
    home = tmp_path_factory.mktemp("options")
    rows = pa.table({"x": [1, 2], "s": ["a", "b"]})
    pq.write_table(rows, home / "source")
    (home / "empty").touch()
    (home / "readers").write_text('{"where": "x = 1"}')
    for name, columns in (("two", ["x", "s"]), ("one", ["x"]), ("plain", [])):
        Table.create(home / name, schema=rows.schema, cluster_by=columns).append(rows)
    write_deltalake(str(home / "parted"), rows, partition_by=["s"])
    assert said("plan", str(home / "two"), "-o", str(home / "document"))[0] == 0
    return home


def _words(words: str, home: Path) -> list[str]:
    names = {path.name for path in home.iterdir()} | {"new"}
    return [str(home / word) if word in names else word for word in words.split()]


def test_what_has_no_effect_or_is_wrong_is_refused(home: Path) -> None:
    local = [f"{words} --storage-option a=b" for words in LOCAL.strip().splitlines()]
    before = sorted(home.rglob("*"))
    taken = []
    for words in [*REFUSED.strip().splitlines(), *local]:
        status, out, err = said(*_words(words, home))
        if (status, out) != (2, "") or "Traceback" in err or sorted(home.rglob("*")) != before:
            taken.append((words, status, err))
    assert taken == []


def test_options_and_verbs_that_are_gone_name_what_to_use(home: Path) -> None:
    for words, instead in OPTIONS_GONE.items():
        status, out, err = said(*_words(words, home))
        assert (status, out) == (2, ""), words
        assert instead in err, words


def test_help_begins_with_the_summary_and_ends_with_examples_that_parse() -> None:
    _, listed, _ = said("--help")
    for name, verb in [pair for verbs in SECTIONS.values() for pair in verbs.items()]:
        command = commands()[name]
        first = (command.help or "").split("\n\n")[0].replace("\n", " ")
        assert (command.name, first) == (name, verb.summary)
        assert re.search(rf"^  {name} +{re.escape(verb.summary)}$", listed, re.MULTILINE)
        lines = re.findall(r"^  liquidlog (.+)$", command.epilog or "", re.MULTILINE)
        for example in lines:
            found, *words = shlex.split(example)
            assert found == name
            command.make_context(name, words)
        assert said(name, "--help")[1].endswith(f"{lines[-1]}\n")
        assert VERBOSE in command.params
        options = [one for one in command.params if isinstance(one, click.Option)]
        assert all(option.help for option in options)
    assert max(map(len, listed.splitlines())) <= 80


@pytest.mark.parametrize(
    ("program", "heavy"),
    [
        ("from liquidlog.cli.main import cli, run; run(cli, ['--help'])", "pyarrow numpy msgspec"),
        (
            "from liquidlog.cli.main import cli, run; run(cli, ['nosuch'])",
            "liquidlog.plan liquidlog.clustering",
        ),
        ("import liquidlog.cli.looking", "liquidlog.foresee liquidlog.operations.optimize"),
        ("import liquidlog.cli.changing, liquidlog.operations.writes", ""),
    ],
)
def test_little_is_imported(program: str, heavy: str) -> None:
    names = {*heavy.split(), "sqlglot", "deltalake", "rich", "fsspec", "jinja2", "pandas"}
    check = f"import sys; {program}; found = {names} & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", check], check=True, stdout=subprocess.DEVNULL)


LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|DEBUG|WARNING) liquid[\w.]+: \S.*")


def test_verbose_lines_are_added_on_stderr_until_the_command_ends(home: Path) -> None:
    words = ("plan", str(home / "two"), "--json", "--max-file-size", "1GiB")
    log = logging.getLogger("liquidlog")
    before = log.level, list(log.handlers)
    _, quiet, nothing = said(*words)
    assert nothing == ""
    ids = re.compile(r'"(?:plan_id|zcube_id)": "[^"]+"')
    lengths = []
    for option, levels in (("-v", {"INFO"}), ("-vv", {"INFO", "DEBUG"})):
        status, out, err = said(*words, option)
        assert (status, ids.sub("", out)) == (0, ids.sub("", quiet))
        found = [LINE.fullmatch(line) for line in err.splitlines()]
        assert {line and line[1] for line in found} == levels
        lengths.append(len(found))
    assert 0 < lengths[0] < lengths[1]
    assert (log.level, log.handlers) == before


# What shells are offered: verbs, options, names, files.


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
    for verb, command in commands().items():
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
        ("run plan --set ", ["read_back=", "local_limit="]),
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


def test_defaults_do_not_get_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


# What locks other writers out is said before it is done, and asked for.


@pytest.fixture
def plain(tmp_path: Path) -> str:
    """A table of delta-rs, without clustering."""
    write_deltalake(tmp_path, pa.table({"a": [1]}))
    return str(tmp_path)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nobody_is_asked_where_nobody_can_answer(plain: str) -> None:
    status, out, err = said("cluster-by", plain, "a")
    assert (status, out) == (2, "")
    assert "delta-rs" in err
    assert "--yes" in err
    assert Table.open(plain).snapshot().version == 0
    status, _, err = said("cluster-by", plain, "a", "--yes")
    assert status == 0
    assert "delta-rs" in err
    assert said("cluster-by", plain, "--none")[0] == 0
    assert said("cluster-by", plain, "a")[0] == 0, "nothing becomes of the protocol now"


def test_what_cannot_be_done_is_not_asked_for(plain: str) -> None:
    assert said("cluster-by", plain, "nope")[0] == 2
    assert said("cluster-by", plain, "--none")[0] == 0


@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 2), ("\n", 2)])
def test_who_is_asked(
    plain: str, answer: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert run(cli, ["cluster-by", plain, "a"]) == status
    assert Table.open(plain).snapshot().version == (1 if status == 0 else 0)


def test_a_rehearsal_and_a_statement_say_it_and_ask_nothing(plain: str) -> None:
    status, out, _ = said("cluster-by", plain, "a", "--dry-run")
    assert status == 0
    assert "would ask first" in out
    assert Table.open(plain).snapshot().version == 0
    status, _, err = said("sql", f"ALTER TABLE '{plain}' CLUSTER BY (a)")
    assert status == 0
    assert "delta-rs" in err
