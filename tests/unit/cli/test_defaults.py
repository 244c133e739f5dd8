"""Defaults from a file: which file counts, what it may say, and that the command line wins."""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from liquidlog.cli.options import FILE_NAME, VARIABLE, read_storages
from liquidlog.errors import UsageError
from liquidlog.table import Table
from support.commands import said

ROWS = pa.table({"x": range(10), "y": range(10)})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a table `t`."""
    table = Table.create(tmp_path / "t", schema=ROWS.schema, cluster_by=["x", "y"])
    table.append(ROWS)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned(*words: str, table: str = "t") -> Mapping[str, Any]:
    status, out, err = said("plan", table, "--json", *words)
    assert (status, err) == (0, "")
    found: Mapping[str, Any] = json.loads(out)
    return found


def curve(found: Mapping[str, Any]) -> str:
    return str(found["policy"]["curve"]["value"])


def refused(*words: str) -> str:
    """What is said of wrong usage, which writes nothing."""
    status, out, err = said(*words)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def test_the_nearest_file_counts_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / FILE_NAME).write_text('[plan]\ncurve = "kd"\nstrategy = "overlap"\n')
    inner = home / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    found = planned(table="../../t")
    assert (found["strategy"], curve(found)) == ("overlap", "kd")
    (home / "a" / FILE_NAME).write_text('[plan]\ncurve = "zorder"\n')
    found = planned(table="../../t")
    assert (found["strategy"], curve(found)) == ("cube", "zorder")


def test_the_command_line_wins_over_the_file_and_the_file_over_a_property(home: Path) -> None:
    Table.open(home / "t").set_properties({"liquidlog.curve": "linear"})
    assert curve(planned()) == "linear"
    (home / FILE_NAME).write_text('[plan]\ncurve = "kd"\n')
    assert curve(planned()) == "kd"
    assert curve(planned("--curve", "zorder")) == "zorder"
    assert curve(planned("--no-config")) == "linear"


def test_a_named_file_counts_instead(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / FILE_NAME).write_text('[plan]\ncurve = "kd"\n')
    (home / "one.toml").write_text('[plan]\ncurve = "zorder"\n')
    (home / "two.toml").write_text("[plan]\nmax-file-size = 1048576\n")
    monkeypatch.setenv(VARIABLE, "one.toml")
    assert curve(planned()) == "zorder"
    found = planned("--config", "two.toml")
    assert (curve(found), found["policy"]["max_file_bytes"]["value"]) == ("hilbert", 1 << 20)
    assert curve(planned("--no-config")) == "hilbert"
    assert "--no-config" in refused("plan", "t", "--no-config", "--config", "two.toml")
    assert "is no file" in refused("plan", "t", "--config", "none.toml")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[plan]\nmax-file-siz = 1", "[plan] max-file-siz: plan has no option"),
        ("[plan]\nrounds = 1", "[plan] rounds: plan has no option"),
        ("[plam]\n", "[plam] is no verb; did you mean plan?"),
        ("plan = 1", "[plan] must be a table"),
        ('[plan]\nbudget = "big"', "[plan] budget: 'big' is not a size"),
        ("[plan]\nbudget = true", "[plan] budget: expected text or a number, found True"),
        ("[plan]\nbudget = -1", "[plan] budget: '-1' is not a size"),
        ("[plan]\nbudget = [1]", "[plan] budget: expected text or a number"),
        (
            '[plan]\nskip-clustered = "yes"',
            "[plan] skip-clustered: 'yes' is neither true nor false",
        ),
        ("[plan]\ntolerance = 1979-05-27", "[plan] tolerance: tolerance must be a number"),
        ("[plan]\n[plan]", "is not TOML"),
        ("x", "is not TOML"),
        ("a=" + "[" * 100_000, "is not TOML"),
        ("#" * (2 << 20), "has more than 1048576 bytes"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_key(text: str, named: str, home: Path) -> None:
    (home / FILE_NAME).write_text(text)
    said_of_it = refused("plan", "t")
    assert str(home / FILE_NAME) in said_of_it
    assert named in said_of_it
    assert planned("--no-config")


DANGEROUS = {
    "cluster-by t x": ["yes = true"],
    "vacuum t": ['retain = "1s"', "allow-short-retention = true"],
    "orphans t": ["delete = true"],
    "doctor t": ['fix = ["all"]'],
    "optimize t": ["dry-run = true", "read-back = false", "full = true"],
    "plan t": ['output = "/tmp/x"', 'storage-option = "a=b"'],
    "drop-feature t clustering": ["truncate-history = true"],
}


@pytest.mark.parametrize("name", [FILE_NAME, "own.toml"])
def test_nothing_dangerous_comes_from_a_file(name: str, home: Path) -> None:
    for words, lines in DANGEROUS.items():
        for line in lines:
            (home / name).write_text(f"[{words.split()[0]}]\n{line}\n")
            config = [] if name == FILE_NAME else ["--config", name]
            assert "cannot come from a file" in refused(*words.split(), *config)


def test_what_runs_code_or_sends_credentials_needs_a_named_file(home: Path) -> None:
    text = '[run.spark-conf]\n"spark.jars" = "evil.jar"\n'
    (home / FILE_NAME).write_text(text)
    assert f"give --config {home / FILE_NAME}" in refused("run", "p", "-o", "r")
    (home / FILE_NAME).write_text('[storage-options."s3://b"]\naws_endpoint_url = "http://evil"\n')
    assert f"give --config {home / FILE_NAME}" in refused("detail", "t")


def test_spark_settings_are_taken_from_a_named_file(home: Path) -> None:
    (home / "own.toml").write_text('[optimize.spark-conf]\n"spark.a" = 8\n')
    words = ["optimize", "t", "--executor", "local", "--config", "own.toml"]
    found = refused(*words)
    # That they reach the executor shows in that this one refuses them.
    assert "a Spark configuration has no effect with the executor local" in found
    assert found.endswith("own.toml sets --spark-conf for optimize\n")


def test_verbs_that_write_say_that_a_found_file_counted(home: Path) -> None:
    (home / FILE_NAME).write_text('[optimize]\nexecutor = "local"\n')
    note = f"note: {home / FILE_NAME} sets --executor for optimize\n"
    assert said("optimize", "t", "--dry-run")[2] == note
    assert said("optimize", "t", "--dry-run", "--json")[2] == ""
    assert said("optimize", "t", "--dry-run", "--config", FILE_NAME)[2] == ""
    assert said("detail", "t")[2] == ""


def test_a_file_of_another_user_does_not_count(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.getuid()
    (home / FILE_NAME).write_text("no TOML")
    inner = home / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    monkeypatch.setattr("os.getuid", lambda: owner + 1)
    if owner == 0:  # files of root count for everybody
        os.chown(home / FILE_NAME, 12345, 12345)
    assert planned(table="../t")


STORAGES = """
[storage-options."s3://lake"]
aws_region = "here"
aws_access_key_id = { env = "LAKE_ID" }
[storage-options."s3://lake/secret/"]
aws_region = "there"
aws_allow_http = true
[storage-options."gs://"]
google_base_url = "http://x"
"""


def test_storage_options_go_by_the_longest_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_ID", "me")
    found = read_storages(tomllib.loads(STORAGES)["storage-options"], "here")
    lake = {"aws_region": "here", "aws_access_key_id": "me"}
    for addresses, expected in (
        ("s3://lake/a", lake),
        ("s3a://lake/a s3://lake", lake),
        ("s3://lake/secret/t", {"aws_region": "there", "aws_allow_http": "true"}),
        ("s3://lakes/a", {}),
        ("gs://any/t /local", {"google_base_url": "http://x"}),
        ("gcs://any", {"google_base_url": "http://x"}),
        ("t", {}),
    ):
        assert dict(found.of(*addresses.split())) == expected
    assert "me" not in repr(found)
    with pytest.raises(UsageError, match="s3://lake/a and gs://b/a have different"):
        found.of("s3://lake/a", "gs://b/a")


@pytest.mark.parametrize(
    ("prefix", "value"),
    [
        ("s3://b", {"aws_secret_access_key": "S3cret"}),
        ("s3://b", {"azure_storage_sas_token": "S3cret"}),
        ("s3://b", {"aws_region": ["S3cret"]}),
        ("s3://b", {"aws_region": {"env": "A", "other": "S3cret"}}),
        ("s3://b", {"aws_region": {"env": 1}}),
        ("./local", {"aws_region": "x"}),
        ("s3://user:S3cret@b", {"aws_secret_access_key": "x"}),
        ("s3://b?sig=S3cret", {"aws_region": "x"}),
    ],
)
def test_wrong_storage_options_are_refused_without_their_values(prefix: str, value: object) -> None:
    with pytest.raises(UsageError) as caught:
        read_storages({prefix: value}, "here")
    assert "S3cret" not in caught.value.message


def test_verbs_look_for_options_of_storages(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKE_ID", raising=False)
    (home / "own.toml").write_text(STORAGES)
    Table.open(home / "t").append(ROWS)
    assert said("plan", "t", "-o", "p.json", "--config", "own.toml")[0] == 0
    plan = json.loads((home / "p.json").read_text())
    (home / "p.json").write_text(json.dumps({**plan, "table_uri": "s3://lake/a"}))
    (home / "r.jsonl").touch()
    for words in (
        ["detail", "s3://lake/a"],
        ["tick", "s3://lake/*"],
        ["sql", "DESCRIBE DETAIL delta.`s3://lake/a`"],
        ["workload", "import", "s3://lake/a", "-o", "w.jsonl"],
        ["run", "p.json", "-o", "new.jsonl"],
        ["commit", "p.json", "r.jsonl"],
    ):
        assert "no variable LAKE_ID" in refused(*words, "--config", "own.toml")
