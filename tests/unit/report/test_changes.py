"""What a command that deletes says it did is what it did."""

import pytest

from liquidlog.report import changes
from liquidlog.report.layout import Line

ROW = {"path": "a", "size_bytes": 5, "modified": "", "orphan": True, "deleted": False, "reason": ""}


@pytest.mark.parametrize(
    ("deleted", "dry_run", "said"),
    [
        (True, False, "2 orphans of 10 B: 1 deleted"),
        (True, True, "2 orphans of 10 B: would delete 1; nothing was deleted"),
        (False, False, "2 orphans of 10 B: delete them with --delete"),
    ],
)
def test_orphans_that_stayed_are_not_called_deleted(
    said: str, *, deleted: bool, dry_run: bool
) -> None:
    found = {"files": [ROW, ROW], "orphan_count": 2, "orphan_bytes": 10, "deleted": deleted}
    assert changes.orphans(found, gone=1, dry_run=dry_run)[-1] == Line(said)
