"""Storage options from a file of defaults: by the prefix of an address, secrets by reference."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from liquidlog.errors import UsageError
from liquidlog.storage.addresses import is_local, table_address
from liquidlog.storage.options import is_secret

_VARIABLE: Final = "env"
"""The key of a value that is in a variable of the environment."""

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, repr=False)
class Variable:
    """A variable of the environment that holds a value, and the key that names it in the file."""

    name: str
    where: str

    def value(self) -> str:
        """Return what it holds."""
        found = os.environ.get(self.name)
        if found is None:
            raise UsageError(f"{self.where}: the environment has no variable {self.name}; set it")
        return found


@dataclass(frozen=True, slots=True, repr=False)
class StorageDefaults:
    """Options of storages by the prefix of addresses; the longest prefix counts, alone."""

    by_prefix: Mapping[str, Mapping[str, str | Variable]] = field(default_factory=dict)

    def of(self, *addresses: str) -> Pairs:
        """Return the options of addresses; those on local disk have none."""
        found = {self._prefix(one): one for one in addresses if not is_local(one)}
        if len(found) > 1:
            first, second = [*found.values()][:2]
            raise UsageError(
                f"{first} and {second} have different options in the file of defaults, and one"
                " command takes the same for all: run it once for each, or give --storage-option"
            )
        options = self.by_prefix.get(next(iter(found), None) or "", {})
        return tuple(
            (name, value.value() if isinstance(value, Variable) else value)
            for name, value in options.items()
        )

    def _prefix(self, address: str) -> str | None:
        """Return the longest prefix of an address, None if there is none."""
        whole = f"{_canonical(address)}/"
        fitting = (one for one in self.by_prefix if whole.startswith(_closed(one)))
        return max(fitting, key=len, default=None)


def read_storages(found: object, where: str) -> StorageDefaults:
    """Return the options in a section of a file; variables are read when they are needed."""
    if not isinstance(found, dict):
        raise UsageError(f"{where} must be tables of options by prefix")
    by_prefix = {}
    for prefix, options in found.items():
        if is_local(prefix):
            raise UsageError(f"{where} {prefix} is no address in a storage, as s3://bucket")
        address = _canonical(prefix)  # refuses credentials in it, before it is shown
        place = f"{where} {address}"
        if not isinstance(options, dict):
            # The value is not repeated: it may be a secret that has no prefix.
            raise UsageError(f'{place} must be a table: write ["storage-options"."s3://bucket"]')
        values = {name: _value(name, value, f"{place}: {name}") for name, value in options.items()}
        by_prefix[address] = values
    return StorageDefaults(by_prefix)


def _value(name: str, found: Any, where: str) -> str | Variable:  # noqa: ANN401  as TOML has it
    if isinstance(found, dict):
        variable = found.get(_VARIABLE)
        if set(found) != {_VARIABLE} or not isinstance(variable, str) or not variable:
            raise UsageError(f'{where}: expected text or {{ {_VARIABLE} = "NAME" }}')
        return Variable(variable, where)
    if isinstance(found, bool):
        found = str(found).lower()
    if not isinstance(found, str | int):
        raise UsageError(f'{where}: expected text or {{ {_VARIABLE} = "NAME" }}')
    if is_secret(name):
        raise UsageError(
            f"{where} may be a secret, and does not belong in a file: put it into a variable of the"
            f' environment, and write {{ {_VARIABLE} = "NAME" }}'
        )
    return str(found)


def _canonical(address: str) -> str:
    scheme, mark, rest = address.partition("://")
    if mark and not rest:
        return table_address(f"{scheme}://any").removesuffix("any")
    return table_address(address)


def _closed(prefix: str) -> str:
    return prefix if prefix.endswith("/") else f"{prefix}/"
