"""Table: a Delta table, one method per question and per change.

table = Table("s3://lake/sales")
plan = table.plan()                        # Snapshot -> ClusteringPlan
result = liquidspark.execute(spark, plan)  # ClusteringPlan -> RewriteResult
table.commit(plan, result)                 # RewriteResult -> versions
table.optimize()                           # all three

Methods check their arguments and call the functions that do the work.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Unpack

import pyarrow as pa

from liquidlog.clustering.settings import (
    CommitSettings,
    MigrationSettings,
    Names,
    PlanSettings,
    RewriteSettings,
    Size,
)
from liquidlog.commit import OpenedTable, system_clock
from liquidlog.errors import UsageError
from liquidlog.log.loader import open_store
from liquidlog.plan import (
    ClusteringPlan,
    Outcome,
    ReadPlan,
    RewriteResult,
    Tasks,
    WritePlan,
    WriteResult,
    Written,
)
from liquidlog.predicates.workload import Queries, WeightedPredicate, Workload
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import Path, StructType, split_path
from liquidlog.spec.text import (
    Rows,
    Summary,
    address,
    column_paths,
    number,
    one,
    parse_duration,
    parse_size,
    parse_time,
    text_mapping,
    texts,
    transaction,
    whole_number,
)
from liquidlog.storage.addresses import OptionsSource, table_in_catalog

# Opening a table and looking at it need a fifth of the modules that all methods need together.
# Importing all of them takes longer than that work, so each method imports what it calls.
if TYPE_CHECKING:
    from liquidlog.advice import Advice, AdviceDocument
    from liquidlog.clustering.health import Health
    from liquidlog.doctor import Diagnosis
    from liquidlog.foresee.verdict import Criteria, Prediction, Verdict
    from liquidlog.log.history import Checkpointed
    from liquidlog.operations.doctor import Mended, Overview
    from liquidlog.operations.inspect import Scan
    from liquidlog.operations.optimize import CommitReport, GroupWatch, Optimized
    from liquidlog.operations.vacuum import Vacuumed
    from liquidlog.operations.writes import Appended, DroppedFeature, Source

__all__ = ["Size", "Table", "system_clock"]

_SCHEMA: Final = "an Arrow schema or a Delta StructType"


_GONE: Final[Mapping[str, str]] = {
    "clustering_protocol_change": "cluster_by(…, dry_run=True)",
    "explain_together": "explain",
    "extend_migration": "plan_migration(add_to=plan)",
    "judge_plan": "judge",
    "optimize_in_rounds": "optimize(final=True)",
    "plan_advised": "plan(advice=…)",
    "replay": "`liquidlog history` beside `liquidlog plan`",
    "require_writable": "optimize and commit, which refuse before they write",
    "rewrite_and_commit": "optimize(plan=plan)",
    "scan_files": "scan(where).files",
    "simulate": "benchmarks/bench_rounds.py of the repository",
    "transaction": "snapshot().transactions",
    "update": "snapshot",
    "version_at": "at(…).version",
}
"""What to use instead of methods of earlier releases."""


class Table(Summary):
    """A Delta table at an address.

    Methods without a `version` use the newest one, or the one that the table was opened at. With
    `dry_run`, a change is checked completely and the version that it would make is returned.
    """

    opened: OpenedTable
    """For functions of this package: the store, the clock and the versions that were read."""

    def __init__(
        self,
        uri: str | PathLike[str],
        *,
        version: int | None = None,
        storage_options: OptionsSource | None = None,
    ) -> None:
        """Open the table at `uri`: a path, or a URI of file:, s3:, gs:, az: or abfss:.

        With a `version`, methods answer for that version, and changes are refused. Storage options
        have the names that delta-rs gives them; environment variables are read too. A callable that
        returns options is called again before each commit, and a minute after its last call.

        Raises:
            TableNotFoundError: If there is no table.
            VersionNotFoundError: If the log does not have the version.
            UsageError: If the address, the version or a storage option cannot be used.
            StorageError: If the storage refuses.
        """
        number = None if version is None else whole_number(version, argument="version")
        self.opened = OpenedTable.at(address(uri, argument="uri"), number, storage_options)

    @classmethod
    def open(
        cls,
        uri: str | PathLike[str],
        *,
        version: int | None = None,
        storage_options: OptionsSource | None = None,
    ) -> "Table":
        """Return `Table(uri, …)`, with the same errors."""
        return cls(uri, version=version, storage_options=storage_options)

    @classmethod
    def create(
        cls,
        uri: str | PathLike[str],
        *,
        schema: StructType | pa.Schema | None = None,
        like: "Table | None" = None,
        cluster_by: Names | None = None,
        partition_by: Names | None = None,
        properties: Mapping[str, str] | None = None,
        description: str | None = None,
        storage_options: OptionsSource | None = None,
        dry_run: bool = False,
    ) -> "Table":
        """Create an empty table and return it.

        Give a `schema`, or `like`, another table whose schema, properties, description, and
        clustering or partition columns are copied. `cluster_by` or `partition_by` (empty for none)
        then replaces the columns, `properties` replace or add to the copied ones, and `description`
        is the comment. A `dry_run` checks everything and writes nothing.

        Raises:
            TableExistsError: If there is a table at `uri` already.
            ClusteringColumnError: If the table cannot have these columns; has every problem.
            UsageError: If not exactly one of `schema` and `like` is given, or a property or a
                partition column is refused.
            StorageError: If the target cannot be written.
        """
        from liquidlog.operations.writes import Definition, create

        if table_in_catalog(address(uri, argument="uri")):
            raise UsageError(
                f"{uri}: a table that a catalog manages is made by an engine of the catalog, such"
                " as Spark with its connector; give a path to make a table of files",
                uri=str(uri),
            )
        if schema is not None:
            one(schema, (StructType, pa.Schema), argument="schema", expected=_SCHEMA)
        if like is not None:
            one(like, Table, argument="like", expected="a Table")
        if description is not None:
            one(description, str, argument="description", expected="text")

        def paths(names: Names | None, argument: str) -> tuple[Path, ...] | None:
            return None if names is None else column_paths(names, argument=argument, empty=True)

        definition = Definition(
            schema=schema,
            like=None if like is None else like.snapshot(),
            cluster_by=paths(cluster_by, "cluster_by"),
            partition_by=paths(partition_by, "partition_by"),
            properties={}
            if properties is None
            else text_mapping(properties, argument="properties"),
            description=description,
        )
        opened = OpenedTable(open_store(uri, storage_options), system_clock())
        create(opened.store, definition, opened.clock, dry_run=_flag(dry_run, "dry_run"))
        return as_table(opened)

    def _facts(self) -> Mapping[str, object]:
        return {"uri": self.uri, "seen_version": self.opened.seen_version}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise AttributeError; for what earlier releases had, it says what to use instead."""
            instead = _GONE.get(name)
            hint = "" if instead is None else f"; use {instead}"
            raise AttributeError(f"a Table has no {name}{hint}", name=name, obj=self)

    def _queries(self, workload: Queries) -> Workload:
        if workload == ():
            return ()
        from liquidlog.operations.advise import workload_of

        return workload_of(workload, self.uri, self.opened.store.storage)

    def _criteria(
        self,
        workload: Queries,
        source: str | None,
        payback_days: float | None,
        queries_per_day: float | None,
    ) -> "Criteria":
        from liquidlog.operations.planning import criteria_of

        if source is None and isinstance(workload, str | PathLike):
            source = str(workload)
        queries = self._queries(workload)
        return criteria_of(self.opened, queries, source, payback_days, queries_per_day)

    @property
    def uri(self) -> str:
        """The table's address."""
        return self.opened.store.uri

    # Versions

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Return the table's state at a version, the newest if None.

        After the first call, only new commits are read. A table opened at a version stays there.

        Raises:
            VersionNotFoundError: If the log does not have that version.
            UsageError: If the version is not a whole number.
            CorruptLogError: If the log is broken.
            UnsupportedFeatureError: If the table cannot be read; gives every reason.
        """
        if version is not None:
            version = whole_number(version, argument="version")
        return self.opened.snapshot(version)

    def at(self, timestamp: str | datetime) -> Snapshot:
        """Return the table's state at a time: ISO 8601, in UTC if it has no zone.

        Raises:
            TimestampNotFoundError: If the time is before the first or after the last commit.
            UsageError: If the text is not a time.
        """
        from liquidlog.log.history import version_at

        text = timestamp.isoformat() if isinstance(timestamp, datetime) else timestamp
        newest = self.opened.snapshot()
        return self.opened.snapshot(version_at(self.opened.store, newest, parse_time(text)))

    # Questions: nothing here writes

    def detail(self, version: int | None = None) -> Mapping[str, Any]:
        """Return the DESCRIBE DETAIL row."""
        from liquidlog.operations.inspect import detail

        return detail(self.snapshot(version))

    def history(self, limit: int | None = None) -> Rows:
        """Return one row per commit, newest first, with the columns of DESCRIBE HISTORY.

        Raises:
            UsageError: If `limit` is not a whole number from 1.
        """
        from liquidlog.log.history import read_history

        if limit is not None:
            limit = whole_number(limit, argument="limit", least=1)
        if not self.opened.is_fixed:
            return read_history(self.opened.store, limit)
        then = self.snapshot().version
        return Rows(
            [row for row in read_history(self.opened.store) if row["version"] <= then][:limit]
        )

    def files(self, version: int | None = None, *, min_cube_size: Size | None = None) -> pa.Table:
        """Return one row per live file: size, rows, cube, state, clustering columns' bounds.

        Raises:
            UsageError: If a needed property of the table has a wrong value.
        """
        from liquidlog.operations.inspect import files

        snapshot = self.snapshot(version)
        return files(self.opened.store, snapshot, _min_cube_bytes(snapshot, min_cube_size))

    def cubes(self, *, min_cube_size: Size | None = None) -> pa.Table:
        """Return one row per ZCube.

        Raises:
            UsageError: If a needed property of the table has a wrong value.
        """
        from liquidlog.clustering.columns import clustering_state, cube_table

        snapshot = self.snapshot()
        columns = clustering_state(snapshot).columns
        return cube_table(snapshot, columns, _min_cube_bytes(snapshot, min_cube_size))

    def health(
        self,
        columns: str | Sequence[str] | None = None,
        *,
        workload: Queries = (),
        where: str | None = None,
        min_cube_size: Size | None = None,
        sample: bool = False,
    ) -> "Health":
        """Return how well the table is clustered, by its own or by other columns.

        A workload names the other columns: up to four that it compares most often. With `where`,
        only files that the SQL predicate may match are measured. The ratios are from the log alone;
        with `sample`, from rows of up to 256 files.

        Raises:
            ClusteringColumnError: If a column cannot be measured.
            UsageError: If the predicate is not valid, there are no columns, both columns and a
                workload are given, the workload compares no column with statistics, or a needed
                property of the table has a wrong value.
        """
        from liquidlog.operations.inspect import health

        paths = None if columns is None else column_paths(columns, argument="columns")
        if paths is not None and workload:
            raise UsageError("give either columns or a workload to measure by")
        snapshot = self.snapshot()
        return health(
            self.opened.store,
            snapshot,
            paths,
            workload=self._queries(workload),
            where=where,
            min_cube_bytes=_min_cube_bytes(snapshot, min_cube_size),
            reads_rows=_flag(sample, "sample"),
            now_ms=self.opened.clock.now_ms(),
        )

    def doctor(
        self,
        *,
        min_cube_size: Size | None = None,
        workload: Queries = (),
        workload_source: str | None = None,
        payback_days: float | None = None,
        queries_per_day: float | None = None,
    ) -> "Diagnosis":
        """Return findings on the clustering, each with its repair, and the verdict on the table.

        The other arguments are those of `judge`.

        Raises:
            UsageError: If no predicate is a condition on the table, or a number is not above 0.
        """
        from liquidlog.doctor import Diagnosis, findings
        from liquidlog.operations.doctor import examine

        criteria = self._criteria(workload, workload_source, payback_days, queries_per_day)
        least = None if min_cube_size is None else parse_size(min_cube_size)
        found, _ = examine(self.opened, criteria, min_cube_bytes=least)
        return Diagnosis(findings=findings(found), verdict=found.verdict, queried=found.queried)

    def judge(
        self,
        *,
        workload: Queries = (),
        workload_source: str | None = None,
        payback_days: float | None = None,
        queries_per_day: float | None = None,
    ) -> "Verdict":
        """Return what should be done about the table's layout, for its readers.

        With a `workload`, its queries are the readers, and other clustering columns are judged too.
        Without one, queries are assumed that read everything, or one value of one column. A rewrite
        is worth it if it pays back within `payback_days` (30 if None) of `queries_per_day`, by
        default as many as the workload records; if nobody knows how many, within 1,000 queries. The
        command names the workload by `workload_source`, by default its path; without either, no
        layout is fitted to the workload.

        Raises:
            UsageError: If no predicate is a condition on the table, or a number is not above 0.
        """
        from liquidlog.operations.planning import judge

        criteria = self._criteria(workload, workload_source, payback_days, queries_per_day)
        return judge(self.opened, self.snapshot(), criteria).verdict

    def overview(
        self,
        *,
        min_cube_size: Size | None = None,
        workload: Queries = (),
        workload_source: str | None = None,
        payback_days: float | None = None,
        queries_per_day: float | None = None,
        past: bool = True,
    ) -> "Overview":
        """Return what a report shows: the verdict, health, findings, pictures and the past.

        `past` measures earlier versions too, which takes longest. The other arguments are those of
        `judge`.

        Raises:
            UsageError: If no predicate is a condition on the table, or a number is not above 0.
        """
        from liquidlog.operations.doctor import overview

        criteria = self._criteria(workload, workload_source, payback_days, queries_per_day)
        least = None if min_cube_size is None else parse_size(min_cube_size)
        return overview(self.opened, criteria, min_cube_bytes=least, past=_flag(past, "past"))

    def scan(
        self,
        where: str | None = None,
        *,
        workload: Queries = (),
        version: int | None = None,
        time_zone: str | None = None,
    ) -> "Scan":
        """Return the files and bytes that queries must read, by statistics alone.

        Give either a predicate or a workload. `time_zone` is the readers', like "Europe/Berlin";
        without it, times in predicates that name no zone may be in any.

        Raises:
            UsageError: If no predicate is a condition on the table, both or neither are given, or
                the time zone does not exist.
        """
        from liquidlog.operations.inspect import scan

        if (where is None) == (not workload):
            raise UsageError("a scan needs either a predicate or a workload")
        queries = self._queries(workload) if where is None else (WeightedPredicate(where),)
        if time_zone is not None:
            one(time_zone, str, argument="time_zone", expected="a name like Europe/Berlin")
        return scan(
            self.opened.store,
            self.snapshot(version),
            queries,
            time_zone=time_zone,
            now_ms=self.opened.clock.now_ms(),
        )

    def plan_read(self, where: str | None = None, version: int | None = None) -> ReadPlan:
        """Return the files that a query must read and how to read them, as for `liquidspark.read`.

        With `where`, files are left out if partition values and statistics prove that it is true of
        none of their rows, at any time and in any time zone.

        Raises:
            UsageError: If `where` is no condition on the table, or columns cannot be read.
            CorruptLogError: If files have partition values that do not fit the columns' types.
        """
        from liquidlog.operations.inspect import plan_read

        if where is not None:
            one(where, str, argument="where", expected="a condition in SQL")
        return plan_read(self.opened.store, self.snapshot(version), where=where)

    def advise(
        self,
        workload: Queries,
        *,
        workload_source: str | None = None,
        columns: str | Sequence[str] | None = None,
        max_columns: int = 4,
        min_gain: float | None = None,
        max_file_size: Size | None = None,
        payback_days: float | None = None,
        queries_per_day: float | None = None,
    ) -> "Advice":
        """Return which layout the table should have for its readers, or that it is best left alone.

        Sets of up to `max_columns` of the columns that predicates name, or of `columns`, are laid
        out on sampled rows. The layout is chosen by the older queries and judged by the newest. It
        is recommended if queries wait at least `min_gain` (a share, 0.1 if None) less, and if it is
        the verdict of `judge`. With `max_file_size`, no other sizes are tried.

        Raises:
            UsageError: If no predicate is a condition on the table, or an argument cannot be used.
            ClusteringColumnError: If a column cannot be clustered by.
            UnsupportedFeatureError: If the table cannot be rewritten.
        """
        from liquidlog.advice import MIN_GAIN
        from liquidlog.clustering.settings import policy_settings
        from liquidlog.operations.advise import Request
        from liquidlog.operations.planning import judge

        queries = self._queries(workload)
        if not queries:
            raise UsageError("advice needs readers: the workload has no predicate")
        request = Request(
            columns=None if columns is None else column_paths(columns, argument="columns"),
            max_columns=whole_number(max_columns, argument="max_columns", least=1),
            min_gain=number(MIN_GAIN if min_gain is None else min_gain, argument="min_gain"),
            max_file_bytes=policy_settings({"max_file_size": max_file_size}).get("max_file_bytes"),
        )
        criteria = self._criteria(queries, workload_source, payback_days, queries_per_day)
        found = judge(self.opened, self.snapshot(), criteria, request=request).advice
        assert found is not None  # noqa: S101  there is a workload
        return found

    # Plans, and commits of their results

    def plan(
        self,
        *,
        workload: Queries | None = None,
        advice: "AdviceDocument | None" = None,
        version: int | None = None,
        require_fit: bool = True,
        **settings: Unpack[PlanSettings],
    ) -> ClusteringPlan:
        """Return the plan of OPTIMIZE; writes nothing.

        The `settings` are those of `PlanSettings`: full, strategy, curve, where, budget,
        max_file_size, zorder_by and others; docs/reference/settings.md has all. Missing ones, or
        None, are taken from the table's properties, else the defaults. A setting without effect on
        this table with this strategy is refused.

        The layout is fitted to a `workload`; `skip_clustered` and the strategy "overlap" judge
        files by its queries too. `require_fit` refuses a workload if the layout cannot be fitted to
        it. With `advice`, as `decode_advice` returns it, the plan makes the advised layout; then no
        setting may be given that the advice determines.

        Raises:
            UsageError: If the table cannot be planned with these settings, a setting would have no
                effect, a property that has an effect has a wrong value, or the advice is of
                another table or columns.
            ClusteringColumnError: If a column cannot be clustered by.
            UnsupportedFeatureError: If the table cannot be read or planned.
        """
        from liquidlog.operations.planning import at_time, noted, planned

        if advice is not None:
            return self._advised(advice, workload, settings)
        given = {**settings, "where": at_time(settings.get("where"), self.opened.clock.now_ms())}
        # A flag that is False counts as not given.
        given = {name: None if value is False else value for name, value in given.items()}
        snapshot = self.snapshot(version)
        made = planned(
            snapshot,
            given,
            self.opened.bounds_of(snapshot),
            self.opened.clock.new_id,
            None if workload is None else self._queries(workload),
            require_fit=_flag(require_fit, "require_fit"),
        )
        return noted(made, self.opened.store, snapshot)

    def _advised(
        self, advice: "AdviceDocument", workload: Queries | None, settings: PlanSettings
    ) -> ClusteringPlan:
        from liquidlog.advice import AdviceDocument
        from liquidlog.operations.advise import plan_advised

        kind = "advice, as decode_advice returns it"
        one(advice, AdviceDocument, argument="advice", expected=kind)
        given = dict(settings) if workload is None else {**settings, "workload": workload}
        return plan_advised(self.snapshot(), advice, given, self.plan)

    def plan_migration(
        self,
        cluster_by: Names = (),
        *,
        add_to: ClusteringPlan | None = None,
        workload: Queries | None = None,
        **settings: Unpack[MigrationSettings],
    ) -> ClusteringPlan:
        """Return the plan that turns a partitioned table into a clustered one; writes nothing.

        Every file is rewritten, with the values of the partition columns in it, and all groups of
        the plan are one commit. The settings are those of `plan`; groups have at most
        `target_cube_size`. `partition_time_zone`, like Europe/Berlin, is the zone of partition
        values that name none; by default that of the table's property, else UTC.

        With only `add_to`, an earlier plan, the plan gets more groups for the files that others
        added since; results of its groups stay valid.

        Raises:
            UsageError: If the table is not partitioned, or as `plan`.
            ClusteringColumnError: If it cannot be clustered by these columns; has every problem.
            UnsupportedFeatureError: If it cannot be migrated; has every reason.
            CommitConflictError: If the plan to add to can no longer be committed.
        """
        from liquidlog.operations.planning import extended_migration, planned_migration

        new_id = self.opened.clock.new_id
        if add_to is not None:
            if cluster_by or workload or settings:
                raise UsageError("add_to takes columns and settings from the plan; give no others")
            return extended_migration(self.opened.to_change(), _plan(add_to), new_id)
        queries = None if workload is None else self._queries(workload)
        columns = column_paths(cluster_by, argument="cluster_by")
        return planned_migration(self.opened.to_change(), columns, settings, new_id, queries)

    def predict(
        self, plan: ClusteringPlan, workload: Queries = (), *, sample: bool = True
    ) -> "Prediction":
        """Return how much queries read now, and how much after a plan.

        Without a workload, queries are assumed that read everything, or one value of one column
        that the plan clusters by. The prediction reads some rows of some files; without `sample`,
        or if files cannot be read, it uses the bounds in the log alone, which do not say how
        columns depend on each other.

        Raises:
            UsageError: If no predicate is a condition on the table.
        """
        from liquidlog.foresee.verdict import Criteria
        from liquidlog.operations.planning import predicted

        now_ms = self.opened.clock.now_ms()
        criteria = Criteria(workload=self._queries(workload), now_ms=now_ms, reads_rows=sample)
        return predicted(self.opened, _plan(plan), criteria)

    def explain(
        self, plan: ClusteringPlan | None = None, *, path: str | PathLike[str] | None = None
    ) -> Rows:
        """Return why each live file, or one file, is or is not a candidate, in words and numbers.

        Raises:
            UsageError: If the path is not that of a live file.
        """
        from liquidlog.operations.planning import explain, snapshot_of_plan

        file = None if path is None else address(path, argument="path")
        made = self.plan() if plan is None else _plan(plan)
        snapshot = snapshot_of_plan(self.opened, made)
        return explain(made, snapshot, self.opened.bounds_of(snapshot), file)

    def commit(
        self,
        plan: ClusteringPlan,
        result: RewriteResult,
        *,
        dry_run: bool = False,
        **settings: Unpack[CommitSettings],
    ) -> "CommitReport":
        """Commit the finished groups that are not committed yet.

        Up to `groups_per_commit` groups make one version. The default is 100 for a compaction,
        whose groups become one file each. If partitions are ordered one by one, it is as many of
        them as make a cube, at most 100; otherwise it is 1. A group that cannot be committed does
        not stop the others of its version.

        Rows that other commits deleted from a group's inputs are deleted from its outputs: up to
        `max_reconciled_share` of its rows (0.2 if None), if it takes at most `reconcile_limit` to
        read (10 GiB if None) to find them. With a share of 0, every deletion is a conflict.

        With `dry_run` every group is checked, nothing is written or deleted, and the report has the
        expected versions. Deleted rows are counted by the log and not looked for.

        Raises:
            UsageError: If an argument has a wrong type or value, or a limit is given with share 0.
            CommitConflictError: If other commits made groups impossible; the other groups landed.
            ResultMismatchError: If the result does not match the plan, or lost a row.
            CommitStateUnknownError: If a commit may or may not have landed.
        """
        from liquidlog.operations.optimize import commit_groups

        finished = one(result, RewriteResult, argument="result", expected="a RewriteResult")
        report = commit_groups(
            self.opened, _plan(plan), finished.groups, settings, keeps_results=True, dry_run=dry_run
        )
        report.require_success()
        return report

    def commit_each(
        self,
        plan: ClusteringPlan,
        groups: Iterable[Outcome],
        *,
        on_commit: Callable[[int], None] = lambda _: None,
        watch: "GroupWatch | None" = None,
        tasks: Tasks | None = None,
        dry_run: bool = False,
        **settings: Unpack[CommitSettings],
    ) -> "CommitReport":
        """Commit groups as an executor finishes them; failures are collected, not raised.

        Groups wait until there are `groups_per_commit`, the first has waited for ten minutes, or
        `groups` ends. An error of `groups` is raised after the waiting groups are committed. Groups
        that `watch` cancelled are conflicts, with the reasons that it found. If the search for
        deleted rows would read more than `reconcile_limit`, it runs as `tasks`, which
        `liquidspark.session_tasks` returns. Outputs of groups that the limits forbid are deleted;
        `commit` leaves them, since a commit with other limits may follow. All other arguments are
        those of `commit`.

        Raises:
            UsageError: If an argument is not what `commit` takes.
            CommitStateUnknownError: If a commit may or may not have landed.
        """
        from liquidlog.operations.optimize import commit_groups

        return commit_groups(
            self.opened,
            _plan(plan),
            groups,
            settings,
            on_commit=on_commit,
            watch=watch,
            tasks=tasks,
            dry_run=dry_run,
        )

    def watch(
        self, plan: ClusteringPlan, *, max_reconciled_share: float | None = None
    ) -> "GroupWatch":
        """Return a watch that tells an executor which groups can no longer be committed.

        Give it to the executor and to the commit:

            watch = table.watch(plan)
            groups = liquidspark.execute_groups(spark, plan, cancelled=watch)
            report = table.commit_each(plan, groups, watch=watch)

        Give `commit_each` the same `max_reconciled_share`. The watch reads new commits every few
        seconds or every minute, but none yet. If it cannot read the log, it logs that to
        `liquidlog.executors` and tries again later.
        """
        from liquidlog.operations.optimize import watch_for

        return watch_for(self.opened, _plan(plan), max_reconciled_share)

    def optimize(
        self,
        session: object = None,
        *,
        executor: str = "auto",
        plan: ClusteringPlan | None = None,
        workload: Queries | None = None,
        **settings: Unpack[RewriteSettings],
    ) -> "Optimized":
        """Plan, rewrite and commit; return the plan, the commits and the metrics.

        Args:
            session: The running session of the executor, as a SparkSession; None for the active
                one, or a new local one.
            executor: The name of the executor; `auto` is `local` for plans of up to 4 GiB of input,
                unless a session or a Spark is there, else `spark`.
            plan: A plan that `plan` returned; then give no settings of a plan.
            workload: As for `plan`.
            settings: The settings of `plan` and `commit`; `read_back` and `local_limit` of the
                executor; with `final`, rounds are repeated as long as each lowers the average
                depth by `min_gain` (0.1 if None).

        Raises:
            UsageError: As `plan`, or if there is no such executor, or it takes no session or limit.
            UnsupportedFeatureError: If the table cannot be read, planned or written.
            ExecutorError: If the executor cannot start, or a group failed; the others landed.
            CommitConflictError: If other commits made groups impossible; the other groups landed.
            CommitStateUnknownError: If a commit may or may not have landed.
        """
        from liquidlog.operations.optimize import optimize

        one(executor, str, argument="executor", expected="the name of an executor")
        queries = () if workload is None else self._queries(workload)
        self.opened.to_change()
        return optimize(
            self.opened,
            None if plan is None else _plan(plan),
            partial(self.plan, workload=queries) if queries else self.plan,
            settings,
            executor=executor,
            session=session,
        )

    def migrate(
        self,
        cluster_by: Names,
        session: object = None,
        *,
        executor: str = "auto",
        workload: Queries | None = None,
        max_reconciled_share: float | None = None,
        reconcile_limit: Size | None = None,
        read_back: bool = True,
        local_limit: Size | None = None,
        **settings: Unpack[MigrationSettings],
    ) -> "Optimized":
        """Turn a partitioned table into a clustered one, in one commit.

        Rows that others delete meanwhile are deleted as in `commit`; files that others add are a
        conflict, and nothing is committed. The arguments are those of `plan_migration`, `optimize`
        and `commit_each`; partition columns may be among the clustering columns.

        Raises:
            UsageError: As `plan_migration` and `optimize`.
            ClusteringColumnError: If it cannot be clustered by these columns; has every problem.
            UnsupportedFeatureError: If it cannot be migrated; has every reason.
            ExecutorError: If the executor cannot start, or a group failed; nothing was committed.
            CommitConflictError: If other commits made it impossible; nothing was committed.
            CommitStateUnknownError: If the commit may or may not have landed.
        """
        return self.optimize(
            session,
            executor=executor,
            plan=self.plan_migration(cluster_by, workload=workload, **settings),
            read_back=read_back,
            local_limit=local_limit,
            max_reconciled_share=max_reconciled_share,
            reconcile_limit=reconcile_limit,
        )

    # Commits without an executor

    def append(
        self,
        data: "Source | PathLike[str] | Sequence[Source | PathLike[str]]",
        *,
        cluster: bool = False,
        dry_run: bool = False,
        blind: bool | None = None,
    ) -> "Appended":
        """Append Parquet files (paths) or Arrow data as fresh files in one commit.

        Columns may come in any order; everything else must fit the schema. In a partitioned table,
        an empty partition text is null. `cluster` first sorts each batch along the curve of the
        clustering columns. Without rows there is no commit. A `dry_run` reads the sources, even a
        RecordBatchReader, to the end, checks them, writes nothing, and returns what a real run
        would. `blind` says whether the rows were made without reading the table: it goes to the log
        (`isBlindAppend`), and Delta Spark lets changes of other rows go on beside a blind append.
        If it is None, files in the same kind of storage that are not below the table are blind,
        and Arrow data is not.

        Raises:
            UsageError: If the data is of another type or an empty list, or `cluster` is set and the
                table has no clustering columns, or an unknown curve.
            SchemaMismatchError: If the data does not have the table's schema; shows both.
            DataFileError: If a file cannot be read.
            UnsupportedFeatureError: If the table requires more of a writer than we do.
            CommitError: If the commit did not land.
        """
        from liquidlog.operations.writes import append, sources_of

        return append(
            self.opened,
            sources_of(data),
            cluster=cluster,
            blind=None if blind is None else _flag(blind, "blind"),
            dry_run=dry_run,
        )

    def plan_write(
        self,
        schema: StructType,
        *,
        cluster: bool = True,
        max_file_size: Size | None = None,
        merge_schema: bool = False,
        where: str | None = None,
    ) -> WritePlan:
        """Return the checks of rows and how to write them, as for `liquidspark.append`.

        `cluster` places rows along the curve of the clustering columns. With `where`, rows replace
        the rows of which it is true. `merge_schema` adds columns that the table lacks.

        Raises:
            UsageError: If the table has no clustering columns, or `where` cannot be used.
            SchemaMismatchError: If the schema does not fit the table's; has every problem.
            UnsupportedFeatureError: If the table requires more of a writer than we do.
        """
        from liquidlog.operations.writes import plan_write

        return plan_write(
            self.opened,
            one(schema, StructType, argument="schema", expected="a Delta StructType"),
            cluster=_flag(cluster, "cluster"),
            max_file_bytes=None if max_file_size is None else parse_size(max_file_size),
            merge_schema=_flag(merge_schema, "merge_schema"),
            where=None if where is None else one(where, str, argument="where", expected="SQL"),
        )

    def commit_write(
        self,
        plan: WritePlan,
        result: WriteResult,
        *,
        txn: tuple[str, int] | None = None,
        blind: bool = False,
    ) -> Written:
        """Commit the result of a plan of `plan_write`, with the proof that all rows are there.

        `txn` is (application id, version): if the table has this or a later version of the
        application, nothing is committed, and the returned value says so. `blind` says whether the
        rows of an append were made without reading the table.

        Raises:
            ResultMismatchError: If the result does not prove that all rows are in the files.
            CommitConflictError: If the table changed so that the write no longer fits it.
            CommitStateUnknownError: If the commit may or may not have landed.
        """
        from liquidlog.operations.writes import commit_write

        return commit_write(
            self.opened,
            self.opened.to_change(),
            one(plan, WritePlan, argument="plan", expected="a WritePlan"),
            one(result, WriteResult, argument="result", expected="a WriteResult"),
            txn=transaction(txn),
            is_blind=_flag(blind, "blind"),
        )

    def cluster_by(self, columns: str | Sequence[str] | None, *, dry_run: bool = False) -> int:
        """Set the clustering columns, None to remove them; return the table's version after that.

        No file is rewritten. An unclustered, unpartitioned table is upgraded in the same commit. If
        there is nothing to change, there is no commit. A `dry_run` commits nothing.

        Raises:
            ClusteringColumnError: If the table cannot have these columns; has every problem.
            UnsupportedFeatureError: If the table requires more of a writer than we do.
            CommitError: If the commit did not land.
        """
        from liquidlog.definition.create import cluster_by_change
        from liquidlog.operations.writes import changed

        paths = None if columns is None else column_paths(columns, argument="columns")
        return changed(self.opened, partial(cluster_by_change, columns=paths), dry_run=dry_run)

    def drop_feature(
        self, feature: str, *, truncate_history: bool = False, dry_run: bool = False
    ) -> "DroppedFeature":
        """Drop the feature `clustering` or `domainMetadata`; return the version and the protocol.

        Dropping `clustering` removes the clustering columns, dropping `domainMetadata` all domains;
        no file is rewritten. Then writers without these features can write again. No history has to
        be truncated, so `truncate_history` is refused; Delta Spark drops features that need it.

        Raises:
            UsageError: If the table lacks the feature, or it cannot be dropped; says why.
            UnsupportedFeatureError: If the table requires more of a writer than we do.
            CommitError: If a commit did not land.
        """
        from liquidlog.operations.writes import drop_feature

        return drop_feature(
            self.opened,
            one(feature, str, argument="feature", expected="the name of a feature"),
            truncate_history=_flag(truncate_history, "truncate_history"),
            dry_run=dry_run,
        )

    def apply_advice(self, advice: "Advice", *, dry_run: bool = False) -> tuple[int, ...]:
        """Set the advised columns and layout properties; return the versions of these commits.

        Columns and properties have a commit each if they change. A `dry_run` commits nothing.

        Raises:
            UsageError: If the advice is of another table.
            ClusteringColumnError: If the table cannot be clustered by these columns.
            UnsupportedFeatureError: If the table requires more of a writer than we do.
            CommitError: If a commit did not land.
        """
        from liquidlog.advice import Advice
        from liquidlog.operations.advise import apply_advice

        one(advice, Advice, argument="advice", expected="an Advice")
        return apply_advice(self.opened, advice, dry_run=dry_run)

    def fix(self, *names: str, dry_run: bool = False) -> "tuple[Mended, ...]":
        """Repair the findings of these names; no data file is rewritten.

        A `dry_run` commits nothing.

        Raises:
            UsageError: If a name is not that of a finding with such a repair.
            UnsupportedFeatureError: If the table requires more of a writer than we do.
            DataFileError: If a file cannot be read for its statistics.
            CommitError: If a commit did not land.
        """
        from liquidlog.operations.doctor import mend

        found = texts(names, argument="names", of="findings")
        return mend(
            self.opened.store, self.opened.to_change(), found, self.opened.clock, dry_run=dry_run
        )

    def rename_column(self, old: str, new: str, *, dry_run: bool = False) -> int:
        """Rename a column `a` or a field `a.b`; return the table's version after that.

        `new` is the last part of the new name. The table needs column mapping. Clustering stays,
        and cubes stay the table's own: the same commit updates their tags to the new name. A
        `dry_run` commits nothing.

        Raises:
            UsageError: If a name cannot be parsed.
            SchemaChangeError: If the table cannot have the new name; has every problem.
            UnsupportedFeatureError: If the table requires more of a writer than we do.
            CommitError: If the commit did not land.
        """
        from liquidlog.operations.writes import changed, renaming

        name = split_path(new)
        if len(name) > 1:
            raise UsageError(f"{new} is more than a name; give its last part only", value=new)
        derive = renaming(self.opened.store, split_path(old), name[0])
        return changed(self.opened, derive, dry_run=dry_run)

    def add_columns(
        self, schema: StructType | pa.Schema, *, into: str | None = None, dry_run: bool = False
    ) -> int:
        """Add columns behind the others, or fields to a struct `into`; return the version after it.

        No file is rewritten: old rows have null in a new column. A `dry_run` commits nothing.

        Raises:
            UsageError: If the schema is none, or has no column.
            SchemaChangeError: If the table cannot have the columns; has every problem.
            UnsupportedFeatureError: If the table requires more of a writer than we do.
            CommitError: If the commit did not land.
        """
        from liquidlog.definition.schema_changes import add_change
        from liquidlog.operations.writes import changed
        from liquidlog.spec.arrow import delta_schema

        given = one(schema, (StructType, pa.Schema), argument="schema", expected=_SCHEMA)
        columns = delta_schema(given) if isinstance(given, pa.Schema) else given
        if not columns.fields:
            raise UsageError("there is nothing to add: the schema has no column")
        place = () if into is None else split_path(into)
        new_id = self.opened.clock.new_id
        derive = partial(add_change, columns=columns, into=place, new_id=new_id)
        return changed(self.opened, derive, dry_run=dry_run)

    def drop_column(self, *names: str, if_exists: bool = False, dry_run: bool = False) -> int:
        """Drop columns that nothing depends on in one commit; return the version after that.

        The table needs column mapping. Clustering columns, and structs that contain them, cannot be
        dropped. With `if_exists`, missing columns are no error. A `dry_run` commits nothing.

        Raises:
            SchemaChangeError: If a column cannot be dropped; has every problem.
            UnsupportedFeatureError: If the table requires more of a writer than we do.
            CommitError: If the commit did not land.
        """
        from liquidlog.operations.writes import changed, dropping

        columns = column_paths(names, argument="names")
        return changed(self.opened, dropping(columns, if_exists=if_exists), dry_run=dry_run)

    def set_properties(
        self,
        properties: Mapping[str, str],
        *,
        unset: str | Sequence[str] = (),
        dry_run: bool = False,
    ) -> int:
        """Set some properties and remove others; return the table's version after that.

        Setting delta.columnMapping.mode to name turns column mapping on. Without a change there is
        no commit. A `dry_run` commits nothing.

        Raises:
            UsageError: If the properties are not a mapping from str to str.
            SchemaChangeError: If users may not change a property, or it cannot have the value.
            UnsupportedFeatureError: If the table requires more of a writer than we do.
            CommitError: If the commit did not land.
        """
        from liquidlog.definition.schema_changes import properties_change
        from liquidlog.operations.writes import changed

        derive = partial(
            properties_change,
            properties=text_mapping(properties, argument="properties"),
            unset=texts(unset, argument="unset", of="properties", empty=True),
        )
        return changed(self.opened, derive, dry_run=dry_run)

    def checkpoint(self, *, dry_run: bool = False) -> "Checkpointed":
        """Give the newest version a checkpoint, so that it opens without the commits before.

        Our commits write one themselves every `delta.checkpointInterval` versions. With `dry_run`
        the checkpoint is made elsewhere and compared with the log, but not published.

        Raises:
            UnsupportedFeatureError: If the table requires more of a writer than we do.
            CheckpointMismatchError: If the checkpoint differs from the log; nothing was written.
            CorruptLogError: If a needed log file is missing or broken.
            StorageError: If the storage cannot be written.
        """
        from liquidlog.commit import checkpoint

        return checkpoint(
            self.opened.store, self.opened.to_change(), self.opened.clock, dry_run=dry_run
        )

    def orphans(
        self,
        *,
        older_than: str = "1d",
        finished: bool = False,
        delete: bool = False,
        dry_run: bool = False,
    ) -> Rows:
        """Return the files that runs left without a commit, one row per file.

        A run that wrote within `older_than` may still be alive: its files are listed and kept. So
        are the files of finished runs while their results can be committed, for half of
        `delta.deletedFileRetentionDuration`; with `finished`, they are orphans too. `delete`
        without `dry_run` deletes orphans; before files of finished runs, it puts a version without
        actions, so that no commit of these runs can still land.

        Raises:
            UsageError: If `older_than` is not a duration like 12h, or the table was opened at a
                version.
            UnsupportedFeatureError: If the storage or the table cannot be written.
            StorageError: If the storage does not answer; files that were not deleted stay listed.
            CorruptLogError: If a retained part of the log cannot be read.
        """
        from liquidlog.operations.vacuum import orphans

        return orphans(
            self.opened,
            older_than_ms=parse_duration(older_than),
            finished=finished,
            delete=delete,
            dry_run=dry_run,
        )

    def vacuum(
        self,
        *,
        retain: str | None = None,
        allow_short_retention: bool = False,
        dry_run: bool = False,
    ) -> "Vacuumed":
        """Delete the data files that no version within the retention needs; return which.

        `retain` is a duration like 168h or 7d, by default `delta.deletedFileRetentionDuration`.
        If it is shorter than that property or a week, it has to be allowed. A file stays if it is
        younger, if a version within the retention holds it, or if its run could still be committed.
        With `dry_run` nothing is deleted. The next vacuum finishes one that was stopped. Two at the
        same time both count the files that either deleted.

        Raises:
            UsageError: If the retention is no duration, or too short and not allowed.
            UnsupportedFeatureError: If the storage or the table cannot be written.
            StorageError: If the storage does not answer; some files may be deleted.
            CorruptLogError: If a retained part of the log cannot be read; nothing was deleted.
            CommitError: If a version that says what is deleted could not be put.
        """
        from liquidlog.operations.vacuum import vacuum

        return vacuum(
            self.opened,
            retain_ms=None if retain is None else parse_duration(retain),
            allow_short_retention=_flag(allow_short_retention, "allow_short_retention"),
            dry_run=dry_run,
        )


def as_table(opened: OpenedTable) -> Table:
    """Return the table with the caller's store and clock."""
    table = Table.__new__(Table)
    table.opened = opened
    return table


def _min_cube_bytes(snapshot: Snapshot, size: Size | None) -> int:
    """Return the minimum cube size: the argument, else what the table remembers."""
    if size is not None:
        return parse_size(size)
    from liquidlog.clustering.settings import remembered

    found: int = remembered(snapshot, "min_cube_bytes")
    return found


def _plan(value: object) -> ClusteringPlan:
    return one(value, ClusteringPlan, argument="plan", expected="a ClusteringPlan")


def _flag(value: object, argument: str) -> bool:
    return one(value, bool, argument=argument, expected="True or False")
