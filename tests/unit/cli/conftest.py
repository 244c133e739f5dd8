import pytest

from support.commands import Call, caller


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command with --json; return (status, document on stdout, document on stderr)."""
    return caller(capsys)
