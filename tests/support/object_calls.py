"""One seam through which every call on the objects of a table in an object store passes.

It lies at the methods of `Objects`. A hook speaks of errors as a file system does, see disk_calls;
here they become what these methods answer when a store fails.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest import mock

from liquidlog.errors import StorageError
from liquidlog.storage.clients import AmbiguousPutError
from liquidlog.storage.objects import Objects
from support.disk_calls import Call, Hook

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
