"""A finished rewrite of a table, and others who change the table before it is committed."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from liquidlog.commit import OpenedTable
from liquidlog.errors import CommitConflictError
from liquidlog.plan import ClusteringPlan, RewriteResult
from liquidlog.storage.files import LocalTableStore, TableStore
from liquidlog.storage.objects import AmbiguousPutError
from liquidlog.table import as_table, system_clock
from support.arrow_executor import execute
from support.logs import actions_of
from support.plain_table import PlainTable, Row, double

FILES, ROWS = 4, 25


def row(number: int) -> Row:
    return (number, f"s{number % 3}", double(number / 2), (number % 5, ("a", None)))


def made(path: Path, *, vectors: bool) -> PlainTable:
    """A table of 100 rows in four files; the last file has the rows of the first once more."""
    plain = PlainTable.create(path, vectors=vectors)
    for file in range(FILES):
        first = file % (FILES - 1) * ROWS
        plain.append([row(number) for number in range(first, first + ROWS)])
    return plain


class Scene:
    """A table, a finished rewrite of it, and a store that lets others land before our puts."""

    def __init__(self, path: Path, *, vectors: bool, **policy: Any) -> None:
        self.plain = made(path, vectors=vectors)
        self.before = self.plain.rows()
        self.path = path
        self.store = RacedStore(LocalTableStore(path))
        self.table = as_table(OpenedTable(self.store, system_clock()))
        self.plan: ClusteringPlan = self.table.plan(**policy)
        self.result: RewriteResult = execute(self.plan)

    @property
    def inputs(self) -> list[str]:
        return [file.path for group in self.plan.groups for file in group.inputs]

    def commit(self, **settings: Any) -> Any:
        return self.table.commit(self.plan, self.result, **settings)

    def conflicts(self, **settings: Any) -> list[Any]:
        """Commit in vain; return the conflicts, after nothing has changed."""
        before = self.plain.version
        with pytest.raises(CommitConflictError) as caught:
            self.commit(**settings)
        assert self.plain.version == before + len(self.store.landing)
        return [getattr(one, "conflict", one) for one in caught.value.conflicts]

    def expect(self, *, without: Mapping[int, int]) -> None:
        """Require the rows that were there, without so many of these numbers, in every reader."""
        expected = self.before - Counter({row(number): n for number, n in without.items()})
        assert self.plain.rows() == expected
        scanned = pa.table(DeltaTable(self.path).scan().read_all())
        assert Counter(scanned["x"].to_pylist()) == Counter(one[0] for one in expected.elements())

    def require_tidy(self) -> None:
        """Require that there is no file but those that the log names."""
        there = {path.name for path in self.path.iterdir()} - {"_delta_log"}
        assert there <= self.plain.named(), there - self.plain.named()

    def commit_info(self, version: int) -> Any:
        return self.actions(version, "commitInfo")[0]

    def actions(self, version: int, kind: str) -> list[dict[str, Any]]:
        return [line[kind] for line in actions_of(self.path, version) if kind in line]


# A table's store that lets others commit directly before our puts, and loses answers


class Crash(BaseException):
    """The process is gone; nobody catches this, as nobody catches a kill."""


@dataclass
class RacedStore:
    """Everything of another store, but its puts of versions.

    Before each put one of `landing` is called. `lose_response` makes the next put raise after
    storing, `lost_requests` are puts to come that raise before storing; a crash is before or after
    the first put that has nobody to lose against.
    """

    store: TableStore
    landing: list[Callable[[], None]] = field(default_factory=list)
    lose_response: bool = False
    lost_requests: int = 0
    crash_before: bool = False
    crash_after: bool = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def put_log_if_absent(self, name: str, content: bytes) -> bool:
        if self.landing:
            self.landing.pop(0)()
            return self.store.put_log_if_absent(name, content)
        if self.crash_before:
            raise Crash
        if self.lost_requests:
            self.lost_requests -= 1
            raise AmbiguousPutError("timeout")
        stored = self.store.put_log_if_absent(name, content)
        if self.crash_after:
            raise Crash
        if self.lose_response:
            self.lose_response = False
            raise AmbiguousPutError("timeout")
        return stored

    def behave(self) -> None:
        """Let all go well from now on."""
        self.landing.clear()
        self.lose_response = self.crash_before = self.crash_after = False
        self.lost_requests = 0
