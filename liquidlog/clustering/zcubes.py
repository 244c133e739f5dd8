"""ZCubes: which files were clustered together, by which columns, and whether their cube is full.

A file belongs to a cube if it has both tags, ZCUBE_ID and ZCUBE_ZORDER_BY; with only one of them it
counts as unclustered. A missing provider counts as ours, because some writers drop that tag.
`ZCUBE_ZORDER_BY` is a JSON list of logical names; order matters.

Source: Delta Spark, ZCubeInfo and OptimizeTableStrategy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liquidlog.clustering.columns import ClusteringColumn
from liquidlog.snapshot import Snapshot, logical_bytes, num_records
from liquidlog.spec.arrow import one_array

PROVIDER: Final = "liquid"

UNCLUSTERED: Final = "unclustered"
PARTIAL: Final = "partial"
STABLE: Final = "stable"
OTHER_COLUMNS: Final = "other_columns"
OTHER_PROVIDER: Final = "other_provider"

FILE_STATES: Final = (UNCLUSTERED, PARTIAL, STABLE, OTHER_COLUMNS, OTHER_PROVIDER)

_UNCLUSTERED, _PARTIAL, _STABLE, _OTHER_COLUMNS, _OTHER_PROVIDER = range(len(FILE_STATES))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Membership:
    """The cube membership of live files; all arrays have one entry per file.

    `cube` (int64) is the rank of the file's ZCUBE_ID, -1 without that tag. Files `in_cube` have
    both tags; files of the `same_columns` are in a cube of exactly the current columns; `ours` have
    no foreign provider.
    """

    cube: NDArray[np.int64]
    in_cube: NDArray[np.bool_]
    same_columns: NDArray[np.bool_]
    ours: NDArray[np.bool_]

    @property
    def own_cube(self) -> NDArray[np.int64]:
        """The cube of files that we clustered by the current columns, -1 for others (int64)."""
        return np.where(self.ours & self.same_columns, self.cube, -1)

    @property
    def candidates(self) -> NDArray[np.bool_]:
        """The mask of files that clustering may take: ours, unclustered or of the same columns."""
        return self.ours & (~self.in_cube | self.same_columns)


def parse_zorder_by(tag: str) -> tuple[str, ...] | None:
    """Return the quoted logical names in a ZCUBE_ZORDER_BY tag, None if it lists no names."""
    try:
        return msgspec.json.decode(tag, type=tuple[str, ...]) or None
    except msgspec.MsgspecError:
        return None


def membership(files: pa.Table, columns: Sequence[ClusteringColumn]) -> Membership:
    """Return the cube membership of live files, judged by the current clustering columns."""
    ids, tags = (one_array(files[name]).dictionary_encode() for name in ("zcube_id", "zorder_by"))
    order = pc.array_sort_indices(ids.dictionary).to_numpy()
    rank = np.full(len(order) + 1, -1)  # the code -1 of a missing id selects the last entry
    rank[order] = np.arange(len(order))
    cube = np.asarray(rank[_codes(ids)], np.int64)
    in_cube = (cube >= 0) & _mask(pc.is_valid(files["zorder_by"]))
    names = tuple(column.name for column in columns)
    equal = [parse_zorder_by(tag) == names for tag in tags.dictionary.to_pylist()]
    ours = pc.fill_null(pc.equal(files["clustering_provider"], PROVIDER), fill_value=True)
    return Membership(
        cube=cube,
        in_cube=in_cube,
        same_columns=in_cube & np.array([*equal, False], np.bool_)[_codes(tags)],
        ours=_mask(ours),
    )


def logical_sizes(files: pa.Table) -> NDArray[np.int64]:
    """Return the logical bytes per file (int64): its size scaled by its share of live rows."""
    if files["deletion_vector"].null_count == files.num_rows:
        return sizes(files)
    return _integers(logical_bytes(files))


def sizes(files: pa.Table) -> NDArray[np.int64]:
    """Return the bytes on storage per file (int64)."""
    return _integers(files["size"])


def file_states(
    snapshot: Snapshot, columns: Sequence[ClusteringColumn], min_cube_bytes: int
) -> pa.Array:
    """Return the state per live file, one of FILE_STATES.

    A cube is stable if its files of these columns have at least `min_cube_bytes` logical bytes.
    """
    files = snapshot.files
    places = membership(files, columns)
    same = places.ours & places.same_columns
    cubes = places.cube[same]
    totals = np.zeros(int(places.cube.max(initial=-1)) + 1, np.int64)
    np.add.at(totals, cubes, logical_sizes(files)[same])
    codes = np.full(files.num_rows, _UNCLUSTERED, np.int64)
    codes[same] = np.where(totals[cubes] >= min_cube_bytes, _STABLE, _PARTIAL)
    codes[places.in_cube & ~places.same_columns] = _OTHER_COLUMNS
    codes[~places.ours] = _OTHER_PROVIDER
    return pa.array(FILE_STATES, pa.string()).take(pa.array(codes))


def cube_table(
    snapshot: Snapshot, columns: Sequence[ClusteringColumn], min_cube_bytes: int
) -> pa.Table:
    """Return one row per cube, sorted by its id; numbers are null if unknown for a file."""
    files = snapshot.files
    places = membership(files, columns)
    provider = _text(files, "clustering_provider")
    rows = pa.table(
        {
            "zcube_id": _text(files, "zcube_id"),
            "zorder_by": _text(files, "zorder_by"),
            "foreign": pc.if_else(pa.array(places.ours), pa.scalar(None, pa.string()), provider),
            "state": file_states(snapshot, columns, min_cube_bytes),
            "provider": provider,
            "files": files["size"],
            "size_bytes": files["size"],
            "logical_bytes": pa.array(logical_sizes(files)),
            "num_records": num_records(files),
            "created_version": files["version"],
        }
    ).filter(pa.array(places.in_cube))
    complete = pc.ScalarAggregateOptions(skip_nulls=False)
    keys = ["zcube_id", "zorder_by", "foreign", "state"]
    figures = {
        ("provider", "max"): None,
        ("files", "count"): None,
        ("size_bytes", "sum"): None,
        ("logical_bytes", "sum"): None,
        ("num_records", "sum"): complete,
        ("created_version", "min"): complete,
    }
    cubes = rows.group_by(keys, use_threads=False).aggregate(
        [(*figure, options) for figure, options in figures.items()]
    )
    kept = {name: cubes[name] for name in ("zcube_id", "zorder_by")}
    found = {name: cubes[f"{name}_{how}"] for name, how in figures}
    state = {"state": cubes["state"], "created_version": found.pop("created_version")}
    order = [(name, "ascending") for name in ("zcube_id", "zorder_by", "provider")]
    return pa.table({**kept, **found, **state}).sort_by(order)


def _text(files: pa.Table, name: str) -> pa.Array:
    return pc.cast(one_array(files[name]), pa.string())


def _codes(encoded: pa.DictionaryArray) -> NDArray[np.int64]:
    return _integers(pc.fill_null(pc.cast(encoded.indices, pa.int64()), -1))


def _mask(values: pa.ChunkedArray) -> NDArray[np.bool_]:
    return np.asarray(values.to_numpy(), np.bool_)


def _integers(values: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    return np.asarray(one_array(values).to_numpy(zero_copy_only=False), np.int64)
