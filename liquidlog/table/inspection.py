"""Looking at a table: nothing here writes."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from liquidlog.clustering.domain import clustering_state
from liquidlog.clustering.health.measure import Health
from liquidlog.clustering.zcubes import cube_table
from liquidlog.doctor.findings import Finding, findings
from liquidlog.errors import UsageError
from liquidlog.log.history import count_commits, read_history
from liquidlog.operations import doctor, inspect
from liquidlog.operations.overview import Overview, overview
from liquidlog.operations.replay import WrittenBytes, written_bytes
from liquidlog.operations.scan import Scan, scan
from liquidlog.operations.simulate import simulated_table
from liquidlog.plan import DEFAULT_MIN_CUBE_BYTES
from liquidlog.predicates.workload import WeightedPredicate, Workload
from liquidlog.simulation.table import SimulatedTable
from liquidlog.spec.arguments import column_paths, one, several, whole_number
from liquidlog.spec.rows import Rows
from liquidlog.spec.sizes import parse_size
from liquidlog.table.opened import OpenedTable, Size


class Inspection(OpenedTable):
    """Methods that answer questions about a version."""

    def detail(self, version: int | None = None) -> Mapping[str, Any]:
        """Return the DESCRIBE DETAIL row."""
        return inspect.detail(self.snapshot(version))

    def history(self, limit: int | None = None) -> Rows:
        """Return the commits, newest first, with the columns of DESCRIBE HISTORY.

        Raises:
            UsageError: If `limit` is not a whole number from 1.
        """
        if limit is not None:
            limit = whole_number(limit, argument="limit", least=1)
        return read_history(self._store, limit)

    def commit_count(self) -> int:
        """Return the number of commits still in the log: the length of a history without limit."""
        return count_commits(self._store)

    def files(
        self, version: int | None = None, *, min_cube_size: Size = DEFAULT_MIN_CUBE_BYTES
    ) -> pa.Table:
        """Return one row per live file: size, rows, cube, state, bounds of clustering columns."""
        return inspect.files(self._store, self.snapshot(version), parse_size(min_cube_size))

    def files_at(self, version: int | None = None) -> tuple[int, pa.Table]:
        """Return (version, files): the files together with the version they are live at."""
        snapshot = self.snapshot(version)
        return snapshot.version, inspect.files(self._store, snapshot, DEFAULT_MIN_CUBE_BYTES)

    def cubes(self, *, min_cube_size: Size = DEFAULT_MIN_CUBE_BYTES) -> pa.Table:
        """Return one row a ZCube."""
        snapshot = self.snapshot()
        columns = clustering_state(snapshot).columns
        return cube_table(snapshot, columns, parse_size(min_cube_size))

    def health(
        self,
        columns: str | Sequence[str] | None = None,
        *,
        where: str | None = None,
        min_cube_size: Size = DEFAULT_MIN_CUBE_BYTES,
    ) -> Health:
        """Return how well the table is clustered, by its own or by other columns.

        With `where`, only files that the SQL predicate may match are measured.

        Raises:
            ClusteringColumnError: If a column cannot be measured.
            UsageError: If the predicate cannot be understood.
        """
        paths = None if columns is None else column_paths(columns, argument="columns")
        return inspect.health(
            self._store,
            self.snapshot(),
            paths,
            where=where,
            min_cube_bytes=parse_size(min_cube_size),
            now_ms=self._clock.now_ms(),
        )

    def doctor(self, *, min_cube_size: Size = DEFAULT_MIN_CUBE_BYTES) -> tuple[Finding, ...]:
        """Return what is wrong with the clustering, each with the command that mends it."""
        cube_bytes = parse_size(min_cube_size)
        return findings(doctor.examine(self._store, self.snapshot(), min_cube_bytes=cube_bytes))

    def overview(self, *, min_cube_size: Size = DEFAULT_MIN_CUBE_BYTES) -> Overview:
        """Return all that a report shows: health, findings, pictures, the past."""
        cube_bytes, now_ms = parse_size(min_cube_size), self._clock.now_ms()
        return overview(self._store, self.snapshot(), min_cube_bytes=cube_bytes, now_ms=now_ms)

    def scan_files(self, where: str, version: int | None = None) -> pa.Table:
        """Return the files (path, size_bytes) that a reader of the predicate must open.

        Raises:
            UsageError: If the predicate cannot be understood.
        """
        return inspect.matching_files(self._store, self.snapshot(version), where)

    def scan(
        self,
        where: str | None = None,
        *,
        workload: Workload = (),
        version: int | None = None,
        time_zone: str | None = None,
    ) -> Scan:
        """Return the files and bytes that a reader of a predicate must open, by statistics alone.

        Instead of one predicate a workload can be given, as `parse_workload` returns it.
        `time_zone` is that of the readers' sessions, like "Europe/Berlin"; without it, times in
        predicates that name no zone may be meant in any.

        Raises:
            UsageError: If a predicate cannot be understood, not one of the two is given, or there
                is no such time zone.
        """
        if (where is None) == (not workload):
            raise UsageError("a scan needs either a predicate or a workload")
        asked = _workload(workload) if where is None else (WeightedPredicate(where),)
        if time_zone is not None:
            one(time_zone, str, argument="time_zone", expected="a name like Europe/Berlin")
        return scan(self._store, self.snapshot(version), asked, time_zone=time_zone)

    def written_bytes(self) -> tuple[WrittenBytes, ...]:
        """Return what each commit still in the log wrote, oldest first: new data and moved data."""
        return written_bytes(self._store)

    def simulated(self, *, append_bytes: int, scenario: str) -> SimulatedTable:
        """Return a made-up table with files like this one's, for `liquidlog.simulation`.

        Raises:
            UsageError: If the table has no clustering columns, there is no such scenario, or
                `append_bytes` is not positive.
        """
        append_bytes = whole_number(append_bytes, argument="append_bytes", least=1)
        return simulated_table(
            self._store, self.snapshot(), append_bytes=append_bytes, scenario=scenario
        )


def _workload(value: object) -> Workload:
    return several(value, (WeightedPredicate,), argument="workload", of="WeightedPredicates")
