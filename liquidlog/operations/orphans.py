"""Files that dead runs of an executor left in a table: found, proved, deleted.

A file is an orphan if it belongs to a run that has not ended (see `data.runs`): no commit can name
it. That the run is dead nobody can prove from outside, so it must have been still for a while; and
it is made sure of before anything is deleted, as a run without its marker can finish no file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.commit.transaction import Clock
from liquidlog.data.runs import end_run, files_of_run, run_marker, unended_runs
from liquidlog.log.store import TableStore
from liquidlog.snapshot import Snapshot, decoded_paths
from liquidlog.spec.file_paths import names_in_table
from liquidlog.spec.rows import Rows
from liquidlog.spec.times import iso_time
from liquidlog.storage.addresses import file_address
from liquidlog.storage.files import FileFacts, file_facts


@dataclass(frozen=True, slots=True)
class DeadRun:
    """What a run left, and why it may not be touched; no reason if it may.

    `files` maps names in the table to facts. `last_write_ms` is the newest modification time.
    """

    token: str
    files: Mapping[str, FileFacts]
    last_write_ms: int
    reason_to_keep: str | None

    @property
    def size_bytes(self) -> int:
        """Bytes of its files."""
        return sum(facts.size_bytes for facts in self.files.values())


def find_dead_runs(
    store: TableStore, snapshot: Snapshot, clock: Clock, *, older_than_ms: int
) -> tuple[DeadRun, ...]:
    """Return the runs that have not ended and what they left, by token.

    A run that wrote within the last `older_than_ms` is taken for alive.

    Raises:
        StorageError: If the table cannot be listed.
    """
    directory = _directory(store)
    before_ms = clock.now_ms() - older_than_ms
    live = names_in_table(decoded_paths(snapshot.files), store.uri)
    found = []
    for token in unended_runs(directory, store.storage):
        marker = file_facts(run_marker(directory, token), store.storage)
        if marker is None:
            continue  # it has ended meanwhile
        names = files_of_run(directory, token, store.storage)
        facts = {name: file_facts(f"{directory}/{name}", store.storage) for name in names}
        files = {name: fact for name, fact in facts.items() if fact is not None}
        last_ms = max(fact.modification_time_ms for fact in (marker, *files.values()))
        reason = None
        if pc.any(pc.is_in(live, value_set=pa.array(list(files), pa.string()))).as_py():
            reason = "the table has one of its files"
        elif last_ms > before_ms:
            reason = f"it may be running: it wrote at {iso_time(last_ms)}"
        found.append(DeadRun(token, files, last_ms, reason))
    return tuple(found)


def delete_dead_runs(store: TableStore, runs: Sequence[DeadRun]) -> tuple[DeadRun, ...]:
    """End the runs that may be touched, delete their files; return those runs.

    Should one of them be alive after all, its tasks fail from now on, and so does its commit.

    Raises:
        StorageError: If the storage cannot be asked.
        UnsupportedFeatureError: If it cannot be written.
    """
    store.require_writable()
    dead = tuple(run for run in runs if run.reason_to_keep is None)
    for run in dead:
        # The marker stays until the files are gone: who stops in between can begin again.
        for name in run.files:
            store.delete_file(name)
        end_run(_directory(store), run.token, storage=store.storage)
    return dead


def orphan_rows(runs: Sequence[DeadRun]) -> Rows:
    """Return one row a file of the runs."""
    return Rows(_row(run, name, facts) for run in runs for name, facts in sorted(run.files.items()))


def _row(run: DeadRun, name: str, facts: FileFacts) -> Mapping[str, Any]:
    return {
        "path": name,
        "size_bytes": facts.size_bytes,
        "modified": iso_time(facts.modification_time_ms),
        "run": run.token,
        "orphan": run.reason_to_keep is None,
        "reason": run.reason_to_keep or "its run never ended and has been still since",
    }


def _directory(store: TableStore) -> str:
    return file_address(store.uri, "").rstrip("/")
