"""A file that another writer removes and adds back: whoever read it cannot know which rows it has.

Whatever a commit can follow of removals and deletions, this it cannot.
"""

import json
from pathlib import Path

from liquidlog.table import Table


def commit_actions(table: Table, *actions: dict[str, object]) -> int:
    """Commit actions by hand, as an engine that is not ours; return the version."""
    version = table.snapshot().version + 1
    info = {"commitInfo": {"timestamp": 0, "operation": "BY HAND", "operationParameters": {}}}
    lines = "".join(json.dumps(action) + "\n" for action in (info, *actions))
    path = Path(table.uri, "_delta_log", f"{version:020d}.json")
    with path.open("x") as file:
        file.write(lines)
    table.snapshot()
    return version


def remove_and_restore(table: Table, path: str) -> int:
    """Commit the removal of a file, and then the file as it was; return the last version."""
    added = _add(table, path)
    removal = {"path": path, "deletionTimestamp": 0, "dataChange": True}
    commit_actions(table, {"remove": removal})
    return commit_actions(table, {"add": {**added, "dataChange": True}})


def _add(table: Table, path: str) -> dict[str, object]:
    for log in sorted(Path(table.uri, "_delta_log").glob("*.json"), reverse=True):
        for line in log.read_text().splitlines():
            add: dict[str, object] | None = json.loads(line).get("add")
            if add is not None and add["path"] == path:
                return add
    raise AssertionError(path)
