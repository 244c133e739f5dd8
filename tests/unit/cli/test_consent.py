"""What locks other writers out is said before it is done, and asked for."""

import io
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from liquidlog.cli.main import cli, run
from liquidlog.table import Table
from support.commands import said


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
def test_a_person_is_asked(
    plain: str, answer: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert run(cli, ["cluster-by", plain, "a"]) == status
    assert Table.open(plain).snapshot().version == (1 if status == 0 else 0)


def test_a_rehearsal_says_it_and_asks_nothing(plain: str) -> None:
    status, out, _ = said("cluster-by", plain, "a", "--dry-run")
    assert status == 0
    assert "would ask first" in out
    assert Table.open(plain).snapshot().version == 0


def test_a_statement_says_it(plain: str) -> None:
    status, _, err = said("sql", f"ALTER TABLE '{plain}' CLUSTER BY (a)")
    assert status == 0
    assert "delta-rs" in err
