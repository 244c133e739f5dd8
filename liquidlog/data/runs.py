"""Runs: who writes data files that no version names yet, and what became of them.

Every file of a run has the run's token in its name. What a run is at is told by two small files in
the table's directory:

    _liquidspark-TOKEN        the marker: tasks of the run may finish files
    _liquidspark-TOKEN-fate   "finished DIGEST": its outputs are whole and may be committed
                              "retired": it was ended before it finished; nothing may be committed
                              "withdrawn": it had finished, and is being deleted

The fate is put under the condition that there is none, so a run is either finished, by itself, or
retired, by somebody else, never both. A commit puts a version only while it reads its run's fate as
finished, with the digest of exactly the documents it commits; the fate goes when the commit has
landed. So who deletes files of a run first retires or withdraws it, then reads the log, and then
deletes what the log does not name. A withdrawn run may have a commit on its way that looked before:
a version of their own, put in between, makes it look again (see `operations.orphans`).
"""

import hashlib
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Final

from liquidlog.errors import ExecutorError, LiquidlogError, StorageError
from liquidlog.storage.failures import AmbiguousPutError
from liquidlog.storage.files import (
    delete_file,
    file_facts,
    names_with_prefix,
    put_if_absent,
    read_file,
    replace_file,
    touch,
)
from liquidlog.storage.options import NO_OPTIONS, StorageOptions

_MARKER_PREFIX: Final = "_liquidspark-"
"""Hidden from everything that lists data files."""

_FATE_SUFFIX: Final = "-fate"
_TOKEN: Final = re.compile(r"[0-9a-f]{12}")
_MARKER: Final = re.compile(rf"{_MARKER_PREFIX}(?P<token>[0-9a-f]{{12}})(?:{_FATE_SUFFIX})?")
_PUTS: Final = 4


class Stage(Enum):
    """How far a run is."""

    RUNNING = "running"
    FINISHED = "finished"
    RETIRED = "retired"
    WITHDRAWN = "withdrawn"
    GONE = "gone"
    """It left no trace: it was committed, cleaned up, or never began."""


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt to write files into a table.

    `directory` is the table's address, `token` 12 hexadecimal digits that no other run has,
    `storage` opens the table.
    """

    directory: str
    token: str
    storage: StorageOptions = NO_OPTIONS

    def __post_init__(self) -> None:
        """Refuse what is no token: it becomes part of file names.

        Raises:
            ValueError: With what was found.
        """
        if not _TOKEN.fullmatch(self.token):
            raise ValueError(f"{self.token!r} is not 12 hexadecimal digits, as tokens of runs are")

    @property
    def name_prefix(self) -> str:
        """What the names of its files begin with.

        The token comes first: object stores list by prefix, and a table may hold a million files.
        """
        return f"part-{self.token[:8]}-{self.token[8:12]}-"

    def file_name(self, number: int, attempt: str, codec: str) -> str:
        """Return a name for its output `number`; `attempt` tells task attempts apart."""
        return f"{self.name_prefix}{number:05d}-{attempt}.c000.{codec}.parquet"

    def begin(self) -> None:
        """Allow tasks to finish files of this run.

        Raises:
            StorageError: If the table cannot be written.
            UnsupportedFeatureError: If its storage is read only.
        """
        touch(self._marker, self.storage)

    def has_ended(self) -> bool:
        """Return whether it ended, by itself or by somebody else: its tasks must not go on.

        Raises:
            StorageError: If the storage cannot be asked.
        """
        missing = file_facts(self._marker, self.storage) is None
        return missing or file_facts(self._fate, self.storage) is not None

    def finish(self, digest: str, *, keep: Collection[str] = ()) -> None:
        """Say that its outputs are whole; delete its other files, those of lost task attempts.

        Args:
            digest: Of the documents that a commit of its outputs has to show.
            keep: Names of its outputs.

        Raises:
            ExecutorError: If somebody else ended it before: its outputs are being deleted.
            StorageError: If the storage cannot be written or asked.
        """
        settled = self._settle_fate(f"{Stage.FINISHED.value} {digest}".encode())
        if not settled or file_facts(self._marker, self.storage) is None:
            if settled:  # the cleaning up was over already
                delete_file(self._fate, self.storage)
            raise ExecutorError("the run was ended by somebody else, as orphans --delete does")
        delete_file(self._marker, self.storage)
        for name in self.files():
            if name not in keep:
                delete_file(self._address(name), self.storage)

    def stage(self) -> Stage:
        """Return how far it is.

        Raises:
            StorageError: If the storage cannot be asked, or the fate is none of the known ones.
        """
        fate = self._read_fate()
        if fate is not None:
            return fate[0]
        begun = file_facts(self._marker, self.storage) is not None
        return Stage.RUNNING if begun else Stage.GONE

    def finished_digest(self) -> str | None:
        """Return the digest with which it finished; None if it is at any other stage.

        Raises:
            StorageError: If the storage cannot be asked.
        """
        fate = self._read_fate()
        return None if fate is None or fate[0] is not Stage.FINISHED else fate[1]

    def retire(self) -> Stage:
        """End it if it runs; return the stage after that: retired, or what it was at before.

        A run that is retired cannot finish any more, so its files can never be committed.

        Raises:
            StorageError: If the storage cannot be written or asked.
        """
        if self.stage() is Stage.RUNNING:
            self._settle_fate(Stage.RETIRED.value.encode())
        return self.stage()

    def withdraw(self) -> None:
        """Stop commits of a finished run from looking at its outputs any more.

        A commit that looked before this may still land.

        Raises:
            StorageError: If the storage cannot be written.
        """
        replace_file(self._fate, Stage.WITHDRAWN.value.encode(), self.storage)

    def files(self) -> tuple[str, ...]:
        """Return the names of the files that it has written so far, sorted.

        Raises:
            StorageError: If the storage cannot be asked.
        """
        return tuple(sorted(names_with_prefix(self.directory, self.name_prefix, self.storage)))

    def delete_files(self, names: Collection[str]) -> None:
        """Delete some of its files; the caller knows that no version names them.

        The marker goes first: a task that finishes a file later deletes it itself.

        Raises:
            StorageError: If one of them may still be there.
        """
        delete_file(self._marker, self.storage)
        for name in names:
            delete_file(self._address(name), self.storage)

    def forget(self, *, named: Collection[str] = ()) -> None:
        """Delete what says that there was such a run, unless it has files beside the named ones.

        Files of a run that left no trace would never be found.

        Raises:
            StorageError: If something of it may still be there, or cannot be listed.
        """
        delete_file(self._marker, self.storage)
        if frozenset(self.files()) <= frozenset(named):
            delete_file(self._fate, self.storage)

    def discard(self) -> None:
        """Delete everything of a run whose result nobody was given, best-effort.

        What cannot be deleted stays listed.
        """
        with suppress(LiquidlogError, AmbiguousPutError):
            if self.retire() is Stage.FINISHED:
                self.withdraw()
            self.delete_files(self.files())
            self.forget()

    def _settle_fate(self, content: bytes) -> bool:
        """Return whether `content` is the fate; it is put unless there is one.

        Raises:
            StorageError: If that cannot be told, or nothing can be stored.
        """
        for _ in range(_PUTS):
            try:
                if put_if_absent(self._fate, content, self.storage):
                    return True
            except AmbiguousPutError:
                pass  # what is there now tells
            found = read_file(self._fate, self.storage)
            if found is not None:
                return found == content
        raise StorageError(self._fate, "may or may not have been stored")

    def _read_fate(self) -> tuple[Stage, str] | None:
        content = read_file(self._fate, self.storage)
        if content is None:
            return None
        stage, _, digest = content.decode(errors="replace").strip().partition(" ")
        if stage not in {Stage.FINISHED.value, Stage.RETIRED.value, Stage.WITHDRAWN.value}:
            raise StorageError(self._fate, "does not say what became of its run")
        return Stage(stage), digest

    def _address(self, name: str) -> str:
        return f"{self.directory}/{name}"

    @property
    def _marker(self) -> str:
        return self._address(f"{_MARKER_PREFIX}{self.token}")

    @property
    def _fate(self) -> str:
        return f"{self._marker}{_FATE_SUFFIX}"

    def last_trace_ms(self) -> int | None:
        """Return when its marker or its fate was written, ms since the epoch; None if both went.

        Raises:
            StorageError: If the storage cannot be asked.
        """
        found = [file_facts(path, self.storage) for path in (self._marker, self._fate)]
        times = [facts.modification_time_ms for facts in found if facts is not None]
        return max(times, default=None)


def run_token(unique_id: str) -> str:
    """Return the token that belongs to an id which nobody else has."""
    return hashlib.sha256(unique_id.encode()).hexdigest()[:12]


def runs_in(directory: str, storage: StorageOptions = NO_OPTIONS) -> tuple[Run, ...]:
    """Return the runs that left a trace in a table, by token: running, finished or dead.

    Raises:
        StorageError: If the storage cannot be asked.
    """
    names = names_with_prefix(directory, _MARKER_PREFIX, storage)
    matches = (_MARKER.fullmatch(name) for name in names)
    tokens = {match["token"] for match in matches if match is not None}
    return tuple(Run(directory, token, storage) for token in sorted(tokens))
