"""Files that a rewrite would refuse for dates whose place in today's calendar is not known.

The log says which files hold dates before 1582-10-15 or timestamps before 1900; the footers of a
few of these say in which calendar they are counted.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from liquidlog.data.reader import ParquetFile
from liquidlog.errors import DataFileError
from liquidlog.foresee.sample import spread
from liquidlog.log.statistics import load_bounds
from liquidlog.log.store import TableStore
from liquidlog.plan import ClusteringPlan
from liquidlog.snapshot import Snapshot, decoded_paths
from liquidlog.spec.arrow import arrow_type
from liquidlog.spec.bounds import BoundsOf, Mask, indexed_leaves
from liquidlog.spec.calendars import are_old
from liquidlog.spec.schema import Leaf, PrimitiveType, quote_path

_MOST_FOOTERS: Final = 16
_PARALLEL_FOOTERS: Final = 8
_MOST_FILES: Final = 100_000
"""A plan of a larger table does not wait for statistics that it can do without."""
_DATED: Final = (PrimitiveType("date"), PrimitiveType("timestamp"))


def noted(plan: ClusteringPlan, store: TableStore, snapshot: Snapshot) -> ClusteringPlan:
    """Return a plan with a note for each file that its rewrite would refuse, of a few."""
    found = refused_of(plan, store, snapshot)
    return structs.replace(plan, notes=(*plan.notes, *found)) if found else plan


def refused_of(
    plan: ClusteringPlan, store: TableStore, snapshot: Snapshot, bounds_of: BoundsOf | None = None
) -> tuple[str, ...]:
    """Return a sentence for each file that the rewrite of a plan would refuse; see `refused`."""
    if snapshot.files.num_rows > _MOST_FILES or not plan.groups:
        return ()
    paths = [group.inputs.columns["path"].combine_chunks() for group in plan.groups]
    taken = pc.is_in(snapshot.files["path"], value_set=pa.concat_arrays(paths))
    return refused(store, snapshot, np.asarray(taken), bounds_of)


def refused(
    store: TableStore,
    snapshot: Snapshot,
    files: Mask | None = None,
    bounds_of: BoundsOf | None = None,
) -> tuple[str, ...]:
    """Return a sentence for each live file that a rewrite would refuse, of a few looked into.

    Only `files` are looked at, all if None; those without statistics, or that are not there, say
    nothing. Statistics are loaded without `bounds_of`.
    """
    indexed = indexed_leaves(snapshot.schema, snapshot.metadata.configuration)
    wanted = [leaf for leaf in indexed if leaf.data_type in _DATED]
    if not wanted:
        return ()
    bounds = (bounds_of or partial(load_bounds, store, snapshot))(wanted)
    old = {leaf: are_old(bounds.low(number)) for number, leaf in enumerate(wanted)}
    found = np.logical_or.reduce(list(old.values()))
    rows = np.flatnonzero(found if files is None else found & files)
    rows = rows[spread(len(rows), _MOST_FOOTERS)]
    chosen = snapshot.files.take(pa.array(rows))
    paths, sizes = decoded_paths(chosen).to_pylist(), chosen["size"].to_pylist()

    def problem(number: int) -> str | None:
        columns = [leaf for leaf, mask in old.items() if mask[rows[number]]]
        address = store.data_path(paths[number])
        try:
            with ParquetFile(address, storage=store.storage, size_bytes=sizes[number]) as file:
                return _problem(file, columns)
        except DataFileError:
            return None  # whoever reads it says so

    with ThreadPoolExecutor(_PARALLEL_FOOTERS) as pool:
        return tuple(text for text in pool.map(problem, range(len(rows))) if text is not None)


def _problem(file: ParquetFile, columns: list[Leaf]) -> str | None:
    for leaf in columns:
        why = file.refusal_of_old(arrow_type(leaf.data_type))
        if why is not None:
            name = quote_path(leaf.logical)
            return f"a rewrite would refuse {file.path}: old values of its column {name} are {why}"
    return None
