"""What stands in the way of a dropped or renamed column, by kind, all of it at once."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from liquidlog.definition import create
from liquidlog.definition.create import clustering_protocol_change
from liquidlog.definition.schema_changes import drop_change, plan_late_retagging, plan_rename
from liquidlog.errors import SchemaChangeError, UsageError
from liquidlog.errors import SchemaProblemKind as Kind
from liquidlog.operations import writes
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import DomainMetadata, Protocol, encode_actions
from liquidlog.spec.features import implied_features
from liquidlog.spec.schema import PrimitiveType, StructField, StructType
from liquidlog.table import Table
from support.snapshots import FileSpec, snapshot_of

LONG = PrimitiveType("long")


def field(name: str, number: int, **metadata: Any) -> StructField:
    ids = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"}
    return StructField(name, LONG, metadata={**ids, **metadata})


def mapped(*fields: StructField, **settings: str) -> Snapshot:
    configuration = {"delta.columnMapping.mode": "name", **settings}
    return snapshot_of(
        schema=StructType(fields),
        configuration=configuration,
        partition_columns=(),
        cluster_by=None,
    )


def reasons(error: SchemaChangeError) -> list[tuple[Kind, str | None, str | None]]:
    return [(reason.kind, reason.column, reason.property) for reason in error.reasons]


@pytest.mark.parametrize("drop", [True, False])
def test_what_uses_a_column_is_named(drop: bool) -> None:  # noqa: FBT001  both changes
    snapshot = mapped(
        field("a", 1),
        field("twice", 2, **{"delta.generationExpression": "`A` * 2"}),
        field("b", 3, **{"delta.invariants": '{"expression":{"expression":"a > 0"}}'}),
        **{"delta.constraints.sane": "a < 9", "delta.constraints.other": "b < 9"},
    )
    with pytest.raises(SchemaChangeError) as caught:
        drop_change(snapshot, ("a",)) if drop else plan_rename(snapshot, ("a",), "z")
    assert reasons(caught.value) == [
        (Kind.COLUMN_IS_USED, None, "delta.constraints.sane"),
        (Kind.COLUMN_IS_USED, "twice", "delta.generationExpression"),
        (Kind.COLUMN_IS_USED, "b", "delta.invariants"),
    ]
    assert caught.value.problems == tuple(map(str, caught.value.reasons))


def test_the_only_column_with_a_bloom_filter_has_two_reasons_to_stay() -> None:
    snapshot = mapped(field("a", 1, **{"delta.bloomFilter.enabled": True}))
    with pytest.raises(SchemaChangeError) as caught:
        drop_change(snapshot, ("a",))
    assert reasons(caught.value) == [
        (Kind.COLUMN_IS_THE_LAST, "a", None),
        (Kind.COLUMN_HAS_BLOOM_FILTER, "a", None),
    ]


def test_a_struct_with_text_lengths_keeps_the_names_of_its_fields() -> None:
    inner = StructType((field("x", 2), field("y", 3)))
    outer = {**field("s", 1).metadata, "__CHAR_VARCHAR_TYPE_STRING": "struct<x:char(1)>"}
    snapshot = mapped(StructField("s", inner, metadata=outer))
    with pytest.raises(SchemaChangeError) as caught:
        plan_rename(snapshot, ("s", "x"), "z")
    assert reasons(caught.value) == [(Kind.COLUMN_HAS_CHAR_TYPE, "s", None)]


# Features come with clustering columns and go by DROP FEATURE, which only some allow.


def features(protocol: Protocol) -> set[str]:
    return {*(protocol.writer_features or ()), *implied_features(protocol)}


def protocol(*names: str, readers: tuple[str, ...] | None = None) -> Protocol:
    reader = 3 if readers else 2 if "columnMapping" in names else 1
    return Protocol(
        min_reader_version=reader,
        min_writer_version=7,
        reader_features=readers,
        writer_features=names,
    )


@pytest.mark.parametrize(
    ("present", "name", "words"),
    [
        (("clustering", "domainMetadata"), "domainMetadata", "drop clustering first"),
        (("rowTracking", "domainMetadata"), "domainMetadata", "DROP FEATURE rowTracking"),
        (("clustering", "domainMetadata"), "rowTracking", "does not have the feature"),
        (("clustering", "domainMetadata"), "clusterin", "did you mean clustering"),
        (("clustering",), "delta.appendOnly", "is a property"),
        (("appendOnly",), "appendOnly", "does not drop it either"),
        (("checkpointProtection",), "checkpointProtection", "TRUNCATE HISTORY"),
        (("inCommitTimestamp",), "inCommitTimestamp", "Delta Spark's"),
        (("deletionVectors",), "deletionVectors", "readers have to know it"),
    ],
)
def test_what_cannot_be_dropped_says_why(present: tuple[str, ...], name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        create.feature_to_drop(protocol(*present), name, truncate_history=False)


def test_delta_rs_writes_again_after_both_are_dropped(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"a": [1]}))
    table = Table.open(tmp_path)
    change = clustering_protocol_change(table.snapshot())
    assert change is not None
    assert change.added == ("clustering", "domainMetadata")
    table.cluster_by(["a"])
    assert table.snapshot().protocol == change.after
    assert clustering_protocol_change(table.snapshot()) is None
    table.append(pa.table({"a": [2]}))
    with pytest.raises(Exception, match="ClusteredTable"):
        write_deltalake(tmp_path, pa.table({"a": [3]}), mode="append")
    rehearsed = table.drop_feature("clustering", dry_run=True)
    dropped = table.drop_feature("Clustering")
    assert dropped == rehearsed
    assert table.snapshot().domains == {}
    assert table.detail()["clusteringColumns"] == []
    last = table.drop_feature("domainMetadata")
    assert (last.version, last.removed_domains) == (dropped.version + 1, ())
    assert table.snapshot().protocol == change.before
    write_deltalake(tmp_path, pa.table({"a": [3]}), mode="append")
    assert DeltaTable(tmp_path).to_pyarrow_dataset().to_table()["a"].to_pylist() == [3, 2, 1]
    assert table.history(limit=2)[1]["operationParameters"] == {
        "featureName": "domainMetadata",
        "truncateHistory": "false",
    }


def with_domains(path: Path, *names: str) -> Table:
    """Return a table without clustering that has domains."""
    table = Table.create(path, schema=pa.schema([("a", pa.int64())]), cluster_by=["a"])
    table.drop_feature("clustering")
    version = table.snapshot().version + 1
    domains = [DomainMetadata(domain=name, configuration="{}", removed=False) for name in names]
    commit = path / "_delta_log" / f"{version:020d}.json"
    commit.write_bytes(encode_actions(domains))
    return Table.open(path)


def test_domains_go_before_their_feature(tmp_path: Path) -> None:
    table = with_domains(tmp_path, "b", "a")
    version = table.snapshot().version
    rehearsed = table.drop_feature("domainMetadata", dry_run=True)
    assert table.snapshot().version == version
    dropped = table.drop_feature("domainMetadata")
    assert dropped == rehearsed
    assert (dropped.version, dropped.removed_domains) == (version + 2, ("a", "b"))
    assert table.snapshot().domains == {}
    operations = [row["operation"] for row in table.history(limit=2)]
    assert operations == ["DROP FEATURE", "DOMAIN METADATA CLEANUP"]


def test_a_late_domain_keeps_the_feature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = with_domains(tmp_path)
    version = table.snapshot().version
    derive = create.feature_drop

    def race(snapshot: object, **arguments: object) -> object:
        if not (tmp_path / "_delta_log" / f"{version + 1:020d}.json").exists():
            late = DomainMetadata(domain="late", configuration="{}", removed=False)
            name = f"{version + 1:020d}.json"
            (tmp_path / "_delta_log" / name).write_bytes(encode_actions([late]))
        return derive(snapshot, **arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(writes, "feature_drop", race)
    with pytest.raises(UsageError, match="late"):
        table.drop_feature("domainMetadata")
    assert "domainMetadata" in features(table.snapshot().protocol)


def schema(**physical: str) -> StructType:
    """A schema of logical names and the physical names that they stand for."""
    return StructType(
        tuple(
            StructField(name, PrimitiveType("integer"), metadata=_mapped(stored))
            for name, stored in physical.items()
        )
    )


def _mapped(stored: str) -> dict[str, object]:
    return {"delta.columnMapping.physicalName": stored}


def retagged(current: StructType, *past: StructType) -> dict[str, str]:
    tags = ('["x"]', '["y"]', '["x","y"]', '["gone"]', '["never"]', "no list", None)
    files = [
        FileSpec(path=str(n), cube=None if tag is None else "c", zorder_by=tag)
        for n, tag in enumerate(tags)
    ]
    snapshot = snapshot_of(files, schema=current, cluster_by=None)
    found = plan_late_retagging(snapshot, (*past, current))
    assert set(found.files["zorder_by"].to_pylist()) == set(found.tags)
    return dict(found.tags)


def test_tags_follow_their_columns_through_renames() -> None:
    first = schema(x="p1", y="p2", gone="p3")
    second = schema(x="p1", z="p2", gone="p3")
    assert retagged(schema(x="p1", **{"a b": "p2"}), first, second) == {
        '["y"]': '["`a b`"]',
        '["x","y"]': '["x","`a b`"]',
    }


def test_names_that_meant_several_columns_are_left_alone() -> None:
    # y took the name of x, so a tag of x alone may mean either; x and y were once both there.
    assert retagged(schema(old="p1", x="p2"), schema(x="p1", y="p2")) == {
        '["y"]': '["x"]',
        '["x","y"]': '["old","x"]',
    }
