"""Table properties as another engine sets them: any text, unchecked."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from liquidlog.spec.paths import commit_name
from liquidlog.table import Table


def set_elsewhere(table: Table, properties: Mapping[str, str | None]) -> int:
    """Commit properties to a local table, None to remove one; return the new version."""
    snapshot = table.snapshot()
    changed = {**snapshot.metadata.configuration, **properties}
    kept = {name: value for name, value in changed.items() if value is not None}
    metadata = msgspec.to_builtins(msgspec.structs.replace(snapshot.metadata, configuration=kept))
    version = snapshot.version + 1
    lines = [
        {"commitInfo": {"timestamp": snapshot.timestamp_ms + 1, "operation": "SET TBLPROPERTIES"}},
        {"metaData": metadata},
    ]
    path = Path(table.uri) / "_delta_log" / commit_name(version)
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return version
