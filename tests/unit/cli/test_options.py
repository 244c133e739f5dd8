"""Options have an effect or are refused where they would have none; help, imports, and -v."""

import logging
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
from deltalake import write_deltalake

from liquidlog.cli.main import GONE, SECTIONS, cli
from liquidlog.cli.output import VERBOSE
from liquidlog.table import Table
from support.commands import said

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
        command = cli.commands[name]
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
        ("import liquidlog.cli.looking", ""),
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
