"""Findings about a table's clustering, each with the command that repairs it."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.columns import CLUSTERING_DOMAIN, ClusteringColumn, unresolved_problem
from liquidlog.clustering.health.notes import PREFIX_PROPERTY, prefix_chars, truncation
from liquidlog.clustering.settings import ZORDER_PROPERTY, is_unknown, unknown_text
from liquidlog.clustering.zcubes import OTHER_COLUMNS, OTHER_PROVIDER, file_states, parse_zorder_by
from liquidlog.doctor.examined import Examined, Finding, by_rewrite, fixable, repaired
from liquidlog.doctor.layout import indexing, layout_findings
from liquidlog.doctor.missed import listed
from liquidlog.snapshot import Snapshot
from liquidlog.spec import text
from liquidlog.spec.bounds import Bounds, indexed_leaves

__all__ = ["FIXES", "Examined", "Finding", "findings", "with_cut_bounds", "without_range"]

DOUBLED_ROWS: Final = "doubled-rows"
REMOVED_UNKNOWN: Final = "removed-unknown-files"
REMOVED_WITHOUT_VECTOR: Final = "removed-without-vector"
REFUSED_DATES: Final = "refused-dates"
BROKEN_DOMAIN: Final = "broken-domain"
LOST_COLUMNS: Final = "lost-columns"
RENAMED_CUBES: Final = "renamed-cubes"
MISSING_STATISTICS: Final = "missing-statistics"
CUT_STRINGS: Final = "cut-strings"
WRONG_PROPERTY: Final = "wrong-property"
UNKNOWN_PROPERTY: Final = "unknown-property"
UNUSED_PROPERTY: Final = "unused-property"

FIXES: Final = (BROKEN_DOMAIN, LOST_COLUMNS, RENAMED_CUBES, MISSING_STATISTICS, CUT_STRINGS)
"""Findings that `doctor --fix` repairs, in the order in which it repairs them."""

_NAMED: Final = 20
"""The most files that a finding names."""

_SAID: Final = 3
"""The most commits of which a finding says what each did."""


def findings(examined: Examined) -> tuple[Finding, ...]:
    """Return all faults; one whose repair also resolves others comes before them."""
    found = [*_history_findings(examined), *_domain_findings(examined)]
    found += _property_findings(examined)
    if examined.state is not None and examined.state.columns:
        found += _statistics_findings(examined, examined.state.columns)
        found += _tag_findings(examined, examined.state.columns)
    if examined.state is not None:
        found += layout_findings(examined)
    return tuple(found)


def without_range(snapshot: Snapshot, bounds: Bounds) -> pa.Table:
    """Return the live files (FILES_SCHEMA) that lack statistics of a column of `bounds`."""
    return snapshot.files.filter(pa.array(bounds.any_unknown()))


def with_cut_bounds(
    snapshot: Snapshot, bounds: Bounds, columns: Sequence[ClusteringColumn]
) -> pa.Table:
    """Return the live files (FILES_SCHEMA) with bounds of a clustering column cut to one prefix."""
    found = np.zeros(snapshot.files.num_rows, np.bool_)
    for number, column in enumerate(columns):
        truncated = truncation(bounds, number, column, prefix_chars(snapshot))
        if truncated is not None:
            found |= truncated.in_one_prefix
    return snapshot.files.filter(pa.array(found))


def _history_findings(examined: Examined) -> Iterator[Finding]:
    """Yield what writers broke that did not see each other's commits, or not their vectors."""
    doubled = [one for one in examined.missed if one.are_doubled]
    others = [one for one in examined.missed if not one.are_doubled]
    for name, missed in ((DOUBLED_ROWS, doubled), (REMOVED_UNKNOWN, others)):
        if missed:
            files = {file for one in missed for file in one.files}
            left = "no row left the table with them"
            if files:
                before = min(one.version for one in missed) - 1
                left = (
                    f"the files with these rows: {listed(files, _NAMED)}. Restore version"
                    f" {before} with an engine that can, and repeat what came after it"
                )
            yield Finding(
                name=name,
                detail=f"{listed(map(str, missed), _SAID)}; {left}",
                files=len(files) or None,
                command=None,
                fixable=False,
            )
    if examined.refused_dates:
        yield Finding(
            name=REFUSED_DATES,
            detail="; ".join(examined.refused_dates[:_SAID]),
            files=len(examined.refused_dates),
            command=None,
            fixable=False,
        )
    if examined.not_removed:
        paths = [path for path, _ in examined.not_removed]
        yield Finding(
            name=REMOVED_WITHOUT_VECTOR,
            detail=f"version {min(examined.not_removed.values())} removed {len(paths)} file(s)"
            " without the deletion vector that they have. They are still in the table, with"
            f" rows that may be there twice or should be deleted: {listed(paths, _NAMED)}",
            files=len(paths),
            command=None,
            fixable=False,
        )


def _domain_findings(examined: Examined) -> Iterator[Finding]:
    snapshot, state = examined.snapshot, examined.state
    if state is None:
        yield fixable(
            snapshot,
            BROKEN_DOMAIN,
            f"{examined.domain_problem}; no engine knows the clustering columns",
        )
        return
    for path in state.unresolved:
        yield fixable(snapshot, BROKEN_DOMAIN, unresolved_problem(path))
    if not state.clustered and CLUSTERING_DOMAIN in snapshot.domains:
        yield repaired(
            snapshot,
            "domain-without-feature",
            "the log names clustering columns, but the table does not have the feature clustering,"
            " so engines ignore them",
            "cluster-by {table} COLUMNS",
        )
    if examined.lost is not None:
        names = ", ".join(column.name for column in examined.lost.columns)
        yield fixable(
            snapshot,
            LOST_COLUMNS,
            f"the table was clustered by {names} until version {examined.lost.version}"
            f" ({examined.lost.operation}) took the clustering columns away",
        )


def _property_findings(examined: Examined) -> Iterator[Finding]:
    snapshot = examined.snapshot
    configuration = snapshot.metadata.configuration
    for name, problem in examined.wrong_properties.items():
        value = configuration[name]
        yield _unset(
            snapshot,
            WRONG_PROPERTY,
            f"the property {name} cannot be {value!r}: {problem}; what needs it is refused",
            name,
        )
    for name in filter(is_unknown, configuration):
        yield _unset(snapshot, UNKNOWN_PROPERTY, f"{unknown_text(name)}; it has no effect", name)
    if ZORDER_PROPERTY in configuration and examined.state is not None and examined.state.columns:
        yield _unset(
            snapshot,
            UNUSED_PROPERTY,
            f"the property {ZORDER_PROPERTY} has no effect: the table is clustered by"
            f" {', '.join(examined.state.names)}, and clustering columns decide the order",
            ZORDER_PROPERTY,
        )


def _unset(snapshot: Snapshot, name: str, detail: str, unset: str) -> Finding:
    command = text.alter(snapshot.uri, text.unset_properties([unset]))
    return Finding(name=name, detail=detail, files=None, command=command, fixable=False)


def _statistics_findings(
    examined: Examined, columns: Sequence[ClusteringColumn]
) -> Iterator[Finding]:
    snapshot = examined.snapshot
    missing = without_range(snapshot, examined.bounds).num_rows
    if missing:
        yield fixable(
            snapshot,
            MISSING_STATISTICS,
            f"{missing} file(s) without statistics of a clustering column; every query reads them",
            files=missing,
        )
    configuration = snapshot.metadata.configuration
    indexed = {leaf.physical for leaf in indexed_leaves(snapshot.schema, configuration)}
    outside = [column for column in columns if column.physical not in indexed]
    if outside:
        names = ", ".join(column.name for column in outside)
        wanted = indexing(snapshot, [column.name for column in columns])
        yield repaired(
            snapshot,
            "unindexed-columns",
            f"the table's properties ask for no statistics of {names}, so new files lack them",
            wanted,
        )
    yield from _cut_findings(examined)


def _cut_findings(examined: Examined) -> Iterator[Finding]:
    for column in examined.health.columns if examined.health else ():
        if column.files_in_one_prefix:
            yield fixable(
                examined.snapshot,
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
        yield fixable(
            snapshot,
            RENAMED_CUBES,
            f"{renamed} file(s) with tags from before a rename ({examples}): OPTIMIZE treats"
            " them as cubes of other columns",
            files=renamed,
        )
    tags = snapshot.files["zorder_by"]
    unreadable = 0
    odd = [tag for tag in pc.unique(tags).to_pylist() if tag and parse_zorder_by(tag) is None]
    if odd:
        unreadable = int(pc.sum(pc.is_in(tags, value_set=pa.array(odd))).as_py())
        yield by_rewrite(
            examined,
            "unreadable-tags",
            f"{unreadable} file(s) with a ZCUBE_ZORDER_BY tag that is not a list of names",
            np.asarray(pc.fill_null(pc.is_in(tags, value_set=pa.array(odd)), fill_value=False)),
        )
    states = file_states(snapshot, columns, 0)
    foreign = _count(states, OTHER_PROVIDER)
    if foreign:
        known = snapshot.files["clustering_provider"].filter(pc.equal(states, OTHER_PROVIDER))
        names = ", ".join(sorted(map(str, pc.unique(known).to_pylist())))
        yield by_rewrite(
            examined,
            "other-provider",
            f"{foreign} file(s) clustered by another implementation ({names}); only a full rewrite"
            " takes them",
            np.asarray(pc.equal(states, OTHER_PROVIDER)),
        )
    others = _count(states, OTHER_COLUMNS) - renamed - unreadable
    if others > 0:
        yield by_rewrite(
            examined,
            "other-columns",
            f"{others} file(s) in cubes of other columns; only a full rewrite takes them",
            np.asarray(pc.equal(states, OTHER_COLUMNS)),
            count=others,
        )


def _count(states: pa.Array, state: str) -> int:
    return int(pc.sum(pc.equal(states, state)).as_py() or 0)
