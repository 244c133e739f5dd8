"""`run` and its result file, with the executor that needs no JVM."""

from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.cli.main import cli, run
from liquidlog.errors import EXIT_ERROR, EXIT_OK, EXIT_USAGE
from liquidlog.plan import decode_result
from support.plans import read_outputs, rows_of, save_plan_without_one_input

OTHER_RESULT = (
    b'{"format_version":2,"plan_id":"other","group_id":0,"run":"0123456789ab","outputs":[],"rows_read":0,'
    b'"rows_written":0,"checksum_read":"","checksum_written":"","seconds":0}\n'
)


def test_run_appends_a_line_per_group_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, result_path = save_plan_without_one_input(tmp_path), tmp_path / "result.jsonl"
    command = ["run", str(plan), "-o", str(result_path), "--executor", "local"]
    assert run(cli, command) == EXIT_ERROR
    said = capsys.readouterr().err
    assert "group 1: " in said
    assert "gone.parquet" in said
    after_first = result_path.read_bytes()
    result = decode_result(after_first, where="test")
    assert {group.group_id for group in result.groups} == {0, 2}
    rows = [t for group in result.groups for t in read_outputs(tmp_path, group)]
    assert rows_of(rows) == rows_of([pa.table({"key": pa.array(range(200), pa.int64())})])

    (tmp_path / "gone.parquet").hardlink_to(tmp_path / "input 0.parquet")
    assert run(cli, command) == EXIT_OK
    resumed = result_path.read_bytes()
    assert resumed.startswith(after_first)
    assert [group.group_id for group in decode_result(resumed, where="test").groups][2:] == [1]

    assert run(cli, command) == EXIT_OK
    assert result_path.read_bytes() == resumed


def test_what_cannot_be_used_is_refused_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, result = save_plan_without_one_input(tmp_path), tmp_path / "result.jsonl"
    command = ["run", str(plan), "-o", str(result)]
    assert run(cli, [*command, "--spark-conf", "nonsense"]) == EXIT_USAGE
    assert "key=value" in capsys.readouterr().err
    documents = {
        b'{"format_version": 99}\n': "format version 99",
        OTHER_RESULT: "is the result of plan other",
    }
    for content, words in documents.items():
        result.write_bytes(content)
        assert run(cli, command) == EXIT_ERROR
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1
