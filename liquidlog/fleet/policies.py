"""Read a policy from its file; what it names relatively is relative to that file."""

import os.path
from dataclasses import replace

from liquidlog.errors import DocumentError, StorageError
from liquidlog.operations.rewrite import read_file
from liquidlog.storage.addresses import is_local, local_path
from liquidlog.upkeep.policy import UpkeepPolicy
from liquidlog.upkeep.reading import parse_policy, wrong_policy


def read_policy(path: str) -> UpkeepPolicy:
    """Return the policy in a file of TOML."""
    try:
        policy = parse_policy(read_file(path).decode(), path)
    except (DocumentError, StorageError) as error:
        raise wrong_policy(path, error.detail) from error
    except UnicodeDecodeError as error:
        raise wrong_policy(path, f"is not TOML: it is not UTF-8 at byte {error.start}") from error
    home = os.path.dirname(os.path.abspath(local_path(path)))  # noqa: PTH100, PTH120
    rewrite = policy.rewrite
    if rewrite is not None and rewrite.workload is not None:
        rewrite = replace(rewrite, workload=_from(home, rewrite.workload))
    return replace(
        policy,
        tables=tuple(_from(home, address) for address in policy.tables),
        exclude=tuple(_from(home, address) for address in policy.exclude),
        rewrite=rewrite,
    )


def _from(home: str, address: str) -> str:
    """Return an address as seen from a directory; whole paths and URIs are as they are."""
    is_whole = not is_local(address) or "://" in address or address.startswith(("~", "file:"))
    return address if is_whole else os.path.join(home, address)  # noqa: PTH118
