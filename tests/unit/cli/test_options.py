"""Every option of every command has an effect, or is refused where it would have none."""

import logging
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
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

ANYWHERE: Final = {"--json", "--all", "--verbose", "--config", "--no-config"}
"""Options that have an effect whatever else is given."""
ALWAYS: Final = {
    "advise": {
        *("--workload", "--columns", "--max-columns", "--min-gain", "--max-file-size"),
        *("--payback-days", "--queries-per-day", "--apply", "--output"),
    },
    "append": {"--dry-run"},
    "checkpoint": {"--dry-run"},
    "cluster-by": {"--dry-run", "--yes"},
    "drop-feature": {"--dry-run"},
    "commit": {"--dry-run"},
    "create": {"--dry-run", "--cluster-by", "--partition-by", "--property"},
    "detail": {"--version"},
    "doctor": {"--fix", "--workload", "--payback-days", "--queries-per-day"},
    "files": {"--version", "--limit"},
    "health": {
        "--columns",
        "--where",
        "--fail-if",
        "--openmetrics",
        "--trend",
        "--sample",
        "--cubes",
    },
    "history": {"--limit", "--amplification"},
    "optimize": {"--advice", "--dry-run", "--executor", "--max-file-size", "--yes"},
    "migrate": {"--cluster-by", "--workload", "--max-file-size", "--output"},
    "vacuum": {"--retain", "--dry-run", "--limit"},
    "orphans": {"--delete", "--finished", "--older-than", "--limit"},
    "plan": {"--advice", "--output", "--workload", "--max-file-size", "--why"},
    "report": {"--output", "--workload", "--payback-days", "--queries-per-day"},
    "run": {"--output", "--executor", "--dry-run"},
    "scan": {"--version", "--limit", "--time-zone"},
    "sql": {"--executor", "--spark-conf", "--local-limit", "--dry-run", "--storage-option"},
    "fleet": {
        *("--workload", "--output", "--payback-days", "--queries-per-day", "--storage-option"),
    },
    "tick": {"--policy", "--plan-only", "--openmetrics", "--storage-option"},
    "workload": {"--output", "--table", "--since", "--redact"},
}
"""Options of a verb that do."""
PLANNING: Final = {
    # Option: what makes it have no effect.
    "--full": "plain --full",
    "--strategy": "plain --strategy cube",
    "--curve": "one --curve kd",
    "--zorder-by": "two --zorder-by x",
    "--budget": "two --budget 1GiB",
    "--where": "two --where x=1",
}
WITHOUT_EFFECT: Final = {
    "append": {"--cluster": "plain source --cluster"},
    "cluster-by": {"--none": "two x --none"},
    "commit": {"--set": "two two --set tolerance=2"},
    "create": {
        "--schema-from": "new --like two --schema-from source",
        "--schema": "new --like two --schema source",
        "--like": "new --like two --schema-from source",
        "--column-mapping": "new --like two --column-mapping id"
        " --property delta.columnMapping.mode=name",
    },
    "advise": {"--dry-run": "two --workload readers --dry-run"},
    "detail": {"--timestamp": "two --version 0 --timestamp 2026-01-31"},
    "doctor": {"--dry-run": "two --dry-run"},
    "files": {"--timestamp": "two --version 0 --timestamp 2026-01-31"},
    "optimize": {
        **PLANNING,
        "--set": "plain --set prefix=x",
        "--workload": "plain --workload readers",
        "--spark-conf": "two --executor other --spark-conf a=b",
    },
    "migrate": {
        "--add-to": "parted --cluster-by x --add-to document",
        "--curve": "parted --cluster-by x --curve kd --dry-run",
        "--set": "parted --cluster-by x --set prefix=s --dry-run",
        "--executor": "parted --cluster-by x -o new --executor local",
        "--spark-conf": "parted --cluster-by x --executor local --spark-conf a=b",
        "--yes": "parted --cluster-by x -o new --yes",
        "--dry-run": "parted --cluster-by x -o new --dry-run",
    },
    "orphans": {"--dry-run": "two --dry-run"},
    "tick": {
        "--output": "two --output plans",
        "--dry-run": "two --plan-only -o plans --dry-run",
        "--executor": "two --plan-only -o plans --executor spark",
        "--spark-conf": "two --plan-only -o plans --spark-conf a=b",
    },
    "vacuum": {"--allow-short-retention": "two --allow-short-retention"},
    "drop-feature": {"--truncate-history": "two clustering --truncate-history"},
    "plan": {**PLANNING, "--set": "plain --set prefix=x", "--limit": "two --limit 3"},
    "run": {
        "--spark-conf": "document -o new --executor other --spark-conf a=b",
        "--set": "document -o new --executor other --set local_limit=1GiB",
    },
    "health": {"--workload": "two --workload w --columns x", "--limit": "two --limit 3"},
    "scan": {
        "--where": "two --where x=1 --workload w",
        "--workload": "two --where x=1 --workload w",
        "--timestamp": "two --where x=1 --version 0 --timestamp 2026-01-31",
    },
}
"""Words that give an option beside something that takes its effect away; names become paths."""
SETTINGS_WITHOUT_EFFECT: Final = (
    "optimize two --strategy overlap --set skip_clustered=true",
    "optimize plain --set min_cube_size=1GiB",
    "optimize two --set target_cube_size=1GiB",
    "plan two --set tolerance=1.27",
    "plan two --strategy cube --set min_overlapping_files=4",
    "plan two --strategy overlap --set min_overlap=0.5 --set min_overlapping_files=0",
    "plan two --why --set payback_days=3",
    "plan two --set read_back=false",
    "optimize two --set final=true",
    "optimize two --set reconcile_limit=1GiB --set max_reconciled_share=0",
    "optimize two --strategy overlap --set min_gain=0.2",
    "optimize two --executor other --set local_limit=1GiB",
    "commit document empty --set reconcile_limit=1GiB --set max_reconciled_share=0%",
    "migrate parted --cluster-by x --set target_cube_size=1GiB --dry-run",
    "migrate parted --cluster-by x --set sample=true",
    "migrate parted --cluster-by x --set full=true",
    "migrate parted --cluster-by x --set groups_per_commit=3",
    "migrate parted --cluster-by x -o new --set max_reconciled_share=10%",
    "migrate parted --cluster-by x -o new --set read_back=false",
    "health two --cubes --where x=1",
    "tick two --plan-only",
    "tick two --executor hamsters",
)
WRONG_SETTINGS: Final = (
    *("tolerance", "tolerance=", "tolerance=0.5", "tolerance=much", "tolerence=2", "full=yes"),
    *("budget=big", "max_file_size=1", "min_overlapping_files=-1", "weights=x=1", "=3"),
)
LOCAL: Final = {
    **dict.fromkeys(("detail", "files", "health", "history"), "two"),
    **dict.fromkeys(("plan", "optimize", "doctor", "checkpoint", "orphans", "vacuum"), "two"),
    "advise": "two --workload readers",
    "append": "two source",
    "cluster-by": "two x",
    "commit": "document empty",
    "create": "new --like two",
    "drop-feature": "two clustering",
    "migrate": "parted --cluster-by x --yes",
    "report": "two -o new",
    "run": "document -o new",
    "scan": "two --where x=1",
    "workload": "import two -o new",
}
"""Each verb on local disk, where a storage has no options."""
OPTIONS_GONE: Final = {
    "optimize two --tolerance 2": "--set tolerance=",
    "plan two --min-cube-size=1GiB": "--set min_cube_size=",
    "optimize two --final": "--set final=true",
    "optimize two --no-read-back": "--set read_back=false",
    "optimize two --skip-clustered": "--set skip_clustered=true",
    "plan two --payback-days 3": "--set payback_days=",
    "plan two --throughput 1GiB": "--workload",
    "health two --row-groups": "page index",
}
"""Options of earlier releases, and what the refusal says of each."""


def options() -> Iterator[tuple[str, str]]:
    for verb, command in cli.commands.items():
        for parameter in command.params:
            for name in parameter.opts[-1:]:
                if name.startswith("--"):
                    yield verb, name


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


def test_every_option_is_looked_at() -> None:
    seen = {
        (verb, option)
        for verb in cli.commands
        for option in {
            *ANYWHERE,
            *ALWAYS.get(verb, ()),
            *WITHOUT_EFFECT.get(verb, ()),
            *(("--storage-option",) if verb in LOCAL else ()),
        }
    }
    assert set(options()) - seen == set()
    assert {(verb, name) for verb, names in ALWAYS.items() for name in names} <= set(options())


CASES = [
    *(f"{verb} {words}" for verb, row in WITHOUT_EFFECT.items() for words in row.values()),
    *(f"{verb} {words} --storage-option a=b" for verb, words in LOCAL.items()),
    *SETTINGS_WITHOUT_EFFECT,
    *(f"optimize two --set {text}" for text in WRONG_SETTINGS),
    "detail s3://b/t --storage-option aws_region=a --storage-option aws_region=b",
    "optimize two --spark-conf a=1 --spark-conf a=2",
    "optimize two --set max_file_size=1GiB --set max_file_size=2GiB",
    "optimize two --max-file-size 1GiB --set max_file_size=2GiB",
]


def test_what_has_no_effect_or_is_wrong_is_refused(home: Path) -> None:
    assert all(option in words for row in WITHOUT_EFFECT.values() for option, words in row.items())
    before = sorted(home.rglob("*"))
    taken = []
    for words in CASES:
        status, out, err = said(*_words(words, home))
        if (status, out) != (2, "") or "Traceback" in err or sorted(home.rglob("*")) != before:
            taken.append((words, status, err))
    assert taken == []


def test_options_and_verbs_that_are_gone_name_what_to_use(home: Path) -> None:
    for words, instead in OPTIONS_GONE.items():
        status, out, err = said(*_words(words, home))
        assert (status, out) == (2, ""), words
        assert instead in err, words
    for name, instead in GONE.items():
        status, out, err = said(name, str(home / "two"))
        assert (status, out) == (2, ""), name
        assert instead in err


def _words(words: str, home: Path) -> list[str]:
    names = {path.name for path in home.iterdir()} | {"new"}
    return [str(home / word) if word in names else word for word in words.split()]


# The help of the command line: listed by section without an import, with examples that parse.


VERBS = {name: verb for verbs in SECTIONS.values() for name, verb in verbs.items()}


def examples(command: click.Command) -> list[list[str]]:
    lines = re.findall(r"^  liquidlog (.+)$", command.epilog or "", re.MULTILINE)
    return [shlex.split(line) for line in lines]


def test_help_begins_with_the_summary_and_ends_with_examples_that_parse() -> None:
    _, listed, _ = said("--help")
    for name, command in cli.commands.items():
        first = (command.help or "").split("\n\n")[0].replace("\n", " ")
        assert (command.name, first) == (name, VERBS[name].summary)
        (line,) = [line for line in listed.splitlines() if line.startswith(f"  {name} ")]
        assert line.endswith(f" {VERBS[name].summary}")
        assert len(line) <= 80
        found = examples(command)
        for verb, *words in found:
            assert verb == name
            command.make_context(name, words)
        _, out, _ = said(name, "--help")
        assert shlex.split(out.splitlines()[-1].strip())[1:] == found[-1]
        assert VERBOSE in command.params
        for parameter in command.params:
            assert not isinstance(parameter, click.Option) or parameter.help, parameter.name


def test_listing_the_verbs_imports_none_of_them() -> None:
    program = (
        "import sys; from liquidlog.cli.main import cli, run; status = run(cli, ['--help'])\n"
        "heavy = {'pyarrow', 'numpy', 'msgspec', 'sqlglot', 'deltalake', 'rich', 'fsspec',"
        "'jinja2'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "sys.exit(status)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("modules", ["cli.looking", "cli.changing, liquidlog.operations.writes"])
def test_looking_and_appending_import_neither_sql_nor_delta_rs(modules: str) -> None:
    program = (
        f"import sys, liquidlog.{modules}\n"
        "heavy = {'sqlglot', 'deltalake', 'rich', 'fsspec', 'pandas', 'pyspark'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# -v and -vv, on every verb: lines of the log on stderr, and stdout as it is without.


LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (INFO|DEBUG|WARNING) liquid[\w.]+: \S.*")
ROWS = pa.table({"x": range(10)})


@pytest.fixture
def table(tmp_path: Path) -> str:
    made = Table.create(tmp_path / "t", schema=ROWS.schema, cluster_by=["x"])
    made.append(ROWS)
    made.append(ROWS)
    return made.uri


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


def test_it_ends_with_the_command(table: str) -> None:
    log = logging.getLogger("liquidlog")
    before = log.level, list(log.handlers)
    assert said("detail", table, "-vv")[0] == 0
    assert (log.level, log.handlers) == before
    assert said("detail", table)[2] == ""


def test_three_are_too_many(table: str) -> None:
    status, out, err = said("detail", table, "-vvv")
    assert (status, out) == (2, "")
    assert "-v can be given twice" in err
