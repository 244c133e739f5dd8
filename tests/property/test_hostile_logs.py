"""A log is untrusted text: whatever it says, the answer is an answer or an error of ours, soon."""

import shutil
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.effort import effort
from support.hostile import Log, hostile_logs, write_log
from support.probing import (
    COMMANDS,
    EXPECTED_STATUSES,
    command_status,
    look_through_facade,
    tree,
)

PARTS, EXAMPLES = effort((1, 25), (20, 500))
SECONDS = 10
"""Of the processor: far above what any log here takes, far below a hang."""


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize("part", range(PARTS))
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(damaged=hostile_logs(), command=st.sampled_from(COMMANDS), as_json=st.booleans())
def test_a_damaged_log_is_read_or_refused_and_never_written(
    part: int,
    damaged: tuple[str, Log],
    command: str,
    as_json: bool,  # noqa: FBT001  Hypothesis hands it over
) -> None:
    del part  # so that several processes share the long form
    _, log = damaged
    directory = Path(tempfile.mkdtemp())
    try:
        table = directory / "table"
        write_log(log, table)
        before = tree(directory)
        started = time.process_time()
        look_through_facade(str(table))
        words = [command, str(table), *(["--json"] if as_json else [])]
        assert command_status(*words) in EXPECTED_STATUSES
        assert time.process_time() - started < SECONDS
        assert tree(directory) == before
    finally:
        shutil.rmtree(directory)
