"""Table: one method a stage. The only place that reads the clock and makes ids.

table = Table.open(uri)
plan = table.plan()                      # Snapshot -> ClusteringPlan
result = liquidspark.execute(spark, plan)  # ClusteringPlan -> RewriteResult
table.commit(plan, result)               # RewriteResult -> versions
"""

import secrets
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib.metadata import entry_points
from typing import Any, Final

import pyarrow as pa

from liquidlog.clustering.domain import clustering_state
from liquidlog.clustering.health import Health
from liquidlog.clustering.metrics import optimize_metrics
from liquidlog.clustering.planner import STRATEGIES
from liquidlog.clustering.planner import plan as make_plan
from liquidlog.clustering.planning import Strategy
from liquidlog.clustering.workload import WeightedPredicate, Workload
from liquidlog.clustering.zcubes import cube_table
from liquidlog.commit.transaction import Clock
from liquidlog.errors import UsageError
from liquidlog.log.history import read_history
from liquidlog.log.loader import advance, load_snapshot, newest_version
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.log.stores import open_store
from liquidlog.log.time_travel import version_at
from liquidlog.operations import alter, define, inspect
from liquidlog.operations.append import Appended, AppendRequest, Source, append
from liquidlog.operations.optimize import CommitReport, commit_groups
from liquidlog.operations.replay import Replay, WrittenBytes, replay, written_bytes
from liquidlog.operations.rewrite import pending_groups
from liquidlog.operations.scan import Scan, scan
from liquidlog.operations.simulate import simulated_table
from liquidlog.plan import (
    DEFAULT_MAX_FILE_BYTES,
    DEFAULT_MIN_CUBE_BYTES,
    DEFAULT_MIN_OVERLAP,
    DEFAULT_MIN_OVERLAPPING_FILES,
    DEFAULT_TARGET_CUBE_BYTES,
    DEFAULT_TOLERANCE,
    ClusteringPlan,
    ClusteringPolicy,
    GroupFailure,
    RewriteResult,
    RewrittenGroup,
)
from liquidlog.simulation.prediction import Prediction, predict
from liquidlog.simulation.table import SimulatedTable
from liquidlog.snapshot import Snapshot
from liquidlog.spec.rows import Rows
from liquidlog.spec.schema import StructType, split_path
from liquidlog.spec.sizes import parse_size
from liquidlog.spec.times import parse_time

STRATEGY_GROUP: Final = "liquidlog.strategies"
"""Entry points of further planning strategies: a name and a Strategy."""

_BACK_OFF_MS: Final = 20
_MAX_BACK_OFF_MS: Final = 2_000
"""The longest wait after the first lost race is twice the former, and never above the latter."""

Size = int | str
"""Bytes, as a number or as text: 1073741824, "1GiB", "100GB"."""


class Table:
    """A Delta table at an address. Every method reads the newest version unless told otherwise."""

    def __init__(self, store: TableStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._newest: Snapshot | None = None

    @classmethod
    def open(cls, uri: str, *, storage_options: Mapping[str, str] | None = None) -> "Table":
        """Return the table at `uri`: a path, or a URI of file:, s3:, gs:, az: or abfss:.

        Storage options have the names that delta-rs gives them; environment variables count too.

        Raises:
            TableNotFoundError: If there is none.
            UsageError: If the address or a storage option cannot be used.
            StorageError: If the storage refuses.
        """
        table = cls(open_store(uri, storage_options), system_clock())
        newest_version(table._store)
        return table

    @classmethod
    def create(
        cls,
        uri: str,
        *,
        schema: StructType | pa.Schema | None = None,
        like: "Table | None" = None,
        cluster_by: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> "Table":
        """Create an empty table and return it.

        Either a schema or a table to be like is given; `like` copies schema, properties and
        clustering columns, and `cluster_by` and `properties` then replace or add to them.

        Raises:
            TableExistsError: If there is a table at `uri` already.
            ClusteringColumnError: If it cannot be clustered so; holds every problem.
            UsageError: If not exactly one of schema and like is given, or a property is refused.
            StorageError: If the target cannot be written.
        """
        definition = cls.definition(
            schema=schema, like=like, cluster_by=cluster_by, properties=properties
        )
        return cls.create_as(uri, definition, storage_options=storage_options)

    @staticmethod
    def definition(
        *,
        schema: StructType | pa.Schema | None = None,
        like: "Table | None" = None,
        cluster_by: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> define.Definition:
        """Return what a new table shall be, as for create."""
        return define.Definition(
            schema=schema,
            like=None if like is None else like.snapshot(),
            cluster_by=None if cluster_by is None else tuple(split_path(c) for c in cluster_by),
            properties=properties or {},
        )

    @classmethod
    def create_as(
        cls,
        uri: str,
        definition: define.Definition,
        *,
        storage_options: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> "Table":
        """Create an empty table as defined; with `dry_run`, check everything and write nothing.

        Raises:
            TableExistsError: If there is a table at `uri` already.
            ClusteringColumnError: If it cannot be clustered so; holds every problem.
            UsageError: If the definition is not one of a table.
            StorageError: If the target cannot be written.
        """
        table = cls(open_store(uri, storage_options), system_clock())
        define.create(table._store, definition, table._clock, dry_run=dry_run)
        return table

    @property
    def uri(self) -> str:
        """The table's address."""
        return self._store.uri

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Return the table's state at a version, the newest if None.

        Raises:
            VersionNotFoundError: If the log does not hold that version.
            CorruptLogError: If the log is broken.
            UnsupportedFeatureError: If the table cannot be read; names every reason.
        """
        if version is not None:
            return load_snapshot(self._store, version)
        return self.update()

    def update(self) -> Snapshot:
        """Return the newest version; after the first time only new commits are read.

        Raises:
            CorruptLogError: If the log is broken.
            UnsupportedFeatureError: If the table cannot be read; names every reason.
        """
        if self._newest is None:
            self._newest = load_snapshot(self._store)
        else:
            self._newest, _ = advance(self._store, self._newest)
        return self._newest

    def at(self, timestamp: str | datetime) -> Snapshot:
        """Return the table's state at a time: ISO 8601, in UTC if it names no zone.

        Raises:
            TimestampNotFoundError: If it is before the first or after the last commit.
            UsageError: If it is not a time.
        """
        return self.snapshot(self.version_at(timestamp))

    def version_at(self, timestamp: str | datetime) -> int:
        """Return the last version committed at or before a time, as for `at`."""
        text = timestamp if isinstance(timestamp, str) else timestamp.isoformat()
        return version_at(self._store, self.update(), parse_time(text))

    def append(
        self,
        data: Source | Sequence[Source],
        *,
        cluster: bool = False,
        dry_run: bool = False,
    ) -> Appended:
        """Append Parquet files (paths) or Arrow data as fresh files in one commit.

        Columns may come in any order; everything else must fit the schema. With `cluster`, each
        batch is sorted along the curve of the clustering columns first. Without rows there is no
        commit and the version stays. With `dry_run` the sources are checked, nothing is written.

        Raises:
            SchemaMismatchError: If the data is not of the table's schema; shows both.
            DataFileError: If a file cannot be read.
            UnsupportedFeatureError: If the table asks more of a writer than we do.
            CommitError: If the commit did not land.
        """
        sources = [data] if isinstance(data, str | pa.Table | pa.RecordBatchReader) else [*data]
        request = AppendRequest(sources=tuple(sources), cluster=cluster, dry_run=dry_run)
        return append(self._store, self.snapshot(), request, self._clock)

    def cluster_by(self, columns: Sequence[str] | None, *, dry_run: bool = False) -> int:
        """Set the clustering columns, None to have none; return the table's version after it.

        No file is rewritten. An unclustered, unpartitioned table is upgraded in the same commit.
        Where there is nothing to change there is no commit.

        Raises:
            ClusteringColumnError: If the table cannot be clustered so; holds every problem.
            UnsupportedFeatureError: If the table asks more of a writer than we do.
            CommitError: If the commit did not land.
        """
        paths = None if columns is None else tuple(split_path(column) for column in columns)
        snapshot = self.snapshot()
        return define.cluster_by(self._store, snapshot, paths, self._clock, dry_run=dry_run)

    def rename_column(self, old: str, new: str, *, dry_run: bool = False) -> int:
        """Rename a column, `a` or a field `a.b`; return the table's version after it.

        `new` is the last part of the new name. Needs column mapping. Clustering stays, and cubes
        stay the table's own: their tags get the new name in the same commit.

        Raises:
            UsageError: If a name is not one.
            SchemaChangeError: If the table cannot have it; holds every problem.
            UnsupportedFeatureError: If the table asks more of a writer than we do.
            CommitError: If the commit did not land.
        """
        name = split_path(new)
        if len(name) > 1:
            raise UsageError(f"{new} is more than a name; give its last part only", value=new)
        snapshot, path = self.snapshot(), split_path(old)
        return alter.rename_column(
            self._store, snapshot, path, name[0], self._clock, dry_run=dry_run
        )

    def drop_column(self, name: str, *, dry_run: bool = False) -> int:
        """Drop a column that nothing depends on; return the table's version after it.

        Needs column mapping. Clustering columns and what holds them stay.

        Raises:
            SchemaChangeError: If the table cannot be without it; holds every problem.
            UnsupportedFeatureError: If the table asks more of a writer than we do.
            CommitError: If the commit did not land.
        """
        snapshot, path = self.snapshot(), split_path(name)
        return alter.drop_column(self._store, snapshot, path, self._clock, dry_run=dry_run)

    def set_properties(
        self, properties: Mapping[str, str], *, unset: Sequence[str] = (), dry_run: bool = False
    ) -> int:
        """Set some properties and remove others; return the table's version after it.

        Setting delta.columnMapping.mode to name turns column mapping on. Where there is nothing
        to change there is no commit.

        Raises:
            SchemaChangeError: If one is not a user's to change, or cannot have its value.
            UnsupportedFeatureError: If the table asks more of a writer than we do.
            CommitError: If the commit did not land.
        """
        return alter.set_properties(
            self._store, self.snapshot(), properties, unset, self._clock, dry_run=dry_run
        )

    def detail(self, version: int | None = None) -> Mapping[str, Any]:
        """Return the DESCRIBE DETAIL row."""
        return inspect.detail(self.snapshot(version))

    def history(self, limit: int | None = None) -> Rows:
        """Return the commits, newest first, with the columns of DESCRIBE HISTORY."""
        return read_history(self._store, limit)

    def files(
        self, version: int | None = None, *, min_cube_size: Size = DEFAULT_MIN_CUBE_BYTES
    ) -> pa.Table:
        """Return one row a live file: size, rows, cube, state, bounds of clustering columns."""
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
        columns: Sequence[str] | None = None,
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
        paths = None if columns is None else tuple(split_path(column) for column in columns)
        return inspect.health(
            self._store,
            self.snapshot(),
            paths,
            where=where,
            min_cube_bytes=parse_size(min_cube_size),
        )

    def scan_files(self, where: str, version: int | None = None) -> pa.Table:
        """Return the files (path, size_bytes) that a reader of the predicate must open.

        Raises:
            UsageError: If the predicate cannot be understood.
        """
        return inspect.matching_files(self._store, self.snapshot(version), where)

    def scan(
        self, where: str | None = None, *, workload: Workload = (), version: int | None = None
    ) -> Scan:
        """Return the files and bytes that a reader of a predicate must open, by statistics alone.

        Instead of one predicate a workload can be given, as `parse_workload` returns it.

        Raises:
            UsageError: If a predicate cannot be understood, or not one of the two is given.
        """
        if (where is None) == (not workload):
            raise UsageError("a scan needs either a predicate or a workload")
        asked = workload if where is None else (WeightedPredicate(where),)
        return scan(self._store, self.snapshot(version), asked)

    def plan(  # noqa: PLR0913  the policy, spelled out
        self,
        *,
        full: bool = False,
        strategy: str = "cube",
        curve: str = "hilbert",
        min_cube_size: Size = DEFAULT_MIN_CUBE_BYTES,
        target_cube_size: Size = DEFAULT_TARGET_CUBE_BYTES,
        max_file_size: Size = DEFAULT_MAX_FILE_BYTES,
        zorder_by: Sequence[str] = (),
        budget: Size | None = None,
        where: str | None = None,
        tolerance: float = DEFAULT_TOLERANCE,
        min_overlapping_files: int = DEFAULT_MIN_OVERLAPPING_FILES,
        min_overlap: float = DEFAULT_MIN_OVERLAP,
        version: int | None = None,
    ) -> ClusteringPlan:
        """Return what OPTIMIZE would rewrite; writes nothing.

        From `budget` on, the arguments are for the strategy "overlap"; see ClusteringPolicy.

        Raises:
            UsageError: If the policy asks for what such a table cannot have.
            ClusteringColumnError: If a column cannot be clustered by.
            UnsupportedFeatureError: If the table cannot be read or planned.
        """
        policy = ClusteringPolicy(
            min_cube_bytes=parse_size(min_cube_size),
            target_cube_bytes=parse_size(target_cube_size),
            max_file_bytes=parse_size(max_file_size),
            full=full,
            curve=curve,
            zorder_by=tuple(split_path(column) for column in zorder_by),
            tolerance=tolerance,
            min_overlapping_files=min_overlapping_files,
            min_overlap=min_overlap,
            budget_bytes=None if budget is None else parse_size(budget),
            where=where,
        )
        snapshot = self.snapshot(version)
        strategies = {**STRATEGIES, **_installed_strategies()}
        new_id = self._clock.new_id
        return make_plan(
            snapshot,
            policy,
            new_id=new_id,
            strategy=strategy,
            strategies=strategies,
            bounds_of=partial(load_bounds, self._store, snapshot),
        )

    def predict(self, plan: ClusteringPlan, workload: Workload) -> Prediction:
        """Return what a plan would bring to the readers of a workload, from statistics.

        Raises:
            UsageError: If a predicate cannot be understood.
        """
        snapshot = self.snapshot(plan.read_version)
        return predict(snapshot, plan, workload, partial(load_bounds, self._store, snapshot))

    def simulated(self, *, append_bytes: int, scenario: str) -> SimulatedTable:
        """Return a made-up table with files like this one's, for `liquidlog.simulation`.

        Raises:
            UsageError: If the table has no clustering columns.
        """
        return simulated_table(
            self._store, self.snapshot(), append_bytes=append_bytes, scenario=scenario
        )

    def explain(self, plan: ClusteringPlan | None = None) -> Rows:
        """Return why each live file is or is not a candidate, in words and numbers."""
        made = self.plan() if plan is None else plan
        return inspect.explain(made, self._store, self.snapshot(made.read_version))

    def replay(self, version: int, **policy: Any) -> Replay:  # noqa: ANN401  as plan takes them
        """Return how a plan for the version before an OPTIMIZE compares with what it took.

        `policy` is what `plan` takes; whether it was FULL is read from the commit.

        Raises:
            UsageError: If the commit is no OPTIMIZE.
            VersionNotFoundError: If the log does not hold it, or the version before.
        """

        def plan_at(before: int, full: bool) -> ClusteringPlan:  # noqa: FBT001  the callback's type
            return self.plan(**{**policy, "version": before, "full": full})

        return replay(self._store, version, plan_at)

    def written_bytes(self) -> tuple[WrittenBytes, ...]:
        """Return what each commit still in the log wrote, oldest first: new data and moved data."""
        return written_bytes(self._store)

    def require_writable(self, plan: ClusteringPlan) -> None:
        """Refuse, before anything is rewritten, a plan whose outputs could not be committed.

        Raises:
            UnsupportedFeatureError: With every reason.
        """
        self._store.require_writable()
        inspect.require_rewritable(self.snapshot(), plan, self._store.storage)

    def pending(self, plan: ClusteringPlan) -> tuple[int, ...]:
        """Return the ids of the plan's groups that are not committed yet."""
        return tuple(group.group_id for group in pending_groups(self._store, plan))

    def commit(self, plan: ClusteringPlan, result: RewriteResult) -> CommitReport:
        """Commit the finished groups that are not committed yet, one commit a group.

        Raises:
            CommitConflictError: If other commits made groups impossible; the others landed.
            ResultMismatchError: If the result does not answer the plan, or lost a row.
            CommitStateUnknownError: If it cannot be told whether a commit landed.
        """
        report = self.commit_each(plan, result.groups)
        report.require_success()
        return report

    def optimize_metrics(self, plan: ClusteringPlan, report: CommitReport) -> Mapping[str, Any]:
        """Return what a run did, under the names of Delta's OPTIMIZE metrics."""
        return optimize_metrics(self.snapshot(plan.read_version), plan, report.finished)

    def commit_each(
        self,
        plan: ClusteringPlan,
        groups: Iterable[RewrittenGroup | GroupFailure],
        *,
        on_commit: Callable[[int], None] = lambda _: None,
    ) -> CommitReport:
        """Commit groups as an executor finishes them; failures are collected, not raised."""
        return commit_groups(self._store, plan, groups, self._clock, on_commit=on_commit)


def _installed_strategies() -> Mapping[str, Strategy]:
    points = entry_points(group=STRATEGY_GROUP)
    return {point.name: point.load() for point in points}


def system_clock() -> Clock:
    """Return the real clock and random ids."""
    return Clock(
        now_ms=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),
        back_off=_back_off,
    )


def _back_off(lost: int) -> None:
    """Wait for a random time, longer on average the more races were lost in a row."""
    longest_ms = min(_BACK_OFF_MS << min(lost, 10), _MAX_BACK_OFF_MS)
    time.sleep(secrets.randbelow(longest_ms) / 1000)
