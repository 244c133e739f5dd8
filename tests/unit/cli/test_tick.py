"""The command `tick`: text, JSON, OpenMetrics, exit status, and options that have no effect."""

from pathlib import Path

import pytest

from support.commands import call, said
from support.lake import copied, ragged

pytestmark = pytest.mark.usefixtures("started")


def policy(home: Path, text: str = "") -> str:
    path = home / "policy.toml"
    path.write_text(f"[rewrite.when]\ncommits = 1\n{text}")
    return str(path)


def test_a_failure_is_told_and_is_the_exit_status(tmp_path: Path) -> None:
    ragged(tmp_path / "good")
    copied("logs/32_truncated_middle", tmp_path / "damaged")
    status, out, err = call("tick", f"{tmp_path}/*", "--policy", policy(tmp_path))
    assert (status, err) == (1, "")
    found = {Path(one["table"]).name: one for one in out["tables"]}
    assert found["good"]["decision"] == "rewrite"
    assert found["damaged"]["error"]["code"] == "corrupt_log"
    assert out["budget"] == {"bytes": None, "spent": found["good"]["bytes_rewritten"]}


def test_a_policy_names_tables_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        ragged(tmp_path / "lake" / name, files=2)
    path = tmp_path / "policy.toml"
    path.write_text('tables = ["lake/*"]\nexclude = ["lake/c"]\n[rewrite.when]\ncommits = 1000\n')
    monkeypatch.chdir(tmp_path / "lake")
    status, out, _ = call("tick", "--policy", str(path))
    assert status == 0
    assert [Path(one["table"]).name for one in out["tables"]] == ["a", "b"]


def test_openmetrics_has_a_number_of_everything(tmp_path: Path) -> None:
    odd = 'a"b\\c'
    ragged(tmp_path / odd)
    where = tmp_path / "tick.prom"
    budget = policy(tmp_path, '[budget]\nbytes = "1GiB"\n')
    status, _, _ = said(
        "tick", f"{tmp_path}/{odd}", "--policy", budget, "--openmetrics", str(where)
    )
    assert status == 0
    text = where.read_text()
    label = f'table="{tmp_path}/a\\"b\\\\c"'
    assert f'liquidlog_tick_decision{{{label},decision="rewrite"}} 1' in text
    assert f"liquidlog_tick_failed{{{label}}} 0" in text
    assert "\nliquidlog_tick_budget_bytes 1073741824\n" in text
    (spent,) = (line for line in text.splitlines() if line.startswith("liquidlog_tick_spent_bytes"))
    assert f"liquidlog_tick_bytes_rewritten{{{label}}} {spent.split()[1]}" in text
    assert text.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "there is no table to look at"),
        (b"tables = 3", "tables: expected a list of texts, found 3"),
        (b"\xff", "not UTF-8 at byte 0"),
        (None, "cannot be read"),
        (b'tables = ["t"]\n[rewrite]\nworkload = "none.jsonl"\n', "none.jsonl"),
        (b'tables = ["t"]\n[rewrite]\nworkload = "w.jsonl"\n', "w.jsonl"),
    ],
)
def test_a_wrong_policy_is_refused(tmp_path: Path, content: bytes | None, named: str) -> None:
    ragged(tmp_path / "t", files=2)
    (tmp_path / "w.jsonl").write_text("nonsense\n")
    path = tmp_path / "policy.toml"
    if content is not None:
        path.write_bytes(content)
    status, out, err = said("tick", "--policy", str(path))
    assert (status, out) == (2, "")
    assert named in err
