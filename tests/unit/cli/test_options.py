"""Every option of every command has an effect, or is refused where it would have none."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from liquidlog.cli.main import cli
from liquidlog.table import Table
from support.commands import said

ANYWHERE: Final = {"--json", "--verbose", "--config", "--no-config"}
"""Options that have an effect whatever else is given."""

ALWAYS: Final = {
    "advise": {
        "--workload",
        "--columns",
        "--max-columns",
        "--min-gain",
        "--max-file-size",
        "--payback-days",
        "--readings-per-day",
        "--apply",
        "--output",
    },
    "append": {"--dry-run"},
    "checkpoint": {"--dry-run"},
    "cluster-by": {"--dry-run", "--yes"},
    "drop-feature": {"--dry-run"},
    "commit": {"--dry-run", "--groups-per-commit", "--max-reconciled-share"},
    "create": {"--dry-run", "--cluster-by", "--property"},
    "detail": {"--version"},
    "doctor": {"--fix", "--workload", "--payback-days", "--readings-per-day"},
    "drop-column": {"--dry-run"},
    "cubes": {"--limit"},
    "explain": {"--file", "--max-file-size", "--all"},
    "files": {"--version", "--limit"},
    "health": {"--columns", "--where", "--fail-if", "--openmetrics", "--trend", "--row-groups"},
    "history": {"--limit", "--amplification"},
    "optimize": {
        "--advice",
        "--dry-run",
        "--executor",
        "--max-file-size",
        "--compression",
        "--bloom-filter",
        "--groups-per-commit",
        "--max-reconciled-share",
        "--no-read-back",
    },
    "migrate": {
        "--cluster-by",
        "--workload",
        "--max-file-size",
        "--min-cube-size",
        "--compression",
        "--bloom-filter",
        "--output",
    },
    "vacuum": {"--retain", "--dry-run", "--limit"},
    "orphans": {"--delete", "--finished", "--older-than", "--limit"},
    "plan": {
        "--advice",
        "--output",
        "--workload",
        "--max-file-size",
        "--compression",
        "--bloom-filter",
        "--payback-days",
        "--readings-per-day",
    },
    "rename-column": {"--dry-run"},
    "report": {"--output", "--workload", "--payback-days", "--readings-per-day"},
    "run": {"--output", "--executor", "--dry-run", "--no-read-back"},
    "scan": {"--version", "--limit", "--time-zone", "--row-groups"},
    "set-properties": {"--dry-run", "--unset"},
    "sql": {"--executor", "--spark-conf", "--local-limit", "--dry-run", "--storage-option"},
    "fleet": {
        "--workload",
        "--output",
        "--payback-days",
        "--readings-per-day",
        "--storage-option",
    },
    "tick": {"--policy", "--plan-only", "--openmetrics", "--storage-option"},
    "workload": {"--output", "--table", "--since", "--redact"},
    "simulate": {"--append-rate", "--rounds", "--strategy", "--max-file-size", "--plot"},
}
"""Options of a verb that do."""

PLANNING: Final = {
    # Option: what makes it have no effect.
    "--full": "plain --full",
    "--skip-clustered": "two --strategy overlap --skip-clustered",
    "--strategy": "plain --strategy cube",
    "--min-cube-size": "plain --min-cube-size 1GiB",
    "--target-cube-size": "two --target-cube-size 1GiB",
    "--curve": "one --curve kd",
    "--zorder-by": "two --zorder-by x",
    "--budget": "two --budget 1GiB",
    "--where": "two --where x=1",
    "--tolerance": "two --tolerance 1.27",
    "--min-overlapping-files": "two --strategy cube --min-overlapping-files 4",
    "--min-overlap": "two --strategy overlap --min-overlap 0.5 --min-overlapping-files 0",
}
WITHOUT_EFFECT: Final = {
    "append": {"--cluster": "plain source --cluster"},
    "cluster-by": {"--none": "two x --none"},
    "commit": {"--reconcile-limit": "two two --reconcile-limit 1GiB --max-reconciled-share 0%"},
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
    "explain": {
        **PLANNING,
        "--replay": "two --replay 1 --file x",
        "--limit": "two --replay 1 --limit 3",
    },
    "files": {"--timestamp": "two --version 0 --timestamp 2026-01-31"},
    "optimize": {
        **PLANNING,
        "--prefix": "plain --prefix x",
        "--workload": "plain --workload readers",
        "--final": "two --final",
        "--reconcile-limit": "two --reconcile-limit 1GiB --max-reconciled-share 0",
        "--min-gain": "two --strategy overlap --min-gain 0.2",
        "--spark-conf": "two --executor other --spark-conf a=b",
        "--local-limit": "two --local-limit 1GiB",
    },
    "migrate": {
        "--add-to": "parted --cluster-by x --add-to document",
        "--curve": "parted --cluster-by x --curve kd --dry-run",
        "--prefix": "parted --cluster-by x --prefix s --dry-run",
        "--target-cube-size": "parted --cluster-by x --target-cube-size 1GiB --dry-run",
        "--sample": "parted --cluster-by x --sample",
        "--reconcile-limit": "parted --cluster-by x --reconcile-limit 1GiB"
        " --max-reconciled-share 0",
        "--max-reconciled-share": "parted --cluster-by x -o new --max-reconciled-share 10%",
        "--executor": "parted --cluster-by x -o new --executor local",
        "--spark-conf": "parted --cluster-by x --executor local --spark-conf a=b",
        "--local-limit": "parted --cluster-by x --local-limit 1GiB",
        "--no-read-back": "parted --cluster-by x -o new --no-read-back",
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
    "plan": {
        **PLANNING,
        "--prefix": "plain --prefix x",
        "--row-groups": "two --row-groups",
        "--sample": "two --sample",
        "--throughput": "two --throughput 1GiB",
        "--hour-price": "two --hour-price 1",
        "--tib-price": "two --tib-price 1",
        "--currency": "two --currency EUR",
        "--start-seconds": "two --start-seconds 1",
    },
    "run": {
        "--spark-conf": "document -o new --executor other --spark-conf a=b",
        "--local-limit": "document -o new --local-limit 1GiB",
    },
    "health": {"--workload": "two --workload w --columns x"},
    "scan": {
        "--where": "two --where x=1 --workload w",
        "--workload": "two --where x=1 --workload w",
        "--timestamp": "two --where x=1 --version 0 --timestamp 2026-01-31",
    },
    "simulate": {
        "--scenario": "streaming --scenario merge",
        "--min-cube-size": "streaming --strategy all --strategy new --min-cube-size 1GiB",
        "--curve": "streaming --columns 1 --curve kd",
        "--columns": "two --columns 2",
        "--tolerance": "streaming --strategy cube --tolerance 2",
    },
}
"""Words that give an option beside something that takes its effect away; names become paths."""

LOCAL: Final = {
    **dict.fromkeys(("detail", "files", "cubes", "health", "history", "explain"), "two"),
    **dict.fromkeys(("plan", "optimize", "doctor", "checkpoint", "orphans", "vacuum"), "two"),
    "advise": "two --workload readers",
    "append": "two source",
    "cluster-by": "two x",
    "commit": "document empty",
    "create": "new --like two",
    "drop-column": "two x",
    "drop-feature": "two clustering",
    "migrate": "parted --cluster-by x --yes",
    "rename-column": "two x y",
    "report": "two -o new",
    "run": "document -o new",
    "scan": "two --where x=1",
    "set-properties": "two a=b",
    "simulate": "streaming",
    "workload": "import two -o new",
}
"""Each verb on local disk, where a storage has no options."""

ALONE: Final = {"explain": "two --replay 1 --full"}


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
    *(
        (verb, option, words)
        for verb, row in WITHOUT_EFFECT.items()
        for option, words in row.items()
    ),
    *((verb, "--storage-option", f"{words} --storage-option a=b") for verb, words in LOCAL.items()),
    *((verb, "--full", words) for verb, words in ALONE.items()),
]


@pytest.mark.parametrize(("verb", "option", "words"), CASES)
def test_an_option_without_effect_is_refused(
    verb: str, option: str, words: str, home: Path
) -> None:
    assert option in words.split()
    before = sorted(home.rglob("*"))
    names = {path.name for path in home.iterdir()} | {"new"}
    given = [str(home / word) if word in names else word for word in words.split()]
    status, out, err = said(verb, *given)
    assert (status, out) == (2, "")
    assert "Traceback" not in err
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize(
    "words",
    [
        "set-properties two a=1 a=2",
        "detail s3://b/t --storage-option aws_region=a --storage-option aws_region=b",
        "optimize two --spark-conf a=1 --spark-conf a=2",
    ],
)
def test_a_name_has_one_value(words: str, home: Path) -> None:
    given = [str(home / word) if word == "two" else word for word in words.split()]
    assert said(*given)[:2] == (2, "")
