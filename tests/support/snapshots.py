"""Snapshots made of a few words: one FileSpec per live file."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import msgspec
import pyarrow as pa

from liquidlog.clustering.columns import CLUSTERING_DOMAIN
from liquidlog.clustering.planner import plan
from liquidlog.log.loader import load_bounds
from liquidlog.plan import ClusteringPlan, ClusteringPolicy
from liquidlog.predicates.matching import may_match
from liquidlog.snapshot import FILES_SCHEMA, STATISTICS_TYPE, Snapshot, Statistics
from liquidlog.spec.actions import DomainMetadata, Format, Metadata, Protocol
from liquidlog.spec.bounds import BoundsOf
from liquidlog.spec.features import new_table_protocol
from liquidlog.spec.schema import DecimalType, PrimitiveType, StructField, StructType, schema_json
from support.memory_store import MemoryStore
from support.plans import schema_of

SCHEMA = schema_of(x="integer", y="long", s="string", flag="boolean")


@dataclass(frozen=True, kw_only=True)
class FileSpec:
    """A live file; `bounds` maps a column to its (min, max), `deleted` rows make a vector."""

    path: str
    size: int = 100
    rows: int | None = 10
    cube: str | None = None
    zorder_by: Sequence[str] | str | None = None
    provider: str | None = None
    bounds: Mapping[str, tuple[Any, Any]] | None = None
    nulls: Mapping[str, int] | None = None
    deleted: int = 0
    version: int | None = 1
    base_row_id: int | None = None
    commit_version: int | None = None

    @property
    def tags(self) -> dict[str, str]:
        text = (
            self.zorder_by
            if isinstance(self.zorder_by, str) or self.zorder_by is None
            else msgspec.json.encode(list(self.zorder_by)).decode()
        )
        tags = {"ZCUBE_ID": self.cube, "ZCUBE_ZORDER_BY": text}
        return {key: value for key, value in tags.items() if value is not None}

    @property
    def stats(self) -> str | None:
        if self.rows is None:
            return None
        bounds = self.bounds or {}
        document = {
            "numRecords": self.rows,
            "minValues": {name: low for name, (low, _) in bounds.items() if low is not None},
            "maxValues": {name: high for name, (_, high) in bounds.items() if high is not None},
            "nullCount": {**dict.fromkeys(bounds, 0), **(self.nulls or {})},
        }
        return msgspec.json.encode(document).decode()

    @property
    def row(self) -> dict[str, Any]:
        vector = {
            "storageType": "u",
            "pathOrInlineDv": f"dv-{self.path}",
            "offset": 1,
            "sizeInBytes": 30,
            "cardinality": self.deleted,
        }
        return {
            "path": self.path,
            "size": self.size,
            "modification_time": 0,
            "num_records": self.rows,
            "partition_values_json": "{}",
            "tags_json": msgspec.json.encode(self.tags).decode() if self.tags else None,
            "zcube_id": self.cube,
            "zorder_by": self.tags.get("ZCUBE_ZORDER_BY"),
            "clustering_provider": self.provider,
            "deletion_vector": vector if self.deleted else None,
            "base_row_id": self.base_row_id,
            "default_row_commit_version": self.commit_version,
            "version": self.version,
        }


def numbered(files: Iterable[FileSpec]) -> list[FileSpec]:
    """Return files under paths of their own, in the order of these."""
    return [replace(file, path=f"f{number:02d}") for number, file in enumerate(files)]


def snapshot_of(
    files: Iterable[FileSpec] = (),
    *,
    cluster_by: Sequence[Sequence[str]] | None = (("x",),),
    schema: StructType = SCHEMA,
    configuration: Mapping[str, str] | None = None,
    partition_columns: tuple[str, ...] = (),
    protocol: Protocol | None = None,
) -> Snapshot:
    """Return a table with these files in this order; `cluster_by` None means no feature."""
    domains = {}
    if cluster_by is not None:
        text = msgspec.json.encode({"clusteringColumns": cluster_by}).decode()
        domains[CLUSTERING_DOMAIN] = DomainMetadata(
            domain=CLUSTERING_DOMAIN, configuration=text, removed=False
        )
    specs = list(files)
    texts = pa.chunked_array([pa.array([file.stats for file in specs], STATISTICS_TYPE)])
    return Snapshot(
        uri="/table",
        location="/table",
        version=7,
        timestamp_ms=1_700_000_000_000,
        protocol=protocol or new_table_protocol(clustered=cluster_by is not None),
        metadata=Metadata(
            id="table-id",
            format=Format(provider="parquet", options={}),
            schema_string=schema_json(schema),
            partition_columns=partition_columns,
            configuration=configuration or {},
            created_time=0,
        ),
        schema=schema,
        files=pa.Table.from_pylist(
            [{**file.row, "statistics_row": row} for row, file in enumerate(specs)],
            schema=FILES_SCHEMA,
        ),
        domains=domains,
        transactions={},
        statistics=Statistics(texts=texts),
    )


def bounds_of(snapshot: Snapshot) -> BoundsOf:
    """Return a function that loads the bounds of a snapshot made here."""
    return partial(load_bounds, MemoryStore(), snapshot)


def planned(
    snapshot: Snapshot, policy: ClusteringPolicy, bounds: BoundsOf | None = None, **more: Any
) -> ClusteringPlan:
    """Return a plan whose ids are counted; the bounds are those of a snapshot made here."""
    numbers = count()
    return plan(
        snapshot,
        policy,
        new_id=lambda: f"new-{next(numbers)}",
        bounds_of=bounds or bounds_of(snapshot),
        **more,
    )


def statistics_text(snapshot: Snapshot, number: int) -> str:
    """Return the raw statistics of a live file that a commit after the checkpoint added."""
    row = snapshot.files["statistics_row"][number].as_py()
    in_checkpoint = sum(file.adds for file in snapshot.statistics.checkpoint)
    return str(snapshot.statistics.texts[row - in_checkpoint].as_py())


def with_files(snapshot: Snapshot, files: pa.Table) -> Snapshot:
    """Return the same table with other live files, in the order given."""
    return replace(snapshot, files=files)


# A table of one file, or some, whose bounds predicates are held against

ONE_SCHEMA = StructType(
    (
        StructField("i", PrimitiveType("integer")),
        StructField("f", PrimitiveType("double")),
        StructField("n", DecimalType(38, 2)),
        StructField("s", PrimitiveType("string")),
        StructField("d", PrimitiveType("date")),
        StructField("t", PrimitiveType("timestamp")),
        StructField("z", PrimitiveType("timestamp_ntz")),
        StructField("flag", PrimitiveType("boolean")),
        StructField("a.b", PrimitiveType("integer")),
        StructField(
            "c", PrimitiveType("string"), metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}
        ),
        StructField("st", StructType((StructField("x", PrimitiveType("long")),))),
    )
)
LOW = {
    "i": (1, 5),
    "f": (0.5, 1.5),
    "n": (1.25, 2.5),
    "s": ("bar", "foo"),
    "d": ("2024-01-01", "2024-01-31"),
    "t": ("2024-01-01T00:00:00.000Z", "2024-01-01T12:00:00.000Z"),
    "z": ("2024-01-01T00:00:00.000", "2024-01-01T12:00:00.000"),
    "a.b": (1, 1),
    "c": ("a  ", "a  "),
}
ONE = [FileSpec(path="1", bounds=LOW)]


def matches(predicate: str, *files: FileSpec) -> list[bool]:
    snapshot = snapshot_of(files or ONE, schema=ONE_SCHEMA)
    found: list[bool] = may_match(snapshot, predicate, bounds_of(snapshot)).to_pylist()
    return found
