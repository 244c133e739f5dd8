"""Samples of the documents under the packages that run them; `make test-places` brings those.

Each is taken from its page, put where it would lie, and parsed, imported or run. Commands in them
are those of this environment, and the tables are real.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from liquidlog.fleet.policy import parse_policy
from liquidlog.table import Table
from support.commands import commands
from support.examples import blocks
from support.repository import ROOT, text

PAGE: Final = "docs/how-to/schedulers.md"
COMMAND: Final = "/opt/liquidlog/bin/liquidlog"
OWN: Final = str(Path(sys.executable).parent / "liquidlog")
"""The command of this environment."""
ROWS: Final = pa.table({"x": range(100)})


def sample(title: str) -> str:
    (found,) = [block.code for block in blocks(text(PAGE)) if block.title == title]
    return found


def python_of(place: str) -> str:
    """The interpreter that has the packages of a place."""
    found = ROOT / ".tools" / f"places-{place}" / "bin" / "python"
    if not found.exists():
        pytest.skip(f"{place} is not installed in .tools: make test-places")
    return str(found)


def ran(words: list[str], home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=home,
        env={**os.environ, "HOME": str(home), **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )


def printed(place: str, program: str, home: Path, **environment: str) -> Any:
    """What a program says of a sample, on its last line, as JSON."""
    done = ran([python_of(place), "-c", program], home, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory with a table of two files, and a policy by which they are worth joining."""
    table = Table.create(tmp_path / "t", schema=ROWS.schema, cluster_by=["x"])
    table.append(ROWS)
    table.append(ROWS)
    (tmp_path / "policy.toml").write_text('tables = ["./t"]\n[rewrite.when]\ncommits = 1\n')
    return tmp_path


def is_rewritten(home: Path) -> bool:
    return len(Table.open(home / "t").snapshot().files) == 1


def require_understood(line: str) -> None:
    """Parse the words of a command of ours as it would, up to what the shell does with it."""
    words = shlex.split(line.partition(">")[0].partition("|")[0])
    assert words[0] in {COMMAND, "liquidlog"}
    commands()[words[1]].make_context(words[1], words[2:])


def cron_lines() -> list[str]:
    lines = sample("crontab").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_cron_understands_when(tmp_path: Path) -> None:
    times = [" ".join(line.split()[:5]) for line in cron_lines()]
    program = (
        "import json; from croniter import croniter\n"
        f"print(json.dumps([croniter.is_valid(one) for one in {times}]))"
    )
    assert printed("checks", program, tmp_path) == [True, True]


def test_cron_runs_the_commands(home: Path) -> None:
    first, second = (line.split(maxsplit=5)[5] for line in cron_lines())
    places = {
        COMMAND: OWN,
        "/etc/liquidlog": str(home),
        "/var/log/liquidlog": str(home),
        "/var/lib/node_exporter": str(home),
    }
    for line in (second, first):
        assert "%" not in line  # cron takes it for a line end
        require_understood(line)
        for place, own in places.items():
            line = line.replace(place, own)  # noqa: PLW2901  the same line, elsewhere
        assert ran(["/bin/sh", "-c", line], home).returncode == 0
    assert is_rewritten(home)
    assert "would be rewritten" in (home / "monday.log").read_text()
    assert "1 table: 1 rewritten" in (home / "tick.log").read_text()
    assert "liquidlog_tick" in (home / "liquidlog.prom").read_text()


AIRFLOW = """
import json
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization
bag = DagBag("dags")
dag = bag.dags["liquidlog_tick"]
dag.validate()
DagSerialization.to_dict(dag)
(task,) = dag.tasks
task.execute({})
print(json.dumps([bag.import_errors, len(bag.dags), task.retries, dag.max_active_runs]))
"""


def test_airflow_imports_the_dag_and_runs_its_task(home: Path) -> None:
    (home / "dags").mkdir()
    code = sample("liquidlog_dag.py").replace(COMMAND, OWN)
    code = code.replace("/opt/airflow/config/liquidlog.policy.toml", str(home / "policy.toml"))
    (home / "dags" / "liquidlog_dag.py").write_text(code)
    airflow = {"AIRFLOW_HOME": str(home / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    assert printed("airflow", AIRFLOW, home, **airflow) == [{}, 1, 2, 1]
    assert is_rewritten(home)


DAGSTER = """
import json
import dagster
from liquidlog_dagster import defs, tables_in_shape
dagster.Definitions.validate_loadable(defs)
done = dagster.materialize([tables_in_shape], raise_on_error=False)
found = done.asset_materializations_for_node("tables_in_shape") if done.success else []
metadata = {name: value.value for one in found for name, value in one.metadata.items()}
print(json.dumps([done.success, [one.cron_schedule for one in defs.schedules], metadata]))
"""


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("policy.toml", [True, {"tables": 1, "rewritten": 1}]),
        ("broken.toml", [False, {}]),
        ("none.toml", [False, {}]),
    ],
)
def test_dagster_materializes_the_asset(policy: str, expected: list[Any], home: Path) -> None:
    (home / "broken.toml").write_text('tables = ["./no_table"]\n')
    code = sample("liquidlog_dagster.py").replace("max_retries=2", "max_retries=0")
    (home / "liquidlog_dagster.py").write_text(code)
    own = {"LIQUIDLOG": OWN, "LIQUIDLOG_POLICY": str(home / policy), "DAGSTER_HOME": ""}
    success, schedules, metadata = printed("dagster", DAGSTER, home, **own)
    assert schedules == ["15 * * * *"]
    metadata.pop("bytes_rewritten", None)
    assert [success, metadata] == expected
    assert is_rewritten(home) is success


PROFILE = "p: {target: dev, outputs: {dev: {type: duckdb, path: dev.duckdb}}}\n"


@pytest.fixture
def project(home: Path) -> tuple[Path, Mapping[str, str]]:
    """A project of dbt with one model, and the environment in which the sample runs there."""
    python = Path(python_of("dbt"))
    (home / "models").mkdir()
    (home / "models" / "one.sql").write_text("select 1 as id")
    (home / "dbt_project.yml").write_text("name: p\nversion: 1.0.0\nprofile: p\n")
    (home / "profiles.yml").write_text(PROFILE)
    (home / "policy.toml").rename(home / "liquidlog.policy.toml")
    (home / "dbt-build.sh").write_text(sample("dbt-build.sh"))
    path = f"{python.parent}:{os.environ['PATH']}"
    quiet = {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "DBT_PROFILES_DIR": str(home)}
    return home, {"LIQUIDLOG": OWN, "PATH": path, **quiet}


def test_dbt_builds_and_tables_are_kept_in_shape_behind_it(
    project: tuple[Path, Mapping[str, str]],
) -> None:
    home, environment = project
    done = ran(["bash", "dbt-build.sh"], home, **environment)
    assert done.returncode == 0, done.stdout
    assert "Completed successfully" in done.stdout
    assert is_rewritten(home)


def test_a_build_does_not_fail_by_what_comes_behind_it(
    project: tuple[Path, Mapping[str, str]],
) -> None:
    home, environment = project
    (home / "liquidlog.policy.toml").write_text("no TOML")
    done = ran(["bash", "dbt-build.sh"], home, **environment)
    assert done.returncode == 0
    assert "liquidlog: exit status 2; the models are built" in done.stderr


def test_a_build_that_fails_stays_one(project: tuple[Path, Mapping[str, str]]) -> None:
    home, environment = project
    (home / "models" / "one.sql").write_text("select nothing from nowhere")
    assert ran(["bash", "dbt-build.sh"], home, **environment).returncode == 1
    assert is_rewritten(home)


def test_dbt_parses_the_model_with_its_layout(project: tuple[Path, Mapping[str, str]]) -> None:
    home, environment = project
    (home / "models" / "orders.sql").write_text(sample("orders.sql"))
    done = ran(["dbt", "parse"], home, **environment)
    assert done.returncode == 0, done.stdout
    manifest = json.loads((home / "target" / "manifest.json").read_text())
    (hook,) = manifest["nodes"]["model.p.orders"]["config"]["post-hook"]
    assert "SET TBLPROPERTIES ('liquidlog.maxFileSize' = '256MiB')" in hook["sql"]


def test_the_workflow_is_one_of_github_actions(home: Path) -> None:
    (home / "liquidlog.yml").write_text(sample("liquidlog.yml"))
    program = [python_of("checks"), "-m", "check_jsonschema"]
    schema = ["--builtin-schema", "vendor.github-workflows"]
    done = ran([*program, *schema, "liquidlog.yml"], home)
    assert done.returncode == 0, done.stdout
    wrong = sample("liquidlog.yml").replace("runs-on", "runs_on")
    (home / "wrong.yml").write_text(wrong)
    assert ran([*program, *schema, "wrong.yml"], home).returncode != 0


def test_the_workflow_runs_its_command(home: Path) -> None:
    (line,) = [one for one in sample("liquidlog.yml").splitlines() if "- run: liquidlog" in one]
    command = line.partition("run: ")[2]
    require_understood(command)
    path = f"{Path(OWN).parent}:{os.environ['PATH']}"
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]
    assert ran([*bash, command], home, PATH=path).returncode == 0
    assert json.loads((home / "tick.json").read_text())["tables"][0]["decision"] == "rewrite"
    (home / "policy.toml").unlink()
    assert ran([*bash, command], home, PATH=path).returncode == 2


KUBERNETES = """
import json, yaml
print(json.dumps([*yaml.safe_load_all(open("liquidlog-cronjob.yaml"))]))
"""


def test_kubernetes_takes_the_cron_job(tmp_path: Path) -> None:
    (tmp_path / "liquidlog-cronjob.yaml").write_text(sample("liquidlog-cronjob.yaml"))
    program = [python_of("checks"), "-m", "kubernetes_validate", "--strict"]
    done = ran([*program, "liquidlog-cronjob.yaml"], tmp_path)
    assert done.returncode == 0, done.stderr
    wrong = sample("liquidlog-cronjob.yaml").replace("backoffLimit", "backofLimit")
    (tmp_path / "wrong.yaml").write_text(wrong)
    assert ran([*program, "wrong.yaml"], tmp_path).returncode != 0
    settings, job = printed("checks", KUBERNETES, tmp_path)
    policy = parse_policy(settings["data"]["policy.toml"], "policy.toml")
    assert (policy.tables, policy.budget_minutes) == (("s3://lake/warehouse/**",), 120)
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    require_understood(shlex.join([*container["command"], *container["args"]]))
