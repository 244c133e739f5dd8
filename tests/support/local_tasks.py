"""What workers of the executor `local` are asked to do in tests; they import it by its name."""

import errno
import os
import time
from pathlib import Path

from liquidlog.errors import DataFileError


def fail_until(path: str, attempts: int) -> int:
    """Fail with an error that may pass, until there were so many calls; return their number."""
    calls = Path(path)
    with calls.open("a") as file:
        file.write("x")
    count = calls.stat().st_size
    if count < attempts:
        raise DataFileError("input", "cannot be read") from OSError(errno.ETIMEDOUT, "slow")
    return count


def end_at_first(path: str) -> int:
    """End the process at the first call; return the id of the process afterwards."""
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), 9)
    return os.getpid()


def sleep_if(path: str) -> None:
    """Sleep long if the file is there, which is removed."""
    if Path(path).exists():
        Path(path).unlink()
        time.sleep(600)


def add(number: int, exit_with: str = "") -> int:
    """Return the number and 1, or raise."""
    if exit_with:
        raise ValueError(exit_with)
    return number + 1
