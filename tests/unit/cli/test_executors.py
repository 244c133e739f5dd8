import logging

import pytest

from liquidlog.cli.verbosity import executors_heard
from liquidlog.operations.executors import EXECUTOR_GROUP


@pytest.mark.parametrize(("as_json", "shown"), [(False, "starting Spark\n"), (True, "")])
def test_what_executors_say_is_shown_but_beside_json(
    capsys: pytest.CaptureFixture[str], *, as_json: bool, shown: str
) -> None:
    log = logging.getLogger(EXECUTOR_GROUP)
    before = (log.level, list(log.handlers))
    with executors_heard(as_json=as_json):
        log.info("starting Spark")
    log.info("starting it again")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", shown)
    assert (log.level, log.handlers) == before
