"""The delta.clustering domain: where a table keeps its clustering columns.

Source: PROTOCOL.md, "Clustered Table"; Delta Spark, ClusteringMetadataDomain.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from liquidlog.clustering.columns import ClusteringColumn
from liquidlog.errors import CorruptLogError
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import UNREADABLE, DomainMetadata
from liquidlog.spec.features import is_clustered
from liquidlog.spec.schema import Path, StructType, find_column, quote_path, resolve_path

CLUSTERING_DOMAIN: Final = "delta.clustering"

_WHERE: Final = f"the {CLUSTERING_DOMAIN} domain"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusteringState:
    """How a table is clustered.

    `unresolved` are physical paths of the domain that the schema does not have (a parent struct
    was dropped). `clustered` is whether the table has the feature, with or without columns.
    """

    columns: tuple[ClusteringColumn, ...]
    unresolved: tuple[Path, ...]
    clustered: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Logical names in clustering order, unresolved paths left out."""
        return tuple(column.name for column in self.columns)


class _Domain(msgspec.Struct):
    """The domain's text; the flat form of PROTOCOL.md's example has strings for paths."""

    clustering_columns: list[list[str] | str] = msgspec.field(name="clusteringColumns")


class _WrittenDomain(msgspec.Struct):
    clustering_columns: list[Path] = msgspec.field(name="clusteringColumns")
    domain_name: str = msgspec.field(name="domainName", default=CLUSTERING_DOMAIN)


def read_domain(configuration: str) -> tuple[Path, ...]:
    """Return the physical paths in the domain's configuration text.

    Both forms are read: a list of name parts a column, as engines write it, and one string a
    column, as the protocol text shows it.

    Raises:
        CorruptLogError: If the text is not such a document.
    """
    try:
        domain = msgspec.json.decode(configuration, type=_Domain)
    except UNREADABLE as error:
        raise CorruptLogError(_WHERE, f"its configuration cannot be read: {error}") from error
    paths = tuple(
        (entry,) if isinstance(entry, str) else tuple(entry) for entry in domain.clustering_columns
    )
    if not all(path and all(path) for path in paths):
        raise CorruptLogError(_WHERE, "it names a clustering column without a name")
    return paths


def clustering_domain(columns: Sequence[ClusteringColumn]) -> DomainMetadata:
    """Return the action that makes `columns` the clustering columns; none clears them.

    The text is the reference engine's, byte for byte; it cannot read the flat form.
    """
    document = _WrittenDomain(clustering_columns=[column.physical for column in columns])
    configuration = msgspec.json.encode(document).decode()
    return DomainMetadata(domain=CLUSTERING_DOMAIN, configuration=configuration, removed=False)


def clustering_state(snapshot: Snapshot) -> ClusteringState:
    """Return the clustering columns of a table.

    A domain without the feature counts for nothing, and a missing domain means no columns.

    Raises:
        CorruptLogError: If the domain's configuration cannot be read.
    """
    clustered = is_clustered(snapshot.protocol)
    domain = snapshot.domains.get(CLUSTERING_DOMAIN)
    if not clustered or domain is None or domain.removed:
        return ClusteringState(columns=(), unresolved=(), clustered=clustered)
    columns: list[ClusteringColumn] = []
    unresolved: list[Path] = []
    for path in read_domain(domain.configuration):
        column = _resolve(snapshot.schema, path)
        if column is None:
            unresolved.append(path)
        else:
            columns.append(column)
    return ClusteringState(columns=tuple(columns), unresolved=tuple(unresolved), clustered=True)


def unresolved_problem(path: Path) -> str:
    """Return the sentence about a path of the domain that the schema does not have."""
    return (
        f"the table is clustered by {quote_path(path)} (physical name), which its schema no longer"
        " has; set its clustering columns anew with cluster-by, or clear them with"
        " cluster-by --none"
    )


def _resolve(schema: StructType, path: Path) -> ClusteringColumn | None:
    found = find_column(schema, path, physical=True)
    if found is None and len(path) == 1 and "." in path[0]:
        # A nested column in the flat form: its parts are joined by dots.
        return _resolve(schema, tuple(path[0].split(".")))
    if found is None or isinstance(found.data_type, StructType):
        return None
    logical, physical = resolve_path(schema, path, physical=True)
    return ClusteringColumn(logical, physical, found.data_type)
