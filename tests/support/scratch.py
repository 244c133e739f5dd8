"""Where tests keep their files: in memory where there is room, for they sync thousands of them."""

import os
import shutil
from typing import Final

_IN_MEMORY: Final = "/dev/shm"  # noqa: S108  it is the system's, as /tmp is
_ROOM_BYTES: Final = 4 << 30


def keep_files_in_memory() -> None:
    """Let `tempfile`, and processes begun from here, use memory unless TMPDIR says otherwise."""
    if "TMPDIR" in os.environ or not os.access(_IN_MEMORY, os.W_OK):
        return
    if shutil.disk_usage(_IN_MEMORY).free >= _ROOM_BYTES:
        os.environ["TMPDIR"] = _IN_MEMORY
