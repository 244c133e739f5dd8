"""A table store in memory that meets the contract of TableStore, with faults on request."""

from collections.abc import Callable
from dataclasses import dataclass, field

from liquidlog.log.paths import LogFile, parse_log_file
from liquidlog.log.store import AmbiguousPutError


@dataclass
class MemoryStore:
    """Log files and data file sizes in dictionaries.

    `before_put` runs before each put, so that a test can let another writer win, `after_put` after
    something was stored. `lose_response` makes the next put raise after storing, `lose_request`
    before storing.
    """

    uri: str = "memory"
    log: dict[str, bytes] = field(default_factory=dict)
    data: dict[str, int] = field(default_factory=dict)
    before_put: Callable[["MemoryStore"], None] = field(default=lambda _: None)
    after_put: Callable[["MemoryStore"], None] = field(default=lambda _: None)
    lose_response: bool = False
    lose_request: bool = False

    def list_log(self) -> tuple[LogFile, ...] | None:
        found = (parse_log_file(name, len(content), 0) for name, content in self.log.items())
        files = sorted((f for f in found if f is not None), key=lambda file: file.name)
        return tuple(files) or None

    def read_log(self, name: str) -> bytes | None:
        return self.log.get(name)

    def put_log_if_absent(self, name: str, content: bytes) -> bool:
        hook, self.before_put = self.before_put, lambda _: None
        hook(self)
        if self.lose_request:
            self.lose_request = False
            raise AmbiguousPutError("timeout")
        if name in self.log:
            return False
        self.log[name] = content
        self.after_put(self)
        if self.lose_response:
            self.lose_response = False
            raise AmbiguousPutError("timeout")
        return True

    def log_file_path(self, name: str) -> str:
        return f"memory/{name}"

    def file_size_bytes(self, path: str) -> int | None:
        return self.data.get(path)

    def delete_file(self, path: str) -> None:
        self.data.pop(path, None)

    def data_path(self, path: str) -> str:
        return f"memory/{path}"
