"""Features come with clustering columns and go by DROP FEATURE, which only some allow."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from liquidlog.definition import protocols
from liquidlog.definition.protocols import clustering_protocol_change
from liquidlog.errors import UsageError
from liquidlog.operations import define
from liquidlog.spec.actions import DomainMetadata, Protocol, encode_actions
from liquidlog.spec.features import implied_features, without_feature
from liquidlog.table import Table


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
    ("names", "versions"),
    [
        (("domainMetadata", "invariants", "appendOnly"), (1, 2)),
        (("domainMetadata",), (1, 1)),
        (("domainMetadata", "appendOnly"), (1, 7)),
        (("domainMetadata", "invariants", "appendOnly", "checkConstraints"), (1, 3)),
        (("domainMetadata", "clustering", "invariants", "appendOnly"), (1, 7)),
    ],
)
def test_a_legacy_version_comes_back_if_it_says_the_same(
    names: tuple[str, ...], versions: tuple[int, int]
) -> None:
    before = protocol(*names)
    after = without_feature(before, "domainMetadata")
    assert (after.min_reader_version, after.min_writer_version) == versions
    assert features(after) == features(before) - {"domainMetadata"}


def test_reader_features_keep_their_version() -> None:
    before = protocol("deletionVectors", "domainMetadata", readers=("deletionVectors",))
    after = without_feature(before, "domainMetadata")
    assert after == protocol("deletionVectors", readers=("deletionVectors",))


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
def test_what_cannot_be_dropped_is_refused_with_the_reason(
    present: tuple[str, ...], name: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        protocols.feature_to_drop(protocol(*present), name, truncate_history=False)


def test_history_is_not_truncated_for_nothing() -> None:
    with pytest.raises(UsageError, match="24 hours"):
        protocols.feature_to_drop(protocol("clustering"), "clustering", truncate_history=True)


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


def test_a_domain_that_comes_meanwhile_keeps_the_feature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = with_domains(tmp_path)
    version = table.snapshot().version
    derive = protocols.feature_drop

    def race(snapshot: object, **arguments: object) -> object:
        if not (tmp_path / "_delta_log" / f"{version + 1:020d}.json").exists():
            late = DomainMetadata(domain="late", configuration="{}", removed=False)
            name = f"{version + 1:020d}.json"
            (tmp_path / "_delta_log" / name).write_bytes(encode_actions([late]))
        return derive(snapshot, **arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(define, "drop_change", race)
    with pytest.raises(UsageError, match="late"):
        table.drop_feature("domainMetadata")
    assert "domainMetadata" in features(table.snapshot().protocol)
