import logging
from pathlib import Path

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner

from liquidlog import Table
from liquidlog.cli import rewriting
from liquidlog.cli.main import cli
from liquidlog.cli.output import executors_heard
from liquidlog.operations.executors import EXECUTOR_GROUP


@pytest.mark.parametrize(("as_json", "shown"), [(False, "starting Spark\nslowly\n"), (True, "")])
def test_what_executors_say_is_shown_but_beside_json(
    capsys: pytest.CaptureFixture[str], *, as_json: bool, shown: str
) -> None:
    log = logging.getLogger(EXECUTOR_GROUP)
    before = (log.level, list(log.handlers))
    with click.Context(cli) as context:
        context.meta["--json"] = as_json
        with executors_heard():
            log.info("starting Spark")
            log.warning("slowly")
    log.info("starting it again")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", shown)
    assert (log.level, log.handlers) == before


@pytest.mark.parametrize(
    "arguments", [["optimize"], ["optimize", "--set", "final=true", "--strategy=overlap"], ["sql"]]
)
@pytest.mark.parametrize("rows", [0, 12])
def test_no_executor_begins_where_there_is_nothing_to_rewrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], rows: int
) -> None:
    begun: list[str] = []

    def opened(*_: object, **__: object) -> None:
        begun.append("opened")
        raise AssertionError

    monkeypatch.setattr(rewriting, "open_executor", opened)
    table = Table.create(tmp_path / "t", schema=pa.schema([("a", pa.int64())]), cluster_by=["a"])
    for _ in range(rows):
        table.append(pa.table({"a": range(rows)}))
    place = f"OPTIMIZE '{tmp_path / 't'}'" if arguments == ["sql"] else str(tmp_path / "t")
    done = CliRunner().invoke(cli, [*arguments, place])
    assert bool(begun) == bool(rows)
    if not rows:
        assert done.exit_code == 0
