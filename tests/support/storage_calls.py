"""One seam through which every call on the files of a table on local disk passes.

It lies below the modules that touch local disk: they get another `os` and `Path`, and the file
objects that these open. What a test's hook raises is what the file system would have answered, so
the product's own reading of errors is under test.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Self
from unittest import mock

import pyarrow as pa

from liquidlog.errors import StorageError
from liquidlog.log import loader
from liquidlog.storage import addresses, files, objects
from liquidlog.storage.objects import AmbiguousPutError, Objects

_MODULES: Final = (addresses, loader, files, objects)


@dataclass(frozen=True)
class Call:
    """A call on storage: what is asked, and of which path below the table."""

    operation: str
    path: str


Effect = Callable[[], Any]
"""Does what a call asks for and returns the answer."""

Hook = Callable[[Call, Effect], Any]
"""Answers a call, by its effect or without it."""


@dataclass(frozen=True)
class Entry:
    """A directory entry with the facts that were asked together with its name."""

    name: str
    found: os.stat_result

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        del follow_symlinks  # there are no links in these directories
        return self.found


class Entries(list[Entry]):
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


@contextmanager
def calls_on_disk(root: Path, hook: Hook) -> Iterator[None]:
    """Give every call on a file below `root` to the hook, as long as the block lasts."""
    seam = _Seam(root, hook)
    replaced = [
        (module, name) for module in _MODULES for name in seam.names if name in vars(module)
    ]
    originals = [(module, name, getattr(module, name)) for module, name in replaced]
    for module, name in replaced:
        setattr(module, name, seam.names[name])
    try:
        yield
    finally:
        for module, name, original in originals:
            setattr(module, name, original)


class _Seam:
    def __init__(self, root: Path, hook: Hook) -> None:
        self._prefix = f"{root}/"
        self._root = str(root)
        self._hook = hook
        self._descriptors: dict[int, str] = {}
        self.names: Mapping[str, Any] = {
            "os": _instead_of(
                os,
                link=self._link,
                listdir=self._listdir,
                scandir=self._scandir,
                open=self._open,
                fsync=self._fsync,
                fstat=self._fstat,
            ),
            "Path": _path_class(self),
            "pa": _instead_of(
                pa, OSFile=lambda path: self.call("open", path, lambda: pa.OSFile(path))
            ),
        }

    def call(self, operation: str, path: str, effect: Effect) -> Any:
        """Answer a call on a path, by the hook if it is of the table."""
        if path == self._root:
            return self._hook(Call(operation, ""), effect)
        if path.startswith(self._prefix):
            return self._hook(Call(operation, path.removeprefix(self._prefix)), effect)
        return effect()

    def opened(self, descriptor: int, path: str) -> None:
        """Remember what a descriptor is of."""
        self._descriptors[descriptor] = path

    def _link(self, source: Any, target: Any) -> None:
        self.call("link", str(target), lambda: os.link(source, target))

    def _listdir(self, path: str) -> Any:
        return self.call("list", path, lambda: os.listdir(path))  # noqa: PTH208

    def _scandir(self, path: Any) -> Entries:
        def entries() -> Entries:
            with os.scandir(path) as found:
                return Entries(Entry(entry.name, entry.stat()) for entry in found)

        return Entries(self.call("list", str(path), entries))

    def _open(self, path: str, flags: int) -> int:
        descriptor = int(self.call("open", path, lambda: os.open(path, flags)))
        self.opened(descriptor, path)
        return descriptor

    def _fsync(self, descriptor: int) -> None:
        path = self._descriptors.get(descriptor, "")
        self.call("sync", path, lambda: os.fsync(descriptor))

    def _fstat(self, descriptor: int) -> Any:
        path = self._descriptors.get(descriptor, "")
        return self.call("status", path, lambda: os.fstat(descriptor))


class _File:
    """A file being written; what it does to the disk is a call."""

    def __init__(self, seam: _Seam, path: str, file: Any) -> None:
        self._seam, self._path, self._file = seam, path, file
        seam.opened(file.fileno(), path)

    def write(self, content: bytes) -> Any:
        return self._seam.call("write", self._path, lambda: self._file.write(content))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _path_class(seam: _Seam) -> type[Path]:
    class SeamPath(type(Path())):  # type: ignore[misc]
        """A path whose calls pass the seam."""

        def _call(self, operation: str, method: str, *arguments: Any, **named: Any) -> Any:
            plain = Path(str(self))
            effect = lambda: getattr(plain, method)(*arguments, **named)  # noqa: E731
            return seam.call(operation, str(self), effect)

        def stat(self, **named: Any) -> Any:
            return self._call("facts", "stat", **named)

        def is_dir(self, **named: Any) -> Any:
            return self._call("facts", "is_dir", **named)

        def read_bytes(self) -> Any:
            return self._call("read", "read_bytes")

        def write_bytes(self, content: Any) -> Any:
            return self._call("create", "write_bytes", content)

        def unlink(self, missing_ok: bool = False) -> None:  # noqa: FBT001, FBT002  as Path has it
            self._call("delete", "unlink", missing_ok=missing_ok)

        def replace(self, target: Any) -> Any:
            effect = lambda: Path(str(self)).replace(target)  # noqa: E731
            return seam.call("replace", str(target), effect)

        def mkdir(self, *arguments: Any, **named: Any) -> Any:
            return self._call("mkdir", "mkdir", *arguments, **named)

        def open(self, *arguments: Any, **named: Any) -> Any:
            return _File(seam, str(self), self._call("create", "open", *arguments, **named))

    return SeamPath


def _instead_of(module: ModuleType, **replaced: Any) -> ModuleType:
    """Return a module that has everything of another one, but some names."""
    made = ModuleType(module.__name__)
    vars(made).update({**vars(module), **replaced})
    return made


# One seam through which every call on the objects of a table in an object store passes.
#
# It lies at the methods of `Objects`. A hook speaks of errors as a file system does, see
# disk_calls; here they become what these methods answer when a store fails.

_OPERATIONS: Final = {
    "facts": "facts",
    "read": "read",
    "read_range": "open",
    "list_directory": "list",
    "names_with_prefix": "list",
    "put_if_absent": "link",
    "replace": "replace",
    "delete": "delete",
}
"""What methods do, in the words of calls on disk."""


@contextmanager
def calls_on_objects(root: str, hook: Hook) -> Iterator[None]:
    """Give every call on an object below `root` to the hook, as long as the block lasts."""
    with ExitStack() as stack:
        for name, operation in _OPERATIONS.items():
            original = getattr(Objects, name)
            method = _passing(original, name, operation, root, hook)
            stack.enter_context(mock.patch.object(Objects, name, method))
        listing = _listing(Objects._page_below, root, hook)
        stack.enter_context(mock.patch.object(Objects, "_page_below", listing))
        uploading = _uploading(Objects.open_upload, root, hook)
        stack.enter_context(mock.patch.object(Objects, "open_upload", uploading))
        yield


def _passing(
    original: Callable[..., Any], name: str, operation: str, root: str, hook: Hook
) -> Callable[..., Any]:
    def method(objects: Objects, path: str, *arguments: Any) -> Any:
        if path != root and not path.startswith(f"{root}/"):
            return original(objects, path, *arguments)
        call = Call(operation, path.removeprefix(root).removeprefix("/"))
        try:
            return hook(call, lambda: original(objects, path, *arguments))
        except FileNotFoundError:
            if name == "read_range":
                raise
            return None
        except OSError as error:
            if name == "read_range":
                raise
            if name == "put_if_absent" and not isinstance(error, PermissionError):
                raise AmbiguousPutError(str(error)) from error
            raise StorageError(path, str(error)) from error

    return method


def _listing(original: Callable[..., Any], root: str, hook: Hook) -> Callable[..., Any]:
    def page_below(objects: Objects, path: str) -> Any:
        call = Call("list", path.removeprefix(root).removeprefix("/"))
        try:
            return hook(call, lambda: list(original(objects, path)))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(path, str(error)) from error

    return page_below


def _uploading(original: Callable[..., Any], root: str, hook: Hook) -> Callable[..., Any]:
    def open_upload(objects: Objects, path: str) -> Any:
        upload = original(objects, path)
        close = upload.close
        # The object is there when the upload is closed; nothing of it is before.
        call = Call("create", path.removeprefix(f"{root}/"))

        def closed_by_hook() -> Any:
            return close() if upload.closed else hook(call, close)

        upload.close = closed_by_hook
        return upload

    return open_upload
