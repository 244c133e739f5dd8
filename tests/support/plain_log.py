"""What a table's log says, read in a few lines of its own: a model to hold the product against.

Nothing of liquidlog is used here, so that no error of its log reader can hide one of its deletions.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from support.plain_vectors import vector_place


class Bytes(Protocol):
    """Where files are: names below the table's directory, and their contents."""

    def names(self) -> set[str]: ...

    def read(self, name: str) -> bytes: ...


State = tuple[frozenset[str], frozenset[bytes], tuple[frozenset[str], ...]]
"""All that decides what an operation does to a table: names, fates of runs, what commits name."""


@dataclass(frozen=True)
class PlainLog:
    """The log at one moment."""

    files: Bytes

    @cached_property
    def there(self) -> frozenset[str]:
        """The names of all files of the table's directory."""
        return frozenset(self.files.names())

    @cached_property
    def commits(self) -> Mapping[int, tuple[Mapping[str, Any], ...]]:
        """The actions of each retained commit, by version."""
        names = [PurePosixPath(name) for name in self.there]
        versions = sorted(
            int(name.stem)
            for name in names
            if name.parent.name == "_delta_log" and name.suffix == ".json" and name.stem.isdigit()
        )
        return {version: self._actions(version) for version in versions}

    @cached_property
    def named(self) -> frozenset[str]:
        """All data files that any retained part of the log names, added or removed."""
        return frozenset({*self._named_by_commits(), *self._named_by_checkpoints()})

    @cached_property
    def state(self) -> State:
        """The state of the table, times left out."""
        fates = {name.encode() + self.files.read(name) for name in self.there if "-fate" in name}
        commits = (
            frozenset(f"{kind} {action[kind].get('path')}" for action in actions for kind in action)
            for actions in self.commits.values()
        )
        return self.there, frozenset(fates), tuple(commits)

    @property
    def missing(self) -> frozenset[str]:
        """Files that a retained version names and that are not there.

        Once a vacuum has begun, which here is one without retention, those of the newest version.
        """
        begun = any(self.operation_of(version) == "VACUUM START" for version in self.commits)
        return (self._named_by_newest if begun else self.named) - self.there

    @property
    def _named_by_newest(self) -> frozenset[str]:
        vectors = (vector for vector in self.live.values() if vector is not None)
        return frozenset({*self.live, *map(_vector_name, vectors)})

    @property
    def strays(self) -> frozenset[str]:
        """Files that no version names and that are not the log's own."""
        log = {
            name
            for name in self.there
            if name.startswith("_delta_log/")
            and (PurePosixPath(name).name[:20].isdigit() or name.endswith("/_last_checkpoint"))
        }
        return self.there - self.named - log

    def values(self, column: str) -> list[Any]:
        """Return the values of a column at the newest version, sorted."""
        found: list[Any] = []
        for path, vector in self.live.items():
            rows = pq.read_table(pa.BufferReader(self.files.read(path)), columns=[column])
            deleted = frozenset[int]() if vector is None else self._deleted(vector)
            values = enumerate(rows[column].to_pylist())
            found.extend(value for position, value in values if position not in deleted)
        return sorted(found)

    def versions_of(self, writer: str) -> list[int]:
        """Return the versions whose txnId begins with the name of a writer."""
        return [
            version
            for version, actions in self.commits.items()
            for action in actions
            if str(action.get("commitInfo", {}).get("txnId", "")).startswith(writer)
        ]

    def operation_of(self, version: int) -> str:
        """Return what the commit of a version says that it did."""
        infos = (action.get("commitInfo") for action in self.commits[version])
        return next((str(info["operation"]) for info in infos if info), "")

    def tags_of(self, tags: Mapping[str, str]) -> list[Mapping[str, str]]:
        """Return all tags of each commit whose commitInfo has these tags."""
        infos = (
            action.get("commitInfo", {}) for actions in self.commits.values() for action in actions
        )
        found = (info.get("tags") or {} for info in infos)
        return [one for one in found if tags.items() <= one.items()]

    def _actions(self, version: int) -> tuple[Mapping[str, Any], ...]:
        lines = self.files.read(f"_delta_log/{version:020d}.json").splitlines()
        return tuple(json.loads(line) for line in lines)

    def _named_by_commits(self) -> Iterator[str]:
        for actions in self.commits.values():
            for action in actions:
                for kind in {"add", "remove"} & {*action}:
                    yield unquote(action[kind]["path"])
                    if "deletionVector" in action[kind]:
                        yield _vector_name(action[kind]["deletionVector"])

    def _named_by_checkpoints(self) -> Iterator[str]:
        for name in self.there:
            if name.startswith("_delta_log/") and name.endswith(".checkpoint.parquet"):
                rows = pq.read_table(pa.BufferReader(self.files.read(name)))
                for kind in {"add", "remove"} & {*rows.column_names}:
                    yield from (unquote(row["path"]) for row in rows[kind].to_pylist() if row)

    @cached_property
    def live(self) -> Mapping[str, Mapping[str, Any] | None]:
        """The deletion vectors of the files of the newest version, by path."""
        live: dict[str, Mapping[str, Any] | None] = {}
        for actions in self.commits.values():
            for action in actions:
                if "remove" in action:
                    live.pop(unquote(action["remove"]["path"]), None)
            for action in actions:
                if "add" in action:
                    live[unquote(action["add"]["path"])] = action["add"].get("deletionVector")
        return live

    def _deleted(self, vector: Mapping[str, Any]) -> frozenset[int]:
        content = self.files.read(_vector_name(vector))
        start = vector["offset"] + 4 + 4  # the size, a magic number
        return frozenset(BitMap64.deserialize(content[start : start + vector["sizeInBytes"] - 4]))


def _vector_name(vector: Mapping[str, Any]) -> str:
    """Return the name of the file of a vector that the log names by its address, or by its uuid."""
    place = vector_place(Path(), vector) if vector["storageType"] == "u" else None
    return PurePosixPath(vector["pathOrInlineDv"]).name if place is None else place.name
