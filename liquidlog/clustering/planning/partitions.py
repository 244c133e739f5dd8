"""The partitions of a table's live files: which files are rewritten together, and where to.

Files of two partitions are never in one group. Values are compared as the reference engine compares
them, typed: `07` and `7` are one partition of an integer column.

Source: Delta Spark, OptimizeExecutor.optimize and AddFile.normalizedPartitionValues.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from liquidlog.clustering.settings import partition_time_zone
from liquidlog.errors import CorruptLogError
from liquidlog.snapshot import Snapshot, distinct_values
from liquidlog.spec.bounds import BoundsOf, Mask
from liquidlog.spec.partitions import PartitionTexts, output_directory, partition_fields, same_value
from liquidlog.spec.schema import StructField


@dataclass(frozen=True, slots=True, eq=False)
class Partitions:
    """The partition of each live file: `number` (int64) counts them, `values` are theirs.

    `columns` are the physical names of the partition columns, in the table's order.
    A table without partition columns is one partition without values.
    """

    number: NDArray[np.int64]
    values: tuple[PartitionTexts, ...]
    columns: tuple[str, ...] = ()

    def of(self, files: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Yield those of some files that are in one partition, in their order."""
        numbers = self.number[files]
        order = np.argsort(numbers, kind="stable")
        ends = np.flatnonzero(np.diff(numbers[order])) + 1
        yield from (part for part in np.split(files[order], ends) if len(part))

    def values_of(self, file: int) -> dict[str, str | None]:
        """Return the partition values of a file as the outputs of its group get them."""
        return dict(self.values[int(self.number[file])])


def partitions_of(snapshot: Snapshot) -> Partitions:
    """Return the partitions of the live files, each with the values that one of its files has."""
    fields = partition_fields(
        snapshot.schema, snapshot.metadata.partition_columns, where=snapshot.uri
    )
    if not fields:
        return Partitions(np.zeros(snapshot.files.num_rows, np.int64), ({},))
    found = distinct_values(snapshot.files)
    _require_columns(snapshot, fields, found.documents)
    numbers: dict[tuple[str | None, ...], int] = {}
    values: list[PartitionTexts] = []
    places = np.zeros(len(found.documents), np.int64)
    for place, document in enumerate(found.documents):
        typed = tuple(same_value(document[f.physical_name], f.data_type) for f in fields)
        number = numbers.setdefault(typed, len(values))
        if number == len(values):
            values.append({f.physical_name: document[f.physical_name] for f in fields})
        places[place] = number
    columns = tuple(field.physical_name for field in fields)
    return Partitions(places[found.number], tuple(values), columns)


def _require_columns(
    snapshot: Snapshot, fields: tuple[StructField, ...], documents: tuple[PartitionTexts, ...]
) -> None:
    expected = {field.physical_name for field in fields}
    for document in documents:
        if set(document) != expected:
            found = ", ".join(sorted(document)) or "no column"
            raise CorruptLogError(
                snapshot.uri,
                f"files have partition values of {found}, expected values of"
                f" {', '.join(sorted(expected))}",
            )


def directory_of(snapshot: Snapshot, values: PartitionTexts, unique_id: str) -> str:
    """Return where outputs of a partition are written; see `output_directory`."""
    return output_directory(snapshot.metadata.configuration, values, unique_id)


def asked_for(snapshot: Snapshot, where: str | None, bounds_of: BoundsOf) -> Mask:
    """Return a mask of the files whose partition values satisfy a condition; all without one.

    Times without a zone are of the zone that the table remembers for partition values.
    """
    if where is None:
        return np.ones(snapshot.files.num_rows, np.bool_)
    # The SQL parser takes a third of a command's start; most plans have no predicate.
    from liquidlog.predicates.exact import matching_partitions

    return matching_partitions(snapshot, where, bounds_of, partition_time_zone(snapshot))
