"""What the packages log: what was read, decided and written, to whoever asked for it."""

import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.logs import Log
from liquidlog.storage.clients import BackOff, again
from liquidlog.table import Table
from support.repository import modules, text

ROWS = pa.table({"x": range(100), "s": [str(n) for n in range(100)]})
SIZE = r"[\d.]+ (?:B|KiB)"


@pytest.fixture(autouse=True)
def detailed(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.DEBUG, logger="liquidlog"):
        yield


def lines(caplog: pytest.LogCaptureFixture, module: str, least: int = logging.INFO) -> list[str]:
    """The lines of a module since the last time."""
    found = [
        record.getMessage()
        for record in caplog.records
        if record.name == f"liquidlog.{module}" and record.levelno >= least
    ]
    caplog.clear()
    return found


def matches(found: list[str], *patterns: str) -> bool:
    return len(found) == len(patterns) and all(
        re.fullmatch(pattern, line) for pattern, line in zip(patterns, found, strict=True)
    )


def made(path: Path) -> Table:
    table = Table.create(path, schema=ROWS.schema, cluster_by=["x"])
    table.append(ROWS)
    table.append(ROWS)
    return table


def test_an_optimize_says_what_becomes_of_each_group(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = made(tmp_path / "t")
    caplog.clear()
    table.optimize(executor="local")
    found = [record.getMessage() for record in caplog.records if "rewriting" in record.name]
    assert matches(
        found,
        rf"group 0: run [0-9a-f]{{12}} rewrites 2 files \({SIZE}\) to about 1",
        rf"group 0: wrote 200 rows to 1 files \({SIZE}\) in [\d.]+ s",
    )
    assert matches(
        lines(caplog, "commit.transaction"),
        r"committed version 3 of .*: OPTIMIZE, 3 actions, at attempt 1, which took \d+ ms",
    )


def test_a_request_that_is_tried_again_is_said_without_what_the_client_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = iter([TimeoutError("sig=abc, secret 123"), None])

    def request() -> int:
        failure = next(failures)
        if failure is not None:
            raise failure
        return 1

    waits = BackOff(sleep=lambda _: None, jitter=lambda _: 0)
    assert again(request, waits) == 1
    assert lines(caplog, "storage.clients") == [
        "a request failed with TimeoutError (HTTP status unknown); trying again in 0.10 s"
    ]


def test_values_are_masked_and_lines_name_their_place(caplog: pytest.LogCaptureFixture) -> None:
    log = Log("liquidlog.some.module")
    log.warning("at %s after %d", "https://user:word@host/x?sig=abc", 3)
    (record,) = caplog.records
    assert record.getMessage() == "at https://***@host/x?sig=*** after 3"
    assert (record.filename, record.funcName) == (
        "test_logging.py",
        "test_values_are_masked_and_lines_name_their_place",
    )
    assert Log("liquidlog.some.module").is_heard


def test_no_module_logs_past_what_masks_values() -> None:
    past = {name for name in modules() if "logging.getLogger(" in text(name)}
    # Two silence packages that log beside errors of ours, one listens.
    others = {
        "liquidlog/storage/clients.py",
        "liquidlog/workload/statements.py",
        "liquidlog/cli/output.py",
    }
    assert past == {"liquidlog/logs.py", *others}


HEARD = "logging.basicConfig(level=logging.INFO, format='%(name)s')"
PROGRAM = """
import logging, sys
{configured}
from liquidlog.table import Table
from liquidlog.logs import Log
Table.open(sys.argv[1]).snapshot()
Log("liquidlog.other").warning("a warning")
own = logging.getLogger("liquidlog")
assert own.level == logging.NOTSET
assert [type(one) for one in own.handlers] == [logging.NullHandler]
"""


@pytest.mark.parametrize(
    ("configured", "said"),
    [
        ("", ""),
        (
            f"{HEARD}; logging.getLogger('liquidlog.log').setLevel(logging.ERROR)",
            "liquidlog.other\n",
        ),
        (f"{HEARD}; logging.getLogger('liquidlog').propagate = False", ""),
    ],
)
def test_what_the_application_configured_is_respected(
    configured: str, said: str, tmp_path: Path
) -> None:
    table = made(tmp_path / "t")
    program = PROGRAM.format(configured=configured)
    done = subprocess.run(
        [sys.executable, "-c", program, table.uri], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", said)
