"""Commit files to actions, every error with its file and line."""

import msgspec

from liquidlog.errors import CorruptLogError, VersionNotFoundError
from liquidlog.log.paths import commit_name, log_path
from liquidlog.log.store import TableStore
from liquidlog.spec.actions import Commit, decode_line


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
