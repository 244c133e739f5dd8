"""Commit files to actions, every error with its file and line."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from liquidlog.errors import CorruptLogError, VersionNotFoundError
from liquidlog.log.paths import commit_name, log_path
from liquidlog.log.store import TableStore
from liquidlog.spec.actions import UNREADABLE, Commit, decode_line

_READ_TOGETHER: Final = 64
"""Commits held as bytes at the same time."""


class _InfoLine(msgspec.Struct):
    """A line of a commit as far as its commitInfo goes; what stands beside it may be anything."""

    info: dict[str, Any] | None = msgspec.field(default=None, name="commitInfo")


_INFO_DECODER: Final = msgspec.json.Decoder(_InfoLine)


def read_commit(store: TableStore, version: int) -> Commit:
    """Return the commit of `version`. A file without content is a commit without actions.

    Raises:
        VersionNotFoundError: If there is no such commit.
        CorruptLogError: If a line is not an action.
    """
    content = store.read_log(commit_name(version))
    if content is None:
        raise VersionNotFoundError(version, version, version)
    return parse_commit(content, version)


def read_commits(store: TableStore, versions: Sequence[int]) -> Iterator[Commit]:
    """Yield the commits of some versions in the order asked; a store may read several at once.

    Raises:
        VersionNotFoundError: If there is no such commit.
        CorruptLogError: If a line is not an action.
    """
    for version, content in _contents(store, versions):
        yield parse_commit(content, version)


def read_infos(store: TableStore, versions: Sequence[int]) -> Iterator[Mapping[str, Any]]:
    """Yield every field of the commitInfo of some versions, empty where a commit has none.

    Values are JSON values. Other actions are not looked at.

    Raises:
        VersionNotFoundError: If there is no such commit.
        CorruptLogError: If the line of a commitInfo is not JSON.
    """
    for version, content in _contents(store, versions):
        yield _parse_info(content, version)


def read_selected(
    store: TableStore, versions: Sequence[int], lines: re.Pattern[bytes]
) -> Iterator[Commit]:
    """Yield the commits of some versions with the actions alone whose lines match from the start.

    Raises:
        VersionNotFoundError: If there is no such commit.
        CorruptLogError: If such a line is not an action.
    """
    for version, content in _contents(store, versions):
        chosen = b"\n".join(line for line in content.split(b"\n") if lines.match(line))
        yield parse_commit(chosen, version)


def _contents(store: TableStore, versions: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    for start in range(0, len(versions), _READ_TOGETHER):
        wanted = versions[start : start + _READ_TOGETHER]
        for version, content in zip(
            wanted, store.read_logs([commit_name(version) for version in wanted]), strict=True
        ):
            if content is None:
                raise VersionNotFoundError(version, version, version)
            yield version, content


def _parse_info(content: bytes, version: int) -> Mapping[str, Any]:
    for number, line in enumerate(content.split(b"\n"), start=1):
        if b'"commitInfo"' not in line:
            continue
        try:
            info = _INFO_DECODER.decode(line).info
        except UNREADABLE as error:
            where = log_path(commit_name(version))
            raise CorruptLogError(where, f"not a valid action: {error}", line=number) from error
        if info is not None:
            return info
    return {}


def parse_commit(content: bytes, version: int) -> Commit:
    """Return the actions in the content of a commit file; blank lines are passed over.

    Raises:
        CorruptLogError: If a line is not JSON or a known action has a wrong shape.
    """
    actions = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            action = decode_line(line)
        except msgspec.MsgspecError as error:
            where = log_path(commit_name(version))
            raise CorruptLogError(where, f"not a valid action: {error}", line=number) from error
        if action is not None:
            actions.append(action)
    return Commit(version, tuple(actions))
