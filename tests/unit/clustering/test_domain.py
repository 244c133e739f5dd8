import msgspec
import pytest

from liquidlog.clustering.columns import (
    CLUSTERING_DOMAIN,
    ClusteringColumn,
    ClusteringState,
    clustering_domain,
    clustering_state,
    read_domain,
)
from liquidlog.errors import CorruptLogError
from liquidlog.spec.features import new_table_protocol
from liquidlog.spec.schema import Path, PrimitiveType, StructField, StructType
from support.snapshots import snapshot_of

INTEGER = PrimitiveType("integer")
SCHEMA = StructType(
    (
        StructField("x", INTEGER, metadata={"delta.columnMapping.physicalName": "Col-1"}),
        StructField("s", StructType((StructField("a", INTEGER),))),
        StructField("p.q", INTEGER),
    )
)


def test_writes_the_reference_engines_text() -> None:
    columns = [
        ClusteringColumn(("x",), ("x",), INTEGER),
        ClusteringColumn(("s", "a"), ("s", "a"), INTEGER),
    ]
    written = clustering_domain(columns)
    assert written.configuration == (
        '{"clusteringColumns":[["x"],["s","a"]],"domainName":"delta.clustering"}'
    )
    assert (written.domain, written.removed) == ("delta.clustering", False)
    assert read_domain(written.configuration) == (("x",), ("s", "a"))


def test_no_columns_are_an_empty_list_not_a_tombstone() -> None:
    written = clustering_domain(())
    assert written.configuration == '{"clusteringColumns":[],"domainName":"delta.clustering"}'
    assert not written.removed


def test_reads_the_flat_form_of_the_protocol_text() -> None:
    assert read_domain('{"clusteringColumns":["col-1","a.b"],"other":1}') == (("col-1",), ("a.b",))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "{}",
        '{"clusteringColumns":null}',
        '{"clusteringColumns":"x"}',
        '{"clusteringColumns":[[1]]}',
        '{"clusteringColumns":[[]]}',
        '{"clusteringColumns":[[""]]}',
    ],
)
def test_a_domain_that_cannot_be_read_is_a_corrupt_log(text: str) -> None:
    with pytest.raises(CorruptLogError):
        read_domain(text)


@pytest.mark.parametrize(
    ("paths", "logical"),
    [
        ([["COL-1"]], [("x",)]),
        ([["s", "A"], ["Col-1"]], [("s", "a"), ("x",)]),
        (["s.a", "p.q"], [("s", "a"), ("p.q",)]),
        ([["Col-1"]] * 5, [("x",)] * 5),
    ],
)
def test_resolves_physical_names_in_any_case(paths: list[list[str]], logical: list[Path]) -> None:
    state = clustering_state(snapshot_of(cluster_by=paths, schema=SCHEMA))
    assert [column.logical for column in state.columns] == logical
    assert state.unresolved == ()


def test_reports_paths_that_the_schema_lost() -> None:
    state = clustering_state(
        snapshot_of(cluster_by=[["gone", "x"], ["Col-1"], ["s"]], schema=SCHEMA)
    )
    assert state.names == ("x",)
    assert state.unresolved == (("gone", "x"), ("s",))


def test_a_domain_without_the_feature_counts_for_nothing() -> None:
    protocol = new_table_protocol(clustered=False)
    state = clustering_state(snapshot_of(cluster_by=[["Col-1"]], schema=SCHEMA, protocol=protocol))
    assert state == ClusteringState(columns=(), unresolved=(), clustered=False)


def test_the_feature_without_a_domain_has_no_columns() -> None:
    snapshot = snapshot_of(cluster_by=None, protocol=new_table_protocol(clustered=True))
    assert clustering_state(snapshot) == ClusteringState(columns=(), unresolved=(), clustered=True)
    removed = snapshot_of(cluster_by=[["x"]])
    domain = msgspec.structs.replace(removed.domains[CLUSTERING_DOMAIN], removed=True)
    tombstone = type(removed)(
        **{name: getattr(removed, name) for name in removed.__slots__ if name != "domains"},
        domains={CLUSTERING_DOMAIN: domain},
    )
    assert clustering_state(tombstone).columns == ()
