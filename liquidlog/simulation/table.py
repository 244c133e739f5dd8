"""A table of made-up rows: only the keys of a sample of them, and which file each is in.

Planners see it as a Snapshot like any other, with exact bounds. A rewrite places the sampled rows
with the executor's own kernels, so its files come out as ragged as real ones.
"""

from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liquidlog.clustering.columns import CLUSTERING_DOMAIN
from liquidlog.clustering.zcubes import PROVIDER
from liquidlog.curve.curves import Curve
from liquidlog.curve.placing import key_order_bits, place_rows
from liquidlog.snapshot import DELETION_VECTOR_TYPE, FILES_SCHEMA, Snapshot
from liquidlog.spec.actions import DomainMetadata, Format, Metadata
from liquidlog.spec.features import new_table_protocol
from liquidlog.spec.schema import PrimitiveType, StructField, StructType, schema_json

Points = NDArray[np.float64]
Rows = NDArray[np.int64]

NO_CUBE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimulatedTable:
    """Sampled live rows: `points` (rows, columns), `ids` in the order they came, `owner` the file.

    Files: `low` and `high` (files, columns), `size` bytes, `rows` and `deleted` of the sample,
    `cube` or NO_CUBE, and `names`, which a file keeps while its number among the others changes.
    """

    points: Points
    ids: Rows
    owner: Rows
    low: Points
    high: Points
    size: Rows
    rows: Rows
    deleted: Rows
    cube: Rows
    names: Rows
    cubes: int = 0
    made: int = 0

    @property
    def columns(self) -> int:
        """How many clustering columns there are."""
        return int(self.points.shape[1])

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return int(self.size.sum())


def empty_table(columns: int) -> SimulatedTable:
    """Return a table without rows."""
    nothing = np.zeros(0, np.int64)
    return SimulatedTable(
        points=np.zeros((0, columns)),
        ids=nothing,
        owner=nothing,
        low=np.zeros((0, columns)),
        high=np.zeros((0, columns)),
        size=nothing,
        rows=nothing,
        deleted=nothing,
        cube=nothing,
        names=nothing,
    )


def with_files(
    table: SimulatedTable,
    points: Points,
    ids: Rows,
    parts: Rows,
    size: Rows,
    *,
    cube: int = NO_CUBE,
) -> SimulatedTable:
    """Return the table with more rows, in new files: row i in file `parts[i]`, of `size` bytes."""
    count = len(size)
    low, high = np.full((count, table.columns), np.inf), np.full((count, table.columns), -np.inf)
    np.minimum.at(low, parts, points)
    np.maximum.at(high, parts, points)
    return replace(
        table,
        points=np.concatenate([table.points, points]),
        ids=np.concatenate([table.ids, ids]),
        owner=np.concatenate([table.owner, parts + len(table.size)]),
        low=np.concatenate([table.low, low]),
        high=np.concatenate([table.high, high]),
        size=np.concatenate([table.size, size]),
        rows=np.concatenate([table.rows, np.bincount(parts, minlength=count)]),
        deleted=np.concatenate([table.deleted, np.zeros(count, np.int64)]),
        cube=np.concatenate([table.cube, np.full(count, cube)]),
        names=np.concatenate([table.names, table.made + np.arange(count)]),
        made=table.made + count,
    )


def without_rows(table: SimulatedTable, ids: Rows) -> SimulatedTable:
    """Return the table with some of its rows deleted by vectors."""
    gone = np.isin(table.ids, ids)
    deleted = table.deleted + np.bincount(table.owner[gone], minlength=len(table.size))
    return replace(_with_rows(table, ~gone), deleted=deleted)


def _with_rows(table: SimulatedTable, mask: NDArray[np.bool_]) -> SimulatedTable:
    return replace(table, points=table.points[mask], ids=table.ids[mask], owner=table.owner[mask])


def rewritten(table: SimulatedTable, files: Rows, outputs: int, *, curve: str) -> SimulatedTable:
    """Return the table after some of its files became one cube of about `outputs` files."""
    kept = np.ones(len(table.size), np.bool_)
    kept[files] = False
    stays = kept[table.owner]
    points, ids = table.points[~stays], table.ids[~stays]
    live = (table.rows - table.deleted) / np.maximum(table.rows, 1)
    size = float(table.size[~kept] @ live[~kept])
    rest = _with_rows(table, stays)
    rest = replace(
        rest,
        owner=(np.cumsum(kept) - 1)[rest.owner],
        cubes=table.cubes + 1,
        **{name: getattr(table, name)[kept] for name in _FILE_ARRAYS},
    )
    if not len(points):
        return rest
    _, parts = np.unique(placed(points, outputs, curve=curve), return_inverse=True)
    made = np.maximum((size * np.bincount(parts) / len(parts)).astype(np.int64), 1)
    return with_files(rest, points, ids, parts, made, cube=table.cubes)


_FILE_ARRAYS: Final = ("low", "high", "size", "rows", "deleted", "cube", "names")


def placed(points: Points, outputs: int, *, curve: str) -> Rows:
    """Return the file of each row, below `outputs`, as the executor would place them."""
    count, columns = points.shape
    kind = Curve(curve) if columns > 1 else Curve.LINEAR
    bits = key_order_bits(columns, kind)
    ranks = np.argsort(np.argsort(points, axis=0, kind="stable"), axis=0, kind="stable")
    coords = np.asfortranarray((ranks << bits) // count, np.uint32)
    ordinals = np.arange(count, dtype=np.uint64)
    order, _, cuts = place_rows(coords, ordinals, min(outputs, count), curve=kind, bits=bits)
    return cuts.parts_of(order.keys_of(coords), ordinals)


def column_names(columns: int) -> tuple[str, ...]:
    """Return the names that the columns have in snapshots."""
    return tuple(f"k{number}" for number in range(columns))


def as_snapshot(table: SimulatedTable) -> Snapshot:
    """Return the table as planners see it."""
    names = column_names(table.columns)
    schema = StructType(tuple(StructField(name, PrimitiveType("double")) for name in names))
    domain = msgspec.json.encode({"clusteringColumns": [[name] for name in names]}).decode()
    return Snapshot(
        uri="simulation",
        version=0,
        timestamp_ms=0,
        protocol=new_table_protocol(clustered=True),
        metadata=Metadata(
            id="simulation",
            format=Format(provider="parquet", options={}),
            schema_string=schema_json(schema),
            partition_columns=(),
            configuration={},
            created_time=0,
        ),
        schema=schema,
        files=_files(table, msgspec.json.encode(names).decode()),
        domains={
            CLUSTERING_DOMAIN: DomainMetadata(
                domain=CLUSTERING_DOMAIN, configuration=domain, removed=False
            )
        },
        transactions={},
    )


def bounds_table(table: SimulatedTable) -> pa.Table:
    """Return the bounds of all columns, as parse_bounds spells them."""
    columns: dict[str, pa.Array] = {}
    for number in range(table.columns):
        columns[f"min.{number}"] = pa.array(table.low[:, number])
        columns[f"max.{number}"] = pa.array(table.high[:, number])
        columns[f"null_count.{number}"] = pa.array(np.zeros(len(table.size), np.int64))
    return pa.table({**columns, "num_records": pa.array(table.rows)})


def _files(table: SimulatedTable, zorder_by: str) -> pa.Table:
    count = len(table.size)
    clustered = table.cube != NO_CUBE
    tags = [f"cube-{cube:08d}" if cube != NO_CUBE else None for cube in table.cube.tolist()]
    vectors = [_vector(deleted) if deleted else None for deleted in table.deleted.tolist()]
    columns = {
        "path": pa.array([f"{name:09d}" for name in table.names.tolist()], pa.string()),
        "size": pa.array(table.size),
        "num_records": pa.array(table.rows),
        "zcube_id": pa.array(tags, pa.string()).dictionary_encode(),
        "zorder_by": _where(clustered, zorder_by),
        "clustering_provider": _where(clustered, PROVIDER),
        "deletion_vector": pa.array(vectors, DELETION_VECTOR_TYPE),
    }
    return pa.table(
        [columns.get(field.name, pa.nulls(count, field.type)) for field in FILES_SCHEMA],
        schema=FILES_SCHEMA,
    )


def _where(mask: NDArray[np.bool_], text: str) -> pa.Array:
    codes = pa.array(np.zeros(len(mask), np.int32), mask=~mask)
    return pa.DictionaryArray.from_arrays(codes, pa.array([text], pa.string()))


def _vector(deleted: int) -> dict[str, object]:
    return {
        "storageType": "u",
        "pathOrInlineDv": "simulated",
        "offset": 1,
        "sizeInBytes": 1,
        "cardinality": deleted,
    }
