"""Read statistics from data files again and commit them to the log.

Every attempt derives the repair from the newest snapshot: files that other commits removed
meanwhile are not added again, and deletion vectors that they added are kept.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.row_tracking import HIDDEN_COLUMNS
from liquidlog.commit.transaction import Clock
from liquidlog.data.statistics import rescan
from liquidlog.doctor.repairs import NOTHING_LEFT, statistics_repair, with_statistics
from liquidlog.log.statistics import original_adds
from liquidlog.log.store import TableStore
from liquidlog.operations.define import commit_in_place
from liquidlog.plan import WriterOptions
from liquidlog.snapshot import Snapshot, decoded_paths
from liquidlog.spec.actions import Change
from liquidlog.spec.bounds import FileStatistics
from liquidlog.spec.schema import mapping_mode

FILES_IN_A_COMMIT: Final = 10_000
"""Files per commit; if a commit fails, the ones before it stay."""

_READ_TOGETHER: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A repair: its name, the versions it committed (possibly none), its number of files."""

    name: str
    versions: tuple[int, ...]
    files: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rescan:
    """Which files to read again, for which statistics, and whether these replace existing ones."""

    name: str
    files: pa.Table
    options: WriterOptions
    replaces: bool


def backfill(
    store: TableStore, snapshot: Snapshot, rescan_of: Rescan, clock: Clock, *, dry_run: bool
) -> Mended:
    """Read files again and commit their statistics, FILES_IN_A_COMMIT at a time."""
    name, files = rescan_of.name, rescan_of.files
    versions: list[int] = []
    mended = 0
    for start in range(0, files.num_rows, FILES_IN_A_COMMIT):
        part = files.slice(start, FILES_IN_A_COMMIT)
        derive = _StatisticsChange(store, rescan_of, _rescanned(store, snapshot, part, rescan_of))
        version = commit_in_place(
            store, snapshot, derive, clock, dry_run=dry_run, nothing_left=NOTHING_LEFT
        )
        if version is not None:
            versions.append(version)
            mended += derive.files
    return Mended(name=name, versions=tuple(versions), files=mended)


class _StatisticsChange:
    def __init__(
        self, store: TableStore, rescan_of: Rescan, found: Mapping[str, FileStatistics]
    ) -> None:
        self._store = store
        self._rescan = rescan_of
        self._found = found
        self._paths = pa.array(list(found), pa.string())
        self.files = 0

    def __call__(self, newest: Snapshot) -> Change | None:
        live = newest.files.filter(pc.is_in(decoded_paths(newest.files), value_set=self._paths))
        adds = with_statistics(
            live,
            original_adds(self._store, newest, live),
            self._found,
            replaces=self._rescan.replaces,
            tight_bounds=self._rescan.options.tight_bounds,
        )
        self.files = len(adds)
        return statistics_repair(self._rescan.name, adds) if adds else None


def _rescanned(
    store: TableStore, snapshot: Snapshot, files: pa.Table, rescan_of: Rescan
) -> Mapping[str, FileStatistics]:
    configuration = snapshot.metadata.configuration
    ignored = frozenset(configuration[key] for key in HIDDEN_COLUMNS if key in configuration)

    def read(path: str, rows: int | None) -> FileStatistics:
        return rescan(
            store.data_path(path),
            schema=snapshot.schema,
            options=rescan_of.options,
            mapping=mapping_mode(configuration),
            num_records=rows,
            ignored=ignored,
            storage=store.storage,
        )

    paths, rows = decoded_paths(files).to_pylist(), files["num_records"].to_pylist()
    with ThreadPoolExecutor(_READ_TOGETHER) as pool:
        return dict(zip(paths, pool.map(read, paths, rows), strict=True))
