"""Runs: writers of files that no version names yet, and their fates.

Every file of a run, a data file or a deletion vector, has the run's token in its name. Small files
in the table's directory say which stage the run has reached, and in which other directories it
writes, for example in the directories of partitions:

    _liquidspark-TOKEN        the marker: tasks of the run may finish files; it says who began it
    _liquidspark-TOKEN-fate   "finished DIGEST": its outputs are whole and may be committed
                              "retired": it was ended before it finished; nothing may be committed
                              "withdrawn": it had finished, and is being deleted
    _liquidspark-TOKEN-directories   a JSON list, written before any file in these directories

A conditional put creates the fate, and fails if there is one. So a run either finishes itself, or
another process retires it, never both. A commit puts a version only while the fate says that the
run finished, with the digest of the documents that it commits; then the fate is removed. To delete
files of a run, first retire or withdraw it, then read the log, then delete the files that the log
does not name. A commit may have read the fate before its run was withdrawn: a version that is put
in between makes this commit read the fate again (see `operations.vacuum`).
"""

import hashlib
import os
import re
import socket
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from typing import Annotated, Final, Self
from uuid import UUID

import msgspec

from liquidlog.errors import ExecutorError, LiquidlogError, StorageError
from liquidlog.spec.actions import UNREADABLE, VECTOR_PREFIX
from liquidlog.spec.arrow import is_safe_directory
from liquidlog.storage.addresses import NO_OPTIONS, StorageOptions
from liquidlog.storage.files import (
    create_small,
    delete_file,
    file_facts,
    make_directory,
    names_with_prefix,
    put_if_absent,
    read_file,
    replace_file,
)
from liquidlog.storage.objects import AmbiguousPutError

APPEND: Final = "append"
"""The verb of runs that append: they replace no file."""
_MOST_CHARACTERS: Final = 255
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=_MOST_CHARACTERS)]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The process that began a run, for people to read; `started_ms` is by its host's clock."""

    verb: _Name
    host: _Name
    pid: Annotated[int, msgspec.Meta(ge=0)]
    started_ms: int
    plan_id: str | None = None

    @classmethod
    def here(cls, verb: str, *, now_ms: int, plan_id: str | None = None) -> Self:
        host = socket.gethostname()[:_MOST_CHARACTERS] or "localhost"
        return cls(verb=verb, host=host, pid=os.getpid(), started_ms=now_ms, plan_id=plan_id)

    def __str__(self) -> str:
        return f"{self.verb} on {self.host}, process {self.pid}"


_MARKER_PREFIX: Final = "_liquidspark-"
"""This prefix hides the files from listings of data files."""
_FATE_SUFFIX: Final = "-fate"
_DIRECTORIES_SUFFIX: Final = "-directories"
_TOKEN: Final = re.compile(r"[0-9a-f]{12}")
_MARKER: Final = re.compile(
    rf"{_MARKER_PREFIX}(?P<token>[0-9a-f]{{12}})(?P<suffix>{_FATE_SUFFIX}|{_DIRECTORIES_SUFFIX})?"
)
_PUTS: Final = 4
_ENDED: Final = "the run was ended by another process, as orphans --delete does"


class RunStage(Enum):
    """How far a run has come."""

    RUNNING = "running"
    FINISHED = "finished"
    RETIRED = "retired"
    WITHDRAWN = "withdrawn"
    GONE = "gone"
    """No trace is left: the run was committed, or cleaned up, or never began."""


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt to write files into a table.

    `directory` is the table's address; `token` has 12 hexadecimal digits that no other run has.
    `directories`, relative to it, may hold data files besides the table's own.
    """

    directory: str
    token: str
    storage: StorageOptions = NO_OPTIONS
    directories: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a malformed token or directory, since both become part of file names."""
        odd = [name for name in self.directories if not is_safe_directory(name)]
        if odd:
            raise ValueError(f"{odd[0]!r} is no directory of data files of the table")
        if not _TOKEN.fullmatch(self.token):
            raise ValueError(f"{self.token!r} is not 12 hexadecimal digits, as tokens of runs are")

    @property
    def name_prefix(self) -> str:
        """The first part of the names of the run's data files: object stores list by prefix."""
        return f"part-{self._uuid_start}-"

    def uuid(self, unique_id: str) -> UUID:
        """Return a uuid for a file of the run, made from a unique id; it begins with the token."""
        rest = hashlib.sha256(unique_id.encode()).hexdigest()
        return UUID(hex=f"{self.token}{rest[:20]}", version=4)

    def file_name(self, number: int, attempt: str, codec: str) -> str:
        """Return a name for the run's output `number`; `attempt` distinguishes task attempts."""
        return f"{self.name_prefix}{number:05d}-{attempt}.c000.{codec}.parquet"

    def path(self, name: str) -> str:
        """Return the path of a data file, relative to the table: in the run's one directory."""
        return "/".join((*self.directories[:1], name))

    def begin(self, origin: Origin | None = None) -> None:
        """Put the marker, so that tasks may finish files of this run, and note its directories."""
        content = b"" if origin is None else msgspec.json.encode(origin)
        create_small(self._marker, content + b"\n", self.storage)
        self.note_directories()

    def within(self, directories: Iterable[str]) -> "Run":
        """Return the run with more directories; `note_directories` must precede files."""
        found = tuple(dict.fromkeys((*self.directories, *directories)))
        return replace(self, directories=found)

    def note_directories(self) -> None:
        if not self.directories:
            return
        replace_file(self._noted, msgspec.json.encode(self.directories), self.storage)
        for name in self.directories:
            make_directory(self._address(name))

    def noted(self) -> "Run":
        """Return the same run with the directories noted in the table."""
        content = read_file(self._noted, self.storage)
        if content is None:
            return self
        try:
            found = msgspec.json.decode(content, type=tuple[str, ...])
            return replace(self, directories=found)
        except (msgspec.MsgspecError, ValueError) as error:
            raise StorageError(self._noted, f"does not contain directories: {error}") from error

    def origin(self) -> Origin | None:
        """Return who began the run; None if its marker is gone or does not say."""
        content = read_file(self._marker, self.storage)
        try:
            return None if content is None else msgspec.json.decode(content, type=Origin)
        except UNREADABLE:
            return None

    def has_ended(self) -> bool:
        """Return whether the run was ended, by any process; its tasks must then stop."""
        missing = file_facts(self._marker, self.storage) is None
        return missing or file_facts(self._fate, self.storage) is not None

    def finish(self, digest: str, *, keep: Collection[str] = ()) -> None:
        """Declare the run finished with the documents of `digest`; delete files not in `keep`."""
        settled = self._settle_fate(f"{RunStage.FINISHED.value} {digest}".encode())
        if not settled or file_facts(self._marker, self.storage) is None:
            if settled:  # its files had already been deleted
                delete_file(self._fate, self.storage)
            raise ExecutorError(_ENDED)
        delete_file(self._marker, self.storage)
        for name in self.files():
            if name not in keep:
                delete_file(self._address(name), self.storage)

    @contextmanager
    def accepting(self, name: str) -> Iterator[None]:
        """Context manager: the body proves a file; delete it if that fails or the run has ended."""
        try:
            yield
            if self.has_ended():
                raise ExecutorError(_ENDED)  # noqa: TRY301  the file is deleted below
        except BaseException:
            with suppress(LiquidlogError):
                delete_file(self._address(name), self.storage)
            raise

    def stage(self) -> RunStage:
        fate = self._read_fate()
        if fate is not None:
            return fate[0]
        begun = file_facts(self._marker, self.storage) is not None
        return RunStage.RUNNING if begun else RunStage.GONE

    def finished_digest(self) -> str | None:
        fate = self._read_fate()
        return None if fate is None or fate[0] is not RunStage.FINISHED else fate[1]

    def retire(self) -> RunStage:
        """Retire the run if it has not finished, for good; return its stage afterwards."""
        if self.stage() is RunStage.RUNNING:
            self._settle_fate(RunStage.RETIRED.value.encode())
        return self.stage()

    def withdraw(self) -> None:
        """Withdraw a finished run; a commit that already read its fate may still land."""
        replace_file(self._fate, RunStage.WITHDRAWN.value.encode(), self.storage)

    def files(self) -> tuple[str, ...]:
        """Return the names of the files that the run has written so far, sorted."""
        # The uuids of deletion vectors begin with the token, too.
        prefixes = self.name_prefix, f"{VECTOR_PREFIX}{self._uuid_start}-"
        found = (names_with_prefix(self.directory, prefix, self.storage) for prefix in prefixes)
        inside = (
            f"{directory}/{name}"
            for directory in self.directories
            for name in names_with_prefix(self._address(directory), self.name_prefix, self.storage)
        )
        return tuple(sorted((*chain.from_iterable(found), *inside)))

    def delete_files(self, names: Collection[str]) -> None:
        """Delete some of the run's files; the caller has proved that no version names them.

        The marker goes first, so that a task that finishes a file later deletes it itself.
        """
        delete_file(self._marker, self.storage)
        for name in names:
            delete_file(self._address(name), self.storage)

    def forget(self, *, named: Collection[str] = ()) -> None:
        """Delete the run's marker and fate, unless it has files that are not in `named`.

        Without marker and fate, such files would never be listed.
        """
        delete_file(self._marker, self.storage)
        if frozenset(self.files()) <= frozenset(named):
            if self.directories:
                delete_file(self._noted, self.storage)
            delete_file(self._fate, self.storage)

    def discard(self) -> None:
        """Delete all files of a run whose result nobody received, best-effort."""
        with suppress(LiquidlogError, AmbiguousPutError):
            if self.retire() is RunStage.FINISHED:
                self.withdraw()
            self.delete_files(self.files())
            self.forget()

    def _settle_fate(self, content: bytes) -> bool:
        """Put `content` as the fate if there is none; return whether the fate is `content`."""
        for _ in range(_PUTS):
            try:
                if put_if_absent(self._fate, content, self.storage):
                    return True
            except AmbiguousPutError:
                pass  # the fate that is stored decides
            found = read_file(self._fate, self.storage)
            if found is not None:
                return found == content
        raise StorageError(self._fate, "may or may not have been stored")

    def _read_fate(self) -> tuple[RunStage, str] | None:
        content = read_file(self._fate, self.storage)
        if content is None:
            return None
        stage, _, digest = content.decode(errors="replace").strip().partition(" ")
        if stage not in {RunStage.FINISHED.value, RunStage.RETIRED.value, RunStage.WITHDRAWN.value}:
            raise StorageError(self._fate, "does not contain the fate of a run")
        return RunStage(stage), digest

    def _address(self, name: str) -> str:
        return f"{self.directory}/{name}"

    @property
    def _uuid_start(self) -> str:
        return f"{self.token[:8]}-{self.token[8:12]}"

    @property
    def _marker(self) -> str:
        return self._address(f"{_MARKER_PREFIX}{self.token}")

    @property
    def _fate(self) -> str:
        return f"{self._marker}{_FATE_SUFFIX}"

    @property
    def _noted(self) -> str:
        return f"{self._marker}{_DIRECTORIES_SUFFIX}"

    def last_trace_ms(self) -> int | None:
        """Return when the marker or the fate was last written, in ms; None if both are gone."""
        found = [file_facts(path, self.storage) for path in (self._marker, self._fate)]
        times = [facts.modification_time_ms for facts in found if facts is not None]
        return max(times, default=None)


def run_token(unique_id: str) -> str:
    return hashlib.sha256(unique_id.encode()).hexdigest()[:12]


def tokens_in(directory: str, storage: StorageOptions = NO_OPTIONS) -> frozenset[str]:
    traces = _traces(directory, storage)
    return frozenset(traces[""] | traces[_FATE_SUFFIX])


def runs_in(
    directory: str, storage: StorageOptions = NO_OPTIONS, *, running: bool = False
) -> tuple[Run, ...]:
    """Return the runs that left traces in a directory; only runs without a fate if `running`."""
    traces = _traces(directory, storage)
    begun, fates, noted = (traces[one] for one in ("", _FATE_SUFFIX, _DIRECTORIES_SUFFIX))
    tokens = sorted(begun - fates if running else begun | fates)
    runs = (Run(directory, token, storage) for token in tokens)
    return tuple(run.noted() if run.token in noted else run for run in runs)


def _traces(directory: str, storage: StorageOptions) -> dict[str, set[str]]:
    """Return the tokens of markers, by the suffix of their names."""
    found: dict[str, set[str]] = {"": set(), _FATE_SUFFIX: set(), _DIRECTORIES_SUFFIX: set()}
    for name in names_with_prefix(directory, _MARKER_PREFIX, storage):
        match = _MARKER.fullmatch(name)
        if match is not None:
            found[match["suffix"] or ""].add(match["token"])
    return found
