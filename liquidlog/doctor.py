"""Findings about a table, and the actions that repair it. Rules without I/O.

A repair adds a file again with the same content and `dataChange` false, so that streams ignore it;
all other fields of its add stay unchanged.
"""

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.building import deleted_shares
from liquidlog.clustering.columns import (
    CLUSTERING_DOMAIN,
    OTHER_COLUMNS,
    OTHER_PROVIDER,
    UNCLUSTERED,
    ClusteringColumn,
    ClusteringState,
    clustering_domain,
    file_states,
    parse_zorder_by,
    unresolved_problem,
)
from liquidlog.clustering.health import PREFIX_PROPERTY, Health, prefix_chars, truncation
from liquidlog.clustering.planner import MAX_DELETED_SHARE
from liquidlog.clustering.settings import ZORDER_PROPERTY, is_unknown, unknown_text
from liquidlog.definition.schema_changes import LostColumns, Retagging
from liquidlog.errors import UsageError
from liquidlog.foresee.verdict import Verdict
from liquidlog.predicates.workload import NotUsable, Session, Workload, shares
from liquidlog.snapshot import Snapshot, decoded_paths, logical_bytes
from liquidlog.spec.actions import Change, CopiedAdd, FileChanges, FileKey
from liquidlog.spec.bounds import (
    NUM_INDEXED_COLUMNS,
    NUM_RECORDS,
    STATS_COLUMNS,
    Bounds,
    BoundsOf,
    FileStatistics,
    Mask,
    encode_stats,
    has_bounds,
    indexed_leaves,
)
from liquidlog.spec.schema import Leaf, Path, quote_path
from liquidlog.spec.text import Summary, alter, render_size, set_properties, unset_properties

_MOST_LISTED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """Removes of a commit, of `paths` that were not live, and the files with their rows.

    Version `earlier` had removed them before, None if no version ever had them. `files` are live
    and were written by either version; `are_doubled` says that both moved the same rows.
    """

    version: int
    operation: str
    paths: tuple[str, ...]
    earlier: int | None
    files: tuple[str, ...]
    are_doubled: bool

    def __str__(self) -> str:
        removed = f"version {self.version} ({self.operation}) removed {len(self.paths)} file(s)"
        if self.earlier is None:
            return f"{removed} that no version had ({listed(self.paths)})"
        again = f"{removed} that version {self.earlier} had removed ({listed(self.paths)})"
        if self.are_doubled:
            return f"{again}, and both wrote their rows anew: they are in the table twice"
        return f"{again}: rows may be there twice, or still, though one of the two deleted them"


class Histories:
    """Collects commits in order, and finds removes of files that were not live."""

    def __init__(self, *, is_whole: bool) -> None:
        """Begin without commits; `is_whole` says that the table was empty before the first one."""
        self._is_whole = is_whole
        self._live: dict[str, tuple[str | None, int]] = {}
        self._removed: dict[str, int] = {}
        self._parents: dict[int, set[int]] = {}
        self._missed: dict[tuple[int, int | None], list[str]] = {}
        self._operations: dict[int, str] = {}
        self._other_vector: dict[FileKey, int] = {}

    def take(self, commit: FileChanges) -> None:
        version, unknown = commit.version, (None, 0)
        parents: set[int] = set()
        # If a file is removed with several vectors, the remove with its own vector comes first.
        removed = sorted(
            set(commit.removed), key=lambda key: self._live.get(key[0], unknown)[0] != key[1]
        )
        for path, vector in removed:
            live = self._live.get(path)
            if live is not None and live[0] == vector:
                parents.add(self._live.pop(path)[1])
                self._removed[path] = version
            elif live is not None:
                self._other_vector[path, live[0]] = version
            else:
                earlier = self._removed.get(path)
                self._removed.setdefault(path, version)
                if earlier != version and (earlier is not None or self._is_whole):
                    self._missed.setdefault((version, earlier), []).append(path)
        for path, vector in commit.added:
            self._live[path] = (vector, version)
            self._removed.pop(path, None)
        if removed:
            self._operations[version] = commit.operation
            if commit.is_rewrite:
                self._parents[version] = parents

    def missed(self) -> tuple[Missed, ...]:
        """Return the removes of files that were not live, if files with their rows still are."""
        by_version: dict[int, list[str]] = {}
        for path, (_, added) in self._live.items() if self._missed else ():
            by_version.setdefault(added, []).append(path)
        found = []
        for (version, earlier), paths in self._missed.items():
            later, before = (
                {path for writer in self._family(first) for path in by_version.get(writer, ())}
                for first in (version, earlier)
            )
            are_doubled = {version, earlier} <= self._parents.keys()
            one = Missed(
                version=version,
                operation=self._operations[version],
                paths=tuple(sorted(paths)),
                earlier=earlier,
                files=tuple(sorted(later | before)),
                are_doubled=are_doubled,
            )
            # If no file of one version is left, rows that both moved are there once.
            if earlier is None or (later and before if are_doubled else later or before):
                found.append(one)
        return tuple(found)

    def _family(self, version: int | None) -> Collection[int]:
        """Return a version, and the versions that rewrote its files, directly or indirectly."""
        family = set() if version is None else {version}
        for rewrite, parents in self._parents.items():
            if not parents.isdisjoint(family):
                family.add(rewrite)
        return family

    def left_with_another_vector(self, live: Collection[FileKey]) -> dict[FileKey, int]:
        """Return the version that removed each of the `live` files with another vector only."""
        found = {key: self._removed[key[0]] for key in live if key[0] in self._removed}
        return found | {key: self._other_vector[key] for key in live if key in self._other_vector}

    @property
    def suspects(self) -> frozenset[str]:
        """The paths whose liveness `left_with_another_vector` needs to know."""
        return frozenset({*self._removed, *(path for path, _ in self._other_vector)})


def missed_of(commits: Iterable[FileChanges]) -> tuple[Missed, ...]:
    """Return the removes that missed among commits, without the commits before them."""
    histories = Histories(is_whole=False)
    for commit in commits:
        histories.take(commit)
    return histories.missed()


def listed(texts: Iterable[str], most: int = _MOST_LISTED) -> str:
    """Return the first of some texts, and how many more there are."""
    shown = sorted(texts)
    rest = len(shown) - most
    return "; ".join(shown[:most]) + (f"; {rest} more" if rest > 0 else "")


class QueriedColumn(NamedTuple):
    """A column in a workload: its share of queries, and the live files without its statistics."""

    leaf: Leaf
    share: float
    files_without: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Queried:
    """The columns of a workload's queries.

    `columns` can have bounds, the most frequent first. `unlike_share` is the share of queries that
    compare no clustering column but `unlike_columns`; on average they read the share
    `unlike_read_share` of the table's bytes. The conditions in `cannot_prune` rule out no file; the
    predicates in `not_usable` are no condition on the table.
    """

    columns: tuple[QueriedColumn, ...]
    unlike_share: float
    unlike_columns: tuple[Path, ...]
    unlike_read_share: float
    cannot_prune: tuple[str, ...]
    not_usable: tuple[NotUsable, ...]

    def document(self) -> dict[str, Any]:
        """Return the facts about the workload's predicates as plain JSON values."""
        return {"cannot_prune": self.cannot_prune, "not_usable": self.not_usable}


def queried_of(
    snapshot: Snapshot,
    workload: Workload,
    clustered: Sequence[Path],
    bounds_of: BoundsOf,
    now_ms: int | None,
) -> Queried:
    """Return the columns that a workload queries of a table that is clustered by some columns."""
    # The SQL parser takes a third of a command's start.
    from liquidlog.predicates.conditions import referenced_leaves_each
    from liquidlog.predicates.matching import answers

    session = Session(now_ms)
    found = answers(snapshot, workload, bounds_of, session)
    weights = shares(found.workload)
    size_bytes = snapshot.files["size"].to_numpy().astype(np.float64)
    own, others, read = set(clustered), 0.0, 0.0
    share: dict[Leaf, float] = {}
    unlike: dict[Path, None] = {}
    each = referenced_leaves_each(snapshot, [one.where for one in found.workload])
    for leaves, weight, judged in zip(each, weights, found.judged, strict=True):
        assert not isinstance(leaves, UsageError)  # noqa: S101  only of predicates not answered
        is_unlike = not own & {leaf.logical for leaf in leaves}
        if is_unlike:
            others += weight
            may_match = pc.fill_null(judged.may_match, fill_value=True)
            read += weight * float(size_bytes[np.asarray(may_match, np.bool_)].sum())
        for leaf in leaves:
            if has_bounds(leaf.data_type):
                share[leaf] = share.get(leaf, 0.0) + weight
                unlike |= {leaf.logical: None} if is_unlike else {}
    ranked = sorted(share, key=lambda leaf: -share[leaf])
    bounds = bounds_of(ranked)
    return Queried(
        columns=tuple(
            QueriedColumn(leaf, share[leaf], int(bounds.unknown(number).sum()))
            for number, leaf in enumerate(ranked)
        ),
        unlike_share=others,
        unlike_columns=tuple(unlike),
        unlike_read_share=read / max(size_bytes.sum(), 1.0) / others if others else 0.0,
        cannot_prune=found.cannot_prune,
        not_usable=found.not_usable,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault of a table.

    `files` counts the files with the fault, None for a fault of the table itself. The `command`
    for a `fixable` fault is `doctor --fix`, which rewrites no data file. It is None if `detail`
    says that nothing should be done, or that no command of ours does it.
    """

    name: str
    detail: str
    files: int | None = None
    command: str | None = None
    fixable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Examined:
    """The facts about a table that findings are derived from.

    `bounds` are those of the clustering columns, one entry per live file. If the domain cannot be
    read, `state`, `health` and `verdict` are None, and `domain_problem` says why. `rewritten` marks
    the files that the verdict takes. `queried` is None without a workload; `workload_source` is its
    address in commands. `missed` are past removes that removed nothing; `not_removed` maps live
    files to a version that removed them with another vector only.
    """

    snapshot: Snapshot
    state: ClusteringState | None
    domain_problem: str | None
    bounds: Bounds
    min_cube_bytes: int
    health: Health | None
    retagging: Retagging | None
    lost: LostColumns | None
    wrong_properties: Mapping[str, str] = field(default_factory=dict)
    verdict: Verdict | None = None
    rewritten: Mask | None = None
    queried: Queried | None = None
    workload_source: str | None = None
    refused_dates: tuple[str, ...] = ()
    missed: tuple[Missed, ...] = ()
    not_removed: Mapping[FileKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Diagnosis(Summary):
    """All findings of a table, and the verdict on it, None if the columns cannot be read."""

    findings: tuple[Finding, ...]
    verdict: Verdict | None
    queried: Queried | None = None

    def _facts(self) -> Mapping[str, object]:
        verdict = {} if self.verdict is None else {"verdict": self.verdict.sentence}
        return {**verdict, "findings": tuple(finding.name for finding in self.findings)}

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __getitem__(self, number: int) -> Finding:
        return self.findings[number]


def _fixable(snapshot: Snapshot, name: str, detail: str, files: int | None = None) -> Finding:
    command = f"liquidlog doctor {shlex.quote(snapshot.uri)} --fix {name}"
    return Finding(name=name, detail=detail, files=files, command=command, fixable=True)


def _by_rewrite(
    examined: Examined, name: str, detail: str, files: Mask, count: int | None = None
) -> Iterator[Finding]:
    """Yield a finding if there are files that only a rewrite changes; its command is worth it."""
    count = int(files.sum()) if count is None else count
    verdict, rewritten = examined.verdict, examined.rewritten
    why, command = "left alone: whether a rewrite is worth it was not judged", None
    if verdict is not None and verdict.best is None:
        shown = verdict.shown
        why = f"left alone: {verdict.sentence if shown is None else shown.problem}"
    elif verdict is not None and rewritten is not None and not np.any(rewritten & files):
        why = "left alone: the rewrite that is worth it takes none of them"
    elif verdict is not None and verdict.best is not None:
        why, command = "rewriting them is worth it", verdict.best.command
    if count > 0:
        yield Finding(name=name, detail=f"{detail}; {why}", files=count, command=command)


SMALL_FILE_BYTES: Final = 1 << 20
"""For a smaller file, a query waits longer for the first byte than for all others."""
_FEWEST_SMALL: Final = 8
"""Fewer small files are no finding."""
_MATTERS: Final = 0.1
"""The least share of queries that makes their column a finding."""
_READS_MUCH: Final = 0.5
"""The least share of bytes that queries must read for their columns to be a finding."""
_MOST_COLUMNS: Final = 5


def _indexing(snapshot: Snapshot, names: Sequence[str]) -> str:
    named = snapshot.metadata.configuration.get(STATS_COLUMNS)
    if named is None:
        return alter(snapshot.uri, set_properties({NUM_INDEXED_COLUMNS: "-1"}))
    more = [name for name in names if name not in named.split(",")]
    listed = ",".join([*(part for part in [named] if part), *more])
    return alter(snapshot.uri, set_properties({STATS_COLUMNS: listed}))


def _columns(examined: Examined) -> Iterator[Finding]:
    snapshot, state = examined.snapshot, examined.state
    partitions = snapshot.metadata.partition_columns
    if partitions:
        yield Finding(
            name="partitioned",
            detail=f"the table is partitioned by {', '.join(partitions)}: it cannot be clustered"
            " until migrate has rewritten it; optimize joins small files inside partitions; the"
            " order of rows there is not measured",
        )
        return
    configuration = snapshot.metadata.configuration
    has_columns = state is None or state.columns or state.unresolved or examined.lost is not None
    if has_columns or ZORDER_PROPERTY in configuration or snapshot.files.num_rows <= 1:
        return
    detail = "the table has no clustering columns to measure its files by"
    advised = _advise(examined)
    if not advised:
        detail += "; liquidlog advise with a workload says which columns its readers ask for"
    yield Finding(name="no-clustering-columns", detail=detail, command=advised)


def _clustered(examined: Examined) -> Iterator[Finding]:
    health, state = examined.health, examined.state
    if health is None or state is None or not state.columns:
        return
    if health.unclustered_file_count:
        states = file_states(examined.snapshot, state.columns, 0)
        yield from _by_rewrite(
            examined,
            "unclustered-files",
            f"{health.unclustered_file_count} file(s) never clustered,"
            f" {render_size(health.unclustered_bytes)}",
            np.asarray(pc.equal(states, UNCLUSTERED), np.bool_),
        )
    # A key in one file is the optimum; a key in many files cannot be separated by a rewrite.
    constant = health.constant_file_count
    if constant > 1 and constant * 2 > health.files_with_stats:
        names = ", ".join(health.cluster_by_keys)
        yield Finding(
            name="constant-files",
            detail=f"{constant} of {health.files_with_stats} files hold a single value of {names}"
            f" each, so no rewrite by {names} helps; cluster by one more column that readers ask"
            " for, if queries ask for other columns",
            command=_advise(examined),
            files=constant,
        )


def _small(examined: Examined) -> Iterator[Finding]:
    snapshot, verdict = examined.snapshot, examined.verdict
    size_bytes = snapshot.files["size"].to_numpy()
    small = size_bytes < SMALL_FILE_BYTES
    if verdict is None or small.sum() < _FEWEST_SMALL:
        return
    opens_fewer = (
        one.now.files - one.after.files >= 1 and one.saved_seconds > 0 for one in verdict.options
    )
    if any(opens_fewer):
        yield from _by_rewrite(
            examined,
            "small-files",
            f"{int(small.sum())} of {len(small)} files are smaller than"
            f" {render_size(SMALL_FILE_BYTES)}, {render_size(int(size_bytes[small].sum()))}"
            " together, and queries spend more time on opening than on reading them",
            small,
        )


def _over_deleted(examined: Examined) -> Iterator[Finding]:
    files = examined.snapshot.files
    over: Mask = np.nan_to_num(deleted_shares(files)) > MAX_DELETED_SHARE
    if not over.any():
        return
    dead = int(pc.sum(files["size"]).as_py()) - int(pc.sum(logical_bytes(files)).as_py())
    yield from _by_rewrite(
        examined,
        "over-deleted",
        f"{int(over.sum())} file(s) with more than {MAX_DELETED_SHARE:.0%} deleted rows; readers"
        f" read about {render_size(dead)} of deleted rows in the whole table",
        over,
    )


def _queried(examined: Examined) -> Iterator[Finding]:
    queried, snapshot, state = examined.queried, examined.snapshot, examined.state
    if queried is None or state is None:
        return
    own = {column.logical for column in state.columns}
    indexed = indexed_leaves(snapshot.schema, snapshot.metadata.configuration)
    lacking = [
        one
        for one in queried.columns
        if one.files_without and one.leaf.logical not in own and one.share >= _MATTERS
    ]
    if lacking:
        names = [quote_path(one.leaf.logical) for one in lacking]
        outside = [quote_path(one.leaf.logical) for one in lacking if one.leaf not in indexed]
        files = max(one.files_without for one in lacking)
        why = "files get them when they are rewritten"
        if outside:
            why = f"the properties ask for none of {_listed(outside)}; after that, {why}"
        yield Finding(
            name="statistics-missing-for-asked-columns",
            detail=f"{files} file(s) without statistics of {_listed(names)}, which the workload"
            f" asks for: each of these queries reads them; {why}",
            command=_indexing(snapshot, outside) if outside else None,
            files=files,
        )
    share, read_share = queried.unlike_share, queried.unlike_read_share
    if own and share >= _MATTERS and read_share >= _READS_MUCH:
        named = _listed([quote_path(path) for path in queried.unlike_columns])
        yield Finding(
            name="layout-unlike-workload",
            detail=f"{share:.0%} of the queries compare {named or 'no column with bounds'} and none"
            f" of the clustering columns, and read {read_share:.0%} of the bytes",
            command=_advise(examined),
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_COLUMNS} more" if len(names) > _MOST_COLUMNS else ""
    return f"{', '.join(names[:_MOST_COLUMNS])}{more}"


def _advise(examined: Examined) -> str | None:
    """Return the command that says which columns suit the workload, None without its source."""
    source, uri = examined.workload_source, shlex.quote(examined.snapshot.uri)
    return None if source is None else f"liquidlog advise {uri} --workload {shlex.quote(source)}"


BROKEN_DOMAIN: Final = "broken-domain"
LOST_COLUMNS: Final = "lost-columns"
RENAMED_CUBES: Final = "renamed-cubes"
MISSING_STATISTICS: Final = "missing-statistics"
CUT_STRINGS: Final = "cut-strings"

FIXES: Final = (BROKEN_DOMAIN, LOST_COLUMNS, RENAMED_CUBES, MISSING_STATISTICS, CUT_STRINGS)
"""Findings that `doctor --fix` repairs, in order."""

_MOST_FILES: Final = 20


def findings(examined: Examined) -> tuple[Finding, ...]:
    """Return all faults; a fault comes first if its repair also resolves others."""
    found = [*_history_findings(examined), *_domain_findings(examined)]
    found += _property_findings(examined)
    if examined.state is not None and examined.state.columns:
        found += _statistics_findings(examined, examined.state.columns)
        found += _tag_findings(examined, examined.state.columns)
    if examined.state is not None:
        for rule in (_columns, _clustered, _small, _over_deleted, _queried):
            found += rule(examined)
    return tuple(found)


def without_range(snapshot: Snapshot, bounds: Bounds) -> pa.Table:
    """Return the live files (FILES_SCHEMA) that lack statistics of a column of `bounds`."""
    return snapshot.files.filter(pa.array(bounds.any_unknown()))


def with_cut_bounds(
    snapshot: Snapshot, bounds: Bounds, columns: Sequence[ClusteringColumn]
) -> pa.Table:
    """Return the live files (FILES_SCHEMA) with a clustering column's bounds cut to one prefix."""
    found = np.zeros(snapshot.files.num_rows, np.bool_)
    for number, column in enumerate(columns):
        truncated = truncation(bounds, number, column, prefix_chars(snapshot))
        if truncated is not None:
            found |= truncated.in_one_prefix
    return snapshot.files.filter(pa.array(found))


def _history_findings(examined: Examined) -> Iterator[Finding]:
    """Yield faults of writers that ignored each other's commits or vectors."""
    for name, are_doubled in (("doubled-rows", True), ("removed-unknown-files", False)):
        missed = [one for one in examined.missed if one.are_doubled is are_doubled]
        if missed:
            files = {file for one in missed for file in one.files}
            left = "no row left the table with them"
            if files:
                before = min(one.version for one in missed) - 1
                left = (
                    f"the files with these rows: {listed(files, _MOST_FILES)}. Restore version"
                    f" {before} with an engine that can, and repeat the later changes"
                )
            yield Finding(
                name=name, detail=f"{listed(map(str, missed))}; {left}", files=len(files) or None
            )
    if examined.refused_dates:
        yield Finding(
            name="refused-dates",
            detail="; ".join(examined.refused_dates[:_MOST_LISTED]),
            files=len(examined.refused_dates),
        )
    if examined.not_removed:
        paths = [path for path, _ in examined.not_removed]
        yield Finding(
            name="removed-without-vector",
            detail=f"version {min(examined.not_removed.values())} removed {len(paths)} file(s)"
            " without the deletion vector that they have. They are still in the table, with"
            f" rows that may be there twice or should be deleted: {listed(paths, _MOST_FILES)}",
            files=len(paths),
        )


def _domain_findings(examined: Examined) -> Iterator[Finding]:
    snapshot, state = examined.snapshot, examined.state
    if state is None:
        detail = f"{examined.domain_problem}; no engine knows the clustering columns"
        yield _fixable(snapshot, BROKEN_DOMAIN, detail)
        return
    for path in state.unresolved:
        yield _fixable(snapshot, BROKEN_DOMAIN, unresolved_problem(path))
    if not state.clustered and CLUSTERING_DOMAIN in snapshot.domains:
        yield Finding(
            name="domain-without-feature",
            detail="the log names clustering columns, but the table does not have the feature"
            " clustering, so engines ignore them",
            command=f"liquidlog cluster-by {shlex.quote(snapshot.uri)} COLUMNS",
        )
    if examined.lost is not None:
        names = ", ".join(column.name for column in examined.lost.columns)
        yield _fixable(
            snapshot,
            LOST_COLUMNS,
            f"the table was clustered by {names} until version {examined.lost.version}"
            f" ({examined.lost.operation}) took the clustering columns away",
        )


def _property_findings(examined: Examined) -> Iterator[Finding]:
    configuration, faults = examined.snapshot.metadata.configuration, []
    for name, problem in examined.wrong_properties.items():
        cannot = f"the property {name} cannot be {configuration[name]!r}"
        faults.append((name, "wrong-property", f"{cannot}: {problem}; what needs it is refused"))
    faults += [
        (name, "unknown-property", f"{unknown_text(name)}; it has no effect")
        for name in filter(is_unknown, configuration)
    ]
    if ZORDER_PROPERTY in configuration and examined.state is not None and examined.state.columns:
        detail = (
            f"the property {ZORDER_PROPERTY} has no effect: the table is clustered by"
            f" {', '.join(examined.state.names)}, and clustering columns decide the order"
        )
        faults.append((ZORDER_PROPERTY, "unused-property", detail))
    for name, fault, detail in faults:
        command = alter(examined.snapshot.uri, unset_properties([name]))
        yield Finding(name=fault, detail=detail, command=command)


def _statistics_findings(
    examined: Examined, columns: Sequence[ClusteringColumn]
) -> Iterator[Finding]:
    snapshot = examined.snapshot
    missing = without_range(snapshot, examined.bounds).num_rows
    if missing:
        without = f"{missing} file(s) without statistics of a clustering column"
        detail = f"{without}; every query reads them"
        yield _fixable(snapshot, MISSING_STATISTICS, detail, files=missing)
    configuration = snapshot.metadata.configuration
    indexed = {leaf.physical for leaf in indexed_leaves(snapshot.schema, configuration)}
    outside = [column.name for column in columns if column.physical not in indexed]
    if outside:
        no_statistics = f"the table's properties ask for no statistics of {', '.join(outside)}"
        yield Finding(
            name="unindexed-columns",
            detail=f"{no_statistics}, so new files lack them",
            command=_indexing(snapshot, [column.name for column in columns]),
        )
    for column in examined.health.columns if examined.health else ():
        if column.files_in_one_prefix:
            yield _fixable(
                snapshot,
                CUT_STRINGS,
                f"{column.files_in_one_prefix} file(s) whose values of {column.name} all begin with"
                " the same characters, and the log keeps no others: queries cannot skip these"
                " files, and their depth means nothing; new files will be"
                f" like them unless {PREFIX_PROPERTY} is set higher",
                files=column.files_in_one_prefix,
            )


def _tag_findings(examined: Examined, columns: Sequence[ClusteringColumn]) -> Iterator[Finding]:
    snapshot, retagging = examined.snapshot, examined.retagging
    renamed = 0 if retagging is None else retagging.files.num_rows
    if retagging is not None and renamed:
        examples = "; ".join(f"{old} is now {new}" for old, new in [*retagging.tags.items()][:3])
        renames = f"{renamed} file(s) with tags from before a rename ({examples})"
        detail = f"{renames}: OPTIMIZE treats them as cubes of other columns"
        yield _fixable(snapshot, RENAMED_CUBES, detail, files=renamed)
    tags = snapshot.files["zorder_by"]
    odd = [tag for tag in pc.unique(tags).to_pylist() if tag and parse_zorder_by(tag) is None]
    unreadable = np.asarray(pc.is_in(tags, value_set=pa.array(odd, pa.string())), np.bool_)
    detail = f"{unreadable.sum()} file(s) with a ZCUBE_ZORDER_BY tag that is not a list of names"
    yield from _by_rewrite(examined, "unreadable-tags", detail, unreadable)
    states = file_states(snapshot, columns, 0)
    is_foreign = pc.equal(states, OTHER_PROVIDER)
    foreign = np.asarray(is_foreign, np.bool_)
    known = snapshot.files["clustering_provider"].filter(is_foreign)
    names = ", ".join(sorted(map(str, pc.unique(known).to_pylist())))
    detail = f"{foreign.sum()} file(s) clustered by another implementation ({names})"
    only = "; only a full rewrite takes them"
    yield from _by_rewrite(examined, "other-provider", detail + only, foreign)
    of_others = np.asarray(pc.equal(states, OTHER_COLUMNS), np.bool_)
    others = int(of_others.sum()) - renamed - int(unreadable.sum())
    detail = f"{others} file(s) in cubes of other columns"
    yield from _by_rewrite(examined, "other-columns", detail + only, of_others, others)


OPERATION: Final = "REPAIR"
NOTHING_LEFT: Final = Change(operation=OPERATION, parameters={}, actions=())
"""No repair: other commits have meanwhile removed every file to repair."""
_SECTIONS: Final = ("minValues", "maxValues", "nullCount")

_decoder = msgspec.json.Decoder(float_hook=Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")
Document = dict[str, Any]


def domain_repair(columns: Sequence[ClusteringColumn]) -> Change:
    """Return the change that replaces a broken domain by one with these columns, or none."""
    names = ",".join(column.name for column in columns)
    return Change(
        operation=OPERATION,
        parameters={"fix": BROKEN_DOMAIN, "newClusteringColumns": names},
        actions=(clustering_domain(columns),),
    )


def files_repair(fix: str, adds: Sequence[CopiedAdd]) -> Change:
    """Return the change that adds files again, with other tags or statistics."""
    return Change(
        operation=OPERATION,
        parameters={"fix": fix},
        actions=tuple(adds),
        metrics={"numUpdatedFiles": str(len(adds))},
    )


def with_statistics(
    files: pa.Table,
    originals: Sequence[Mapping[str, msgspec.Raw]],
    found: Mapping[str, FileStatistics],
    *,
    replaces: bool,
    tight_bounds: bool,
) -> tuple[CopiedAdd, ...]:
    """Return the adds of changed `files` with more statistics from `found`, by decoded path.

    `replaces` also replaces statistics in the log; `tight_bounds` records whether they are exact.
    """
    deleted = files["deletion_vector"].combine_chunks().is_valid().to_pylist()
    paths = (files["path"].to_pylist(), decoded_paths(files).to_pylist())
    adds = []
    for path, decoded, original, has_deleted in zip(*paths, originals, deleted, strict=True):
        if decoded not in found:
            continue
        # Statistics are of physical rows: beside deleted rows they are not exact.
        tight = False if has_deleted else True if tight_bounds else None
        known = msgspec.json.decode(original.get("stats", b"null"), type=str | None)
        stats = _completed(known, found[decoded], tight=tight, replaces=replaces)
        if stats is not None:
            text = _encoder.encode(stats).decode()
            document = {**original, "dataChange": msgspec.Raw(b"false"), "stats": text}
            raw = msgspec.Raw(msgspec.json.encode(document))
            adds.append(CopiedAdd(path=path, document=raw))
    return tuple(adds)


def _completed(
    known: str | None, statistics: FileStatistics, *, tight: bool | None, replaces: bool
) -> Document | None:
    """Return statistics of the log completed by others, None if that changes nothing."""
    before: Document = {}
    with suppress(msgspec.MsgspecError, RecursionError):
        read = _decoder.decode(known) if known else None
        before = read if isinstance(read, dict) else {}
    computed = _decoder.decode(encode_stats(statistics))
    rows = before.get(NUM_RECORDS)
    after = {**before, NUM_RECORDS: computed[NUM_RECORDS] if rows is None else rows}
    for name in _SECTIONS:
        section = _filled(before.get(name), computed[name], replaces=replaces)
        after |= {name: section} if section or name in before else {}
    if after == before:
        return None
    if tight is False or (tight and not any(before.get(name) for name in _SECTIONS)):
        after["tightBounds"] = tight
    return after


def _filled(before: object, computed: Document, *, replaces: bool) -> Document:
    """Return a part of statistics with computed values for missing ones, or for all of them."""
    filled = dict(before) if isinstance(before, dict) else {}
    for name, value in computed.items():
        known = filled.get(name)
        if isinstance(value, dict):
            filled[name] = _filled(known, value, replaces=replaces)
        elif known is None or replaces:
            filled[name] = value
    return filled
