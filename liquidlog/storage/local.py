"""Query, create and delete files on local disk; every failure is an error of ours.

A file is missing only if the file system says so; one that cannot be examined is an error.
"""

import contextlib
import errno
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from liquidlog.errors import StorageError, UnsupportedFeatureError
from liquidlog.storage.addresses import read_regular
from liquidlog.storage.clients import AmbiguousPutError

PROBE_PREFIX: Final = ".liquidlog-probe-"
_TEMPORARY_SUFFIX: Final = ".tmp"
_TOKEN_DIGITS: Final = 16
_SMALL_BYTES: Final = 1 << 20
_MILLISECOND_NS: Final = 1_000_000
_REFUSALS: Final = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EMLINK,
        errno.ENAMETOOLONG,
        errno.ENOSPC,
        errno.ENOSYS,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.EPERM,
        errno.EROFS,
        errno.EXDEV,
    }
)
"""Errors of `link` that prove that it did nothing. On a network file system, any other error, for
example ETIMEDOUT or EIO, may follow a link that was made. Source: link(2), NFS."""
_NO_LINKS: Final = frozenset(
    {
        errno.EINVAL,
        errno.EMLINK,
        errno.ENOSYS,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.EPERM,
        errno.EXDEV,
    }
)
"""Errors of `link` on a file system without hard links; other errors may be transient."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Facts about a file from its storage."""

    size_bytes: int
    modification_time_ms: int


def facts(path: str) -> FileFacts | None:
    """Return the facts about a file, None if it does not exist."""
    found = _status(path)
    return found and facts_of(found)


def content_mark(path: str) -> tuple[int, int, int, int] | None:
    """Return size, time in ns, device and inode of a file, None if it does not exist."""
    found = _status(path)
    return found and (found.st_size, found.st_mtime_ns, found.st_dev, found.st_ino)


def facts_of(found: os.stat_result) -> FileFacts:
    """Return the facts in a status of the file system."""
    return FileFacts(found.st_size, found.st_mtime_ns // _MILLISECOND_NS)


def read(path: str) -> bytes | None:
    """Return the content of a small file, None if it does not exist."""
    try:
        return read_regular(path, max_bytes=_SMALL_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError(path, f"cannot be read: {_said(error)}") from error


def names_with_prefix(directory: str, prefix: str) -> tuple[str, ...]:
    """Return the names in a directory that begin with `prefix`; none without the directory."""
    try:
        return tuple(name for name in os.listdir(directory) if name.startswith(prefix))  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise StorageError(directory, f"cannot be listed: {_said(error)}") from error


def entries(directory: str) -> tuple[str, ...] | None:
    """Return the names in a directory, directories with a slash at the end; None if it is none."""
    try:
        with os.scandir(directory) as found:
            return tuple(f"{entry.name}/" if entry.is_dir() else entry.name for entry in found)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise StorageError(directory, f"cannot be listed: {_said(error)}") from error


def make_directory(path: str) -> None:
    """Make a directory with its parents, unless it is there."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise StorageError(path, f"cannot be made: {_said(error)}") from error


def delete(path: str) -> None:
    """Delete a file; a missing file is no error."""
    try:
        Path(path).unlink()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise StorageError(path, f"cannot be deleted: {_said(error)}") from error


def put_if_absent(path: str, content: bytes) -> bool:
    """Store a file whole or not at all, by a link to it; return False if the name is taken."""
    temporary = _temporary(path)
    try:
        try:
            _write_durably(temporary, content)
        except OSError as error:
            raise StorageError(path, f"cannot be written: {_said(error)}") from error
        return _link(temporary, Path(path))
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def replace(path: str, content: bytes) -> None:
    """Store a file whole, replacing one of the same name."""
    temporary = _temporary(path)
    try:
        _write_durably(temporary, content)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StorageError(path, f"cannot be written: {_said(error)}") from error


def sync_directory(path: str) -> None:
    """Flush a directory, so that its names survive a power cut."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def require_links(directory: str, uri: str) -> None:
    """Refuse a file system without hard links, such as SMB, gcsfuse, s3fs-fuse and DBFS."""
    probe, other = (Path(directory, f"{PROBE_PREFIX}{secrets.token_hex(8)}") for _ in range(2))
    try:
        for path in (probe, other):
            path.write_bytes(path.name.encode())
        target = probe.with_name(f"{probe.name}-linked")
        _require_link(probe, other, target, uri)
    except OSError as error:
        raise StorageError(directory, f"cannot be written: {_said(error)}") from error
    finally:
        for path in (probe, other, probe.with_name(f"{probe.name}-linked")):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def is_temporary(name: str) -> bool:
    """Return whether a file name is a temporary one, which only a killed writer leaves."""
    begins = name.startswith(".") and name.endswith(_TEMPORARY_SUFFIX)
    return name.startswith(PROBE_PREFIX) or (begins and len(name.split(".")[-2]) == _TOKEN_DIGITS)


def _status(path: str) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise StorageError(path, f"cannot be looked at: {_said(error)}") from error


def _temporary(path: str) -> Path:
    target = Path(path)
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}{_TEMPORARY_SUFFIX}")


def _require_link(probe: Path, other: Path, target: Path, uri: str) -> None:
    try:
        os.link(probe, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        reason = f"a file system without hard links to commit with ({_said(error)}),"
        raise UnsupportedFeatureError(uri, "written", (reason,)) from error
    try:
        os.link(other, target)
    except FileExistsError:
        if target.read_bytes() == probe.name.encode():
            return
    reason = "a file system that overwrites files where a link should fail,"
    raise UnsupportedFeatureError(uri, "written", (reason,))


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _link(temporary: Path, target: Path) -> bool:
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno in _REFUSALS:
            detail = f"cannot be linked to its name, as commits need: {_said(error)}"
            raise StorageError(str(target), detail) from error
        raise AmbiguousPutError(_said(error)) from error
    try:
        sync_directory(str(target.parent))
    except OSError as error:
        # The link was made; a power cut may still undo it, so the caller has to read it back.
        raise AmbiguousPutError(_said(error)) from error
    return True


def _said(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
