"""Changing a table: appends, clustering columns, columns, properties, what lies around it."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Final

import pyarrow as pa

from liquidlog.errors import UsageError
from liquidlog.log.checkpointing import Checkpointed
from liquidlog.operations import alter, define, doctor
from liquidlog.operations.append import Appended, AppendRequest, Source, append
from liquidlog.operations.backfill import Mended
from liquidlog.operations.checkpoint import checkpoint
from liquidlog.operations.orphans import (
    deletable_paths,
    delete_strays,
    find_strays,
    require_deletable,
    stray_rows,
)
from liquidlog.spec.arguments import address, column_paths, several, text_mapping, texts
from liquidlog.spec.rows import Rows
from liquidlog.spec.schema import split_path
from liquidlog.spec.times import parse_duration
from liquidlog.table.opened import OpenedTable

_SOURCES: Final = "paths, Arrow tables or record batch readers"


class Changes(OpenedTable):
    """Methods that commit without an executor."""

    def append(
        self,
        data: Source | PathLike[str] | Sequence[Source | PathLike[str]],
        *,
        cluster: bool = False,
        dry_run: bool = False,
    ) -> Appended:
        """Append Parquet files (paths) or Arrow data as fresh files in one commit.

        Columns may come in any order; everything else must fit the schema. With `cluster`, each
        batch is sorted along the curve of the clustering columns first. Without rows there is no
        commit and the version stays. With `dry_run` the sources are read to their ends and
        checked, a RecordBatchReader too, nothing is written, and what is returned is what would be.

        Raises:
            UsageError: If it is none of these, or an empty list; or `cluster` is asked for and the
                table has no clustering columns.
            SchemaMismatchError: If the data is not of the table's schema; shows both.
            DataFileError: If a file cannot be read.
            UnsupportedFeatureError: If the table asks more of a writer than we do.
            CommitError: If the commit did not land.
        """
        request = AppendRequest(sources=_sources(data), cluster=cluster, dry_run=dry_run)
        return append(self._store, self.snapshot_to_change(), request, self._clock)

    def cluster_by(self, columns: str | Sequence[str] | None, *, dry_run: bool = False) -> int:
        """Set the clustering columns, None to have none; return the table's version after it.

        No file is rewritten. An unclustered, unpartitioned table is upgraded in the same commit.
        Where there is nothing to change there is no commit. With `dry_run` nothing is committed:
        the version is the one that the table would have.

        Raises:
            ClusteringColumnError: If the table cannot be clustered so; holds every problem.
            UnsupportedFeatureError: If the table asks more of a writer than we do.
            CommitError: If the commit did not land.
        """
        paths = None if columns is None else column_paths(columns, argument="columns")
        snapshot = self.snapshot_to_change()
        return define.cluster_by(self._store, snapshot, paths, self._clock, dry_run=dry_run)

    def fix(self, *names: str, dry_run: bool = False) -> tuple[Mended, ...]:
        """Mend what findings of these names say, without rewriting a data file.

        With `dry_run` nothing is committed: the versions are those that would be made.

        Raises:
            UsageError: If a name is not one of a finding that can be mended so.
            UnsupportedFeatureError: If the table asks more of a writer than we do.
            DataFileError: If a file cannot be read for its statistics.
            CommitError: If a commit did not land.
        """
        found = texts(names, argument="names", of="findings")
        return doctor.mend(
            self._store, self.snapshot_to_change(), found, self._clock, dry_run=dry_run
        )

    def rename_column(self, old: str, new: str, *, dry_run: bool = False) -> int:
        """Rename a column, `a` or a field `a.b`; return the table's version after it.

        `new` is the last part of the new name. Needs column mapping. Clustering stays, and cubes
        stay the table's own: their tags get the new name in the same commit. With `dry_run`
        nothing is committed: the version is the one that the table would have.

        Raises:
            UsageError: If a name is not one.
            SchemaChangeError: If the table cannot have it; holds every problem.
            UnsupportedFeatureError: If the table asks more of a writer than we do.
            CommitError: If the commit did not land.
        """
        name = split_path(new)
        if len(name) > 1:
            raise UsageError(f"{new} is more than a name; give its last part only", value=new)
        snapshot, path = self.snapshot_to_change(), split_path(old)
        return alter.rename_column(
            self._store, snapshot, path, name[0], self._clock, dry_run=dry_run
        )

    def drop_column(self, name: str, *, dry_run: bool = False) -> int:
        """Drop a column that nothing depends on; return the table's version after it.

        Needs column mapping. Clustering columns and what holds them stay. With `dry_run` nothing
        is committed: the version is the one that the table would have.

        Raises:
            SchemaChangeError: If the table cannot be without it; holds every problem.
            UnsupportedFeatureError: If the table asks more of a writer than we do.
            CommitError: If the commit did not land.
        """
        snapshot, path = self.snapshot_to_change(), split_path(name)
        return alter.drop_column(self._store, snapshot, path, self._clock, dry_run=dry_run)

    def set_properties(
        self,
        properties: Mapping[str, str],
        *,
        unset: str | Sequence[str] = (),
        dry_run: bool = False,
    ) -> int:
        """Set some properties and remove others; return the table's version after it.

        Setting delta.columnMapping.mode to name turns column mapping on. Where there is nothing
        to change there is no commit. With `dry_run` nothing is committed: the version is the one
        that the table would have.

        Raises:
            UsageError: If the properties are not a mapping of texts.
            SchemaChangeError: If one is not a user's to change, or cannot have its value.
            UnsupportedFeatureError: If the table asks more of a writer than we do.
            CommitError: If the commit did not land.
        """
        setting = text_mapping(properties, argument="properties")
        removing = texts(unset, argument="unset", of="properties", empty=True)
        return alter.set_properties(
            self._store,
            self.snapshot_to_change(),
            setting,
            removing,
            self._clock,
            dry_run=dry_run,
        )

    def checkpoint(self, *, dry_run: bool = False) -> Checkpointed:
        """Give the newest version a checkpoint, so that it opens without the commits before.

        Commits of ours do so themselves after every `delta.checkpointInterval` versions. With
        `dry_run` it is made elsewhere and compared with the log, but not published.

        Raises:
            UnsupportedFeatureError: If the table asks more of a writer than we do.
            CheckpointMismatchError: If it would not say what the log says; nothing was written.
            CorruptLogError: If a log file that is needed is missing or broken.
            StorageError: If the storage cannot be written.
        """
        return checkpoint(self._store, self.snapshot_to_change(), self._clock, dry_run=dry_run)

    def orphans(
        self,
        *,
        older_than: str = "1d",
        finished: bool = False,
        delete: bool = False,
        dry_run: bool = False,
    ) -> Rows:
        """Return the files that runs left without a commit, one row per file.

        A run that wrote within `older_than` may still be alive: its files are listed but are no
        orphans, and stay. So do those of finished runs while their results can be committed, that
        is for half of `delta.deletedFileRetentionDuration`; with `finished`, they go as well. With
        `delete`, orphans are deleted, unless it is a `dry_run`. Where finished runs are among them,
        a version without actions is put first, so that no commit of them can land any more.

        Raises:
            UsageError: If `older_than` is not a duration like 12h.
            UnsupportedFeatureError: If the storage or the table cannot be written.
            StorageError: If the storage cannot be asked; what was not deleted stays listed.
            CorruptLogError: If the log cannot be read as far back as it goes.
        """
        strays = find_strays(
            self._store,
            self.snapshot(),
            self._clock,
            older_than_ms=parse_duration(older_than),
            finished=finished,
        )
        if not delete:
            return stray_rows(strays)
        if not dry_run:
            return stray_rows(strays, delete_strays(self._store, strays, self._clock))
        require_deletable(self._store, strays)
        return stray_rows(strays, deletable_paths(strays))


def _sources(data: object) -> tuple[Source, ...]:
    found: tuple[object, ...] = several(
        data, (str, PathLike, pa.Table, pa.RecordBatchReader), argument="data", of=_SOURCES
    )
    if not found:
        raise UsageError(f"there is nothing to append: data is an empty list of {_SOURCES}")
    return tuple(
        item
        if isinstance(item, pa.Table | pa.RecordBatchReader)
        else address(item, argument="data")
        for item in found
    )
