"""The program for spark-submit, as far as it gets without Spark."""

from pathlib import Path

import pytest

from liquidlog.cli.main import cli, run
from liquidlog.errors import EXIT_ERROR, EXIT_USAGE
from support.plans import save_plan_without_one_input

OTHER_RESULT = (
    b'{"format_version":2,"plan_id":"other","group_id":0,"run":"0123456789ab","outputs":[],"rows_read":0,'
    b'"rows_written":0,"checksum_read":"","checksum_written":"","seconds":0}\n'
)


@pytest.fixture
def plan_path(tmp_path: Path) -> Path:
    return save_plan_without_one_input(tmp_path)


@pytest.mark.parametrize(
    ("plan", "result", "words"),
    [
        (None, None, "cannot be read"),
        (b"{}", None, "is not a"),
        ("good", b'{"format_version": 99}\n', "format version 99"),
        (
            "good",
            OTHER_RESULT,
            "is the result of plan other",
        ),
    ],
)
def test_unusable_documents_are_refused_in_one_sentence(
    plan_path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    plan: bytes | str | None,
    result: bytes | None,
    words: str,
) -> None:
    path = plan_path if plan == "good" else tmp_path / "other.json"
    if isinstance(plan, bytes):
        path.write_bytes(plan)
    result_path = tmp_path / "result.jsonl"
    if result is not None:
        result_path.write_bytes(result)
    assert run(cli, ["run", str(path), "-o", str(result_path)]) == EXIT_ERROR
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_malformed_spark_conf_is_a_usage_error(
    plan_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", str(plan_path), "-o", str(tmp_path / "r"), "--spark-conf", "nonsense"]
    assert run(cli, command) == EXIT_USAGE
    said = capsys.readouterr().err
    assert "key=value" in said
