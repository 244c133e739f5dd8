"""Findings about the layout, each with the command of the rewrite that is worth it."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow.compute as pc

from liquidlog.clustering.planning.choice import deleted_shares
from liquidlog.clustering.planning.compaction import MAX_DELETED_SHARE
from liquidlog.clustering.settings import ZORDER_PROPERTY
from liquidlog.clustering.zcubes import UNCLUSTERED, file_states
from liquidlog.doctor.asked import Asked
from liquidlog.doctor.examined import Examined, Finding, by_rewrite, repaired
from liquidlog.foresee.verdict import Option
from liquidlog.snapshot import Snapshot, logical_bytes
from liquidlog.spec.bounds import NUM_INDEXED_COLUMNS, STATS_COLUMNS, Mask, indexed_leaves
from liquidlog.spec.schema import Path, quote_path
from liquidlog.spec.text import alter, render_size, set_properties

SMALL_FILE_BYTES: Final = 1 << 20
"""Of a smaller file, a query waits longer for the first byte than for all others."""

_FEWEST_SMALL: Final = 8
"""Fewer small files are not told."""

_MATTERS: Final = 0.1
"""The least share of readings that ask for a column for that to be told."""

_READS_MUCH: Final = 0.5
"""The least share of the bytes that readers must read for their columns to be told."""

_NAMED: Final = 5
"""The most columns that a finding names."""


def layout_findings(examined: Examined) -> Iterator[Finding]:
    """Yield the findings about files and columns that no repair without a rewrite mends."""
    yield from _columns(examined)
    yield from _unclustered(examined)
    yield from _constant(examined)
    yield from _small(examined)
    yield from _over_deleted(examined)
    yield from _asked(examined)


def indexing(snapshot: Snapshot, names: Sequence[str]) -> str:
    """Return the command for the property that also asks for statistics of these columns."""
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
        yield repaired(
            snapshot,
            "partitioned",
            f"the table is partitioned by {', '.join(partitions)}: it cannot be clustered until"
            " migrate has rewritten it; optimize joins small files inside partitions; the order of"
            " rows there is not measured",
            None,
        )
        return
    configuration = snapshot.metadata.configuration
    has_columns = state is None or state.columns or state.unresolved or examined.lost is not None
    if has_columns or ZORDER_PROPERTY in configuration or snapshot.files.num_rows <= 1:
        return
    advised = _advise(examined)
    hint = (
        ""
        if advised
        else "; liquidlog advise with a workload says which columns its readers ask for"
    )
    yield repaired(
        snapshot,
        "no-clustering-columns",
        f"the table has no clustering columns to measure its files by{hint}",
        advised,
    )


def _unclustered(examined: Examined) -> Iterator[Finding]:
    health, state = examined.health, examined.state
    if health is None or state is None or not state.columns or not health.unclustered_file_count:
        return
    states = file_states(examined.snapshot, state.columns, 0)
    yield by_rewrite(
        examined,
        "unclustered-files",
        f"{health.unclustered_file_count} file(s) never clustered,"
        f" {render_size(health.unclustered_bytes)}",
        np.asarray(pc.equal(states, UNCLUSTERED), np.bool_),
    )


def _constant(examined: Examined) -> Iterator[Finding]:
    health, state = examined.health, examined.state
    if health is None or state is None or not state.columns:
        return
    # A key in one file is the optimum; with a key in many files, no rewrite can separate them.
    if health.constant_file_count > 1 and health.constant_file_count * 2 > health.files_with_stats:
        names = ", ".join(health.cluster_by_keys)
        more = "cluster by one more column that readers ask for"
        yield repaired(
            examined.snapshot,
            "constant-files",
            f"{health.constant_file_count} of {health.files_with_stats} files hold a single value"
            f" of {names} each, so no rewrite by {names} helps;"
            f" {more}, if queries ask for other columns",
            _advise(examined),
            files=health.constant_file_count,
        )


def _small(examined: Examined) -> Iterator[Finding]:
    snapshot, verdict = examined.snapshot, examined.verdict
    size_bytes = snapshot.files["size"].to_numpy()
    small = size_bytes < SMALL_FILE_BYTES
    if verdict is None or small.sum() < _FEWEST_SMALL:
        return
    if any(map(_opens_fewer, verdict.options)):
        yield by_rewrite(
            examined,
            "small-files",
            f"{int(small.sum())} of {len(small)} files are smaller than"
            f" {render_size(SMALL_FILE_BYTES)}, {render_size(int(size_bytes[small].sum()))}"
            " together, and queries spend more time on opening than on reading them",
            small,
        )


def _opens_fewer(option: Option) -> bool:
    """Return whether queries would open fewer files after a rewrite, and wait less."""
    return option.now.files - option.after.files >= 1 and option.saved_seconds > 0


def _over_deleted(examined: Examined) -> Iterator[Finding]:
    files = examined.snapshot.files
    shares = deleted_shares(files)
    over: Mask = np.nan_to_num(shares) > MAX_DELETED_SHARE
    if not over.any():
        return
    dead = int(pc.sum(files["size"]).as_py()) - int(pc.sum(logical_bytes(files)).as_py())
    yield by_rewrite(
        examined,
        "over-deleted",
        f"{int(over.sum())} file(s) with more than {MAX_DELETED_SHARE:.0%} deleted rows; readers"
        f" read about {render_size(dead)} of deleted rows in the whole table",
        over,
    )


def _asked(examined: Examined) -> Iterator[Finding]:
    asked, snapshot, state = examined.asked, examined.snapshot, examined.state
    if asked is None or state is None:
        return
    own = {column.logical for column in state.columns}
    indexed = {
        leaf.logical for leaf in indexed_leaves(snapshot.schema, snapshot.metadata.configuration)
    }
    lacking = [
        one
        for one in asked.columns
        if one.files_without and one.leaf.logical not in own and one.share >= _MATTERS
    ]
    if lacking:
        names = [quote_path(one.leaf.logical) for one in lacking]
        outside = [
            quote_path(one.leaf.logical) for one in lacking if one.leaf.logical not in indexed
        ]
        files = max(one.files_without for one in lacking)
        why = "files get them when they are rewritten"
        if outside:
            why = f"the properties ask for none of {_listed(outside)}; after that, {why}"
        yield repaired(
            snapshot,
            "statistics-missing-for-asked-columns",
            f"{files} file(s) without statistics of {_listed(names)}, which the workload asks for:"
            f" each of these queries reads them; {why}",
            indexing(snapshot, outside) if outside else None,
            files=files,
        )
    if own and is_unlike(asked):
        columns, read = _columns_text(asked.unlike_columns), f"{asked.unlike_read_share:.0%}"
        yield repaired(
            snapshot,
            "layout-unlike-workload",
            f"{asked.unlike_share:.0%} of the queries ask for {columns} and for none of the"
            f" clustering columns, and read {read} of the bytes",
            _advise(examined),
        )


def is_unlike(asked: Asked) -> bool:
    """Return whether many readings ask for no clustering column, and read much."""
    return asked.unlike_share >= _MATTERS and asked.unlike_read_share >= _READS_MUCH


def _columns_text(paths: Sequence[Path]) -> str:
    return _listed([quote_path(path) for path in paths]) if paths else "no column with bounds"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _advise(examined: Examined) -> str | None:
    """Return the command that says which columns suit the workload, None without a source of it."""
    source = examined.workload_source
    return None if source is None else f"advise {{table}} --workload {shlex.quote(source)}"
