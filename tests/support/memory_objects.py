"""An object store of this process, behind the calls of s3fs that `Objects` makes.

Nothing is sent, so that thousands of schedules of calls can be tried. It meets the same contract as
the emulators, see tests/unit/storage/test_store_contract.
"""

import hashlib
import io
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from unittest import mock

from liquidlog.commit.transaction import system_clock
from liquidlog.storage import clients
from liquidlog.storage.objects import Objects
from liquidlog.storage.options import NO_OPTIONS
from support.object_calls import calls_on_objects
from support.playground import ObjectFiles, Playground


class MemoryS3:
    """What s3fs offers, over one dictionary for all clients."""

    objects: dict[str, tuple[bytes, datetime]]
    retries = 1

    def __init__(self, **options: object) -> None:
        self.storage_options = {"config_kwargs": {}, **options}

    def info(self, path: str) -> Mapping[str, Any]:
        content, modified = self._object(path)
        tag = hashlib.md5(content, usedforsecurity=False).hexdigest()
        return {
            "name": path,
            "Key": path,
            "size": len(content),
            "type": "file",
            "LastModified": modified,
            "ETag": tag,
        }

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: object
    ) -> bytes:
        return self._object(path)[0][start:end]

    def pipe_file(self, path: str, content: bytes, mode: str = "overwrite", **_: object) -> None:
        if mode == "create" and path in self.objects:
            raise FileExistsError(path)
        self.objects[path] = (
            bytes(content),
            datetime.fromtimestamp(system_clock().now_ms() / 1000, UTC),
        )

    def rm_file(self, path: str) -> None:
        self.objects.pop(path, None)

    def open(self, path: str, mode: str, **_: object) -> "Upload":
        assert mode == "wb"
        return Upload(lambda content: self.pipe_file(path, content))

    def find(self, path: str, prefix: str = "", *, detail: bool = False) -> Any:
        names = sorted(name for name in self.objects if name.startswith(f"{path}/{prefix}"))
        return {name: self.info(name) for name in names} if detail else names

    def call_s3(self, operation: str, **request: Any) -> Mapping[str, Any]:
        assert operation == "list_objects_v2"
        directory = f"{request['Bucket']}/{request['Prefix']}"
        after = f"{request['Bucket']}/{request.get('StartAfter', '')}"
        contents: list[Mapping[str, Any]] = []
        prefixes = set()
        for name in sorted(name for name in self.objects if name.startswith(directory)):
            rest = name.removeprefix(directory)
            if "Delimiter" in request and "/" in rest:
                prefixes.add(rest.partition("/")[0])
            elif name > after:
                info = self.info(name)
                key = name.partition("/")[2]
                contents.append({**info, "Key": key, "Size": info["size"]})
        return {
            "Contents": contents[: request.get("MaxKeys", len(contents))],
            "CommonPrefixes": [{"Prefix": prefix} for prefix in sorted(prefixes)],
            "IsTruncated": False,
        }

    def _object(self, path: str) -> tuple[bytes, datetime]:
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]


class Upload:
    """A file whose content becomes an object when it is closed."""

    def __init__(self, store: Callable[[bytes], None]) -> None:
        self._store = store
        self._content = io.BytesIO()
        self.closed = False

    def write(self, content: bytes) -> int:
        return self._content.write(content)

    def tell(self) -> int:
        return self._content.tell()

    def flush(self) -> None:
        return

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._store(self._content.getvalue())

    def discard(self) -> None:
        self.closed = True


@contextmanager
def memory_playground() -> Iterator[Playground]:
    """Context manager: an address in an object store of this process that nobody used before."""
    kind = type("MemoryS3", (MemoryS3,), {"objects": {}})
    with mock.patch.object(clients, "_class", return_value=kind):
        uri = f"s3://bucket/{secrets.token_hex(6)}/table"
        objects = Objects.at(uri, NO_OPTIONS)
        files = ObjectFiles(objects.client.file_system, objects.path)
        yield Playground(uri, files, lambda hook: calls_on_objects(objects.path, hook))
