"""Where a planned group's files are among the live files, and which of them changed since."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.plan import RewriteGroup
from liquidlog.snapshot import Snapshot

_VECTOR_ID: Final = ("storageType", "pathOrInlineDv", "offset")
_PLANNED_VECTOR_ID: Final = ("storage_type", "path_or_inline_dv", "offset")
"""Fields that identify a deletion vector: their names in snapshots and in plans."""

_KEPT: Final = ("size_bytes", "num_records", "zcube_id", "zorder_by")
_LIVE: Final = ("size", "num_records", "zcube_id", "zorder_by")
"""What must still be true of a kept file: the names in plans and in snapshots."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Located:
    """The rows of Snapshot.files that are some files of a group.

    `rows` (int64) has the row number of each file that is live as planned, in the plan's order.
    `missing` lists the files whose path is not live, `changed` those that are live as something
    else.
    """

    rows: NDArray[np.int64]
    missing: tuple[str, ...]
    changed: tuple[str, ...]


def locate_inputs(snapshot: Snapshot, groups: Sequence[RewriteGroup]) -> list[Located]:
    """Return where the inputs of each group are live.

    Those with another deletion vector are changed.
    """

    def differs(live: pa.Table, planned: pa.Table) -> NDArray[np.bool_]:
        found, expected = (table["deletion_vector"].combine_chunks() for table in (live, planned))
        return differ(expected, _PLANNED_VECTOR_ID, found, _VECTOR_ID)

    return list(_located(snapshot, [group.inputs.columns for group in groups], differs))


def locate_kept(snapshot: Snapshot, groups: Sequence[RewriteGroup]) -> list[Located]:
    """Return where the kept files of each group are live.

    Those with a deletion vector, another size, another row count or in another cube are changed.
    """

    def differs(live: pa.Table, planned: pa.Table) -> NDArray[np.bool_]:
        found, expected = _struct(live, _LIVE), _struct(planned, _KEPT)
        deleted = np.asarray(pc.is_valid(live["deletion_vector"]), np.bool_)
        return deleted | differ(expected, _KEPT, found, _LIVE)

    return list(_located(snapshot, [group.kept.columns for group in groups], differs))


def _located(
    snapshot: Snapshot,
    groups: Sequence[pa.Table],
    differs: Callable[[pa.Table, pa.Table], NDArray[np.bool_]],
) -> Iterator[Located]:
    """Yield where the files of each group are; the live files are searched once for all."""
    lengths = [files.num_rows for files in groups]
    if not sum(lengths):
        yield from (Located(rows=np.zeros(0, np.int64), missing=(), changed=()) for _ in groups)
        return
    planned = pa.concat_tables(groups)
    paths = planned["path"].combine_chunks()
    positions = _positions(paths, snapshot.paths())
    live = positions >= 0
    found = snapshot.files.take(pa.array(positions[live]))
    changed = np.zeros(len(positions), np.bool_)
    changed[live] = differs(found, planned.filter(pa.array(live)))
    ends = np.cumsum(lengths)[:-1]
    parts = (np.split(values, ends) for values in (np.arange(len(paths)), positions, live, changed))
    for numbers, rows, is_live, is_changed in zip(*parts, strict=True):
        yield Located(
            rows=rows[is_live & ~is_changed],
            missing=tuple(paths.take(pa.array(numbers[~is_live])).to_pylist()),
            changed=tuple(paths.take(pa.array(numbers[is_changed])).to_pylist()),
        )


def _positions(paths: pa.Array, live: pa.Array) -> NDArray[np.int64]:
    """Return the position of each of `paths` in `live` (int64), -1 if it is absent.

    The hash table is built from `paths`: there are far more live paths.
    """
    rows = np.flatnonzero(pc.is_in(live, value_set=paths))
    found = pc.index_in(paths, value_set=live.take(pa.array(rows)))
    among = pc.fill_null(found, -1).to_numpy()
    return np.where(among < 0, -1, np.append(rows, -1)[among])


def _struct(files: pa.Table, names: Sequence[str]) -> pa.StructArray:
    columns = (files[name].combine_chunks() for name in names)
    plain = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in columns
    ]
    return pa.StructArray.from_arrays(plain, names=list(names))


def differ(
    one: pa.StructArray, its: Sequence[str], other: pa.StructArray, others: Sequence[str]
) -> NDArray[np.bool_]:
    """Return a mask of the rows where fields of two struct columns differ; null equals null."""
    unequal = np.zeros(len(one), np.bool_)
    for name, twin in zip(its, others, strict=True):
        values, found = pc.struct_field(one, name), pc.struct_field(other, twin)
        apart = pc.fill_null(pc.not_equal(values, found), fill_value=False)
        unequal |= np.asarray(pc.or_(apart, pc.xor(values.is_null(), found.is_null())))
    return unequal
