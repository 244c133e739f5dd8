"""A table store in memory that meets the contract of TableStore, with faults on request."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from liquidlog.spec.actions import LogFile, parse_log_file
from liquidlog.storage.addresses import NO_OPTIONS, StorageOptions
from liquidlog.storage.files import Source, TableStore
from liquidlog.storage.objects import AmbiguousPutError, FileFacts


@dataclass
class MemoryStore(TableStore):
    """Log files and data file sizes in dictionaries.

    `before_put` runs before the next put, so that a test can let another writer win.
    `lost_requests` are puts to come that raise before storing.
    """

    uri: str = "memory"
    storage: StorageOptions = NO_OPTIONS
    log: dict[str, bytes] = field(default_factory=dict)
    data: dict[str, int] = field(default_factory=dict)
    before_put: Callable[["MemoryStore"], None] = field(default=lambda _: None)
    lost_requests: int = 0

    def require_writable(self) -> None:
        return

    def list_log(self, first_version: int = 0) -> tuple[LogFile, ...] | None:
        del first_version
        found = (parse_log_file(name, len(content), 0) for name, content in self.log.items())
        files = sorted((f for f in found if f is not None), key=lambda file: file.name)
        return tuple(files) or None

    def read_log(self, name: str) -> bytes | None:
        return self.log.get(name)

    def read_logs(self, names: Sequence[str]) -> tuple[bytes | None, ...]:
        return tuple(map(self.read_log, names))

    def put_log_if_absent(self, name: str, content: bytes) -> bool:
        hook, self.before_put = self.before_put, lambda _: None
        hook(self)
        if self.lost_requests:
            self.lost_requests -= 1
            raise AmbiguousPutError("timeout")
        if name in self.log:
            return False
        self.log[name] = content
        return True

    def replace_log(self, name: str, content: bytes) -> None:
        self.log[name] = content

    def open_log(self, name: str) -> Source:
        if name not in self.log:
            raise FileNotFoundError(name)
        return pa.BufferReader(self.log[name])

    def file_facts(self, path: str) -> FileFacts | None:
        size_bytes = self.data.get(path)
        return None if size_bytes is None else FileFacts(size_bytes, 0)

    def temporaries(self) -> tuple[str, ...]:
        return ()

    def delete_file(self, path: str) -> None:
        self.data.pop(path, None)

    def data_path(self, path: str) -> str:
        return f"memory/{path}"
