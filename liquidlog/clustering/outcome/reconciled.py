"""A group's outputs without the rows that other commits deleted, and the proof that it is so.

Rows are counted here; that they are the same rows is proved where they are read (`data`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.clustering.outcome.deletions import deleted_rows
from liquidlog.clustering.outcome.staleness import Staleness
from liquidlog.errors import ResultMismatchError
from liquidlog.plan import RewrittenGroup, WrittenFile
from liquidlog.spec.actions import AddFile, DeletionVector


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOutput:
    """A file to commit of a group, and the vector of those of its rows that others deleted."""

    file: WrittenFile
    vector: DeletionVector | None = None

    @property
    def live_rows(self) -> int:
        """Rows of the file that its vector does not delete."""
        deleted = 0 if self.vector is None else self.vector.cardinality
        return self.file.num_records - deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """The outputs of a group without the `rows` that `versions` deleted of its inputs.

    An output of which no row is left is none of `outputs`. `files` is how many of the group's
    outputs had such rows; `bytes_read` and `seconds` are what it took to find and delete them.
    """

    outputs: tuple[CommittedOutput, ...]
    rows: int = 0
    files: int = 0
    bytes_read: int = 0
    seconds: float = 0.0
    versions: tuple[int, ...] = ()


def as_written(group: RewrittenGroup) -> Reconciled:
    """Return the outputs of a group of whose inputs nobody deleted rows."""
    return Reconciled(outputs=tuple(CommittedOutput(file=file) for file in group.outputs))


def require_reconciled(
    groups: Sequence[RewrittenGroup], stale: Sequence[Staleness], reconciled: Sequence[Reconciled]
) -> None:
    """Refuse outputs unless exactly as many rows are left in them as are live in the inputs."""
    problems = []
    for group, one, its in zip(groups, stale, reconciled, strict=True):
        expected = deleted_rows(one.deleted)
        left = sum(output.live_rows for output in its.outputs)
        if expected != its.rows or left != group.rows_written - its.rows:
            problems.append(
                f"other commits deleted {expected} rows of the inputs of group {group.group_id};"
                f" of the {group.rows_written} rows written, {left} are left"
            )
            continue
        live = _live_rows(one)
        if live is not None and live != left:
            problems.append(
                f"the inputs of group {group.group_id} hold {live} live rows at version"
                f" {one.snapshot.version}, its outputs {left}"
            )
    if problems:
        raise ResultMismatchError(tuple(problems))


def _live_rows(stale: Staleness) -> int | None:
    """Return how many rows of a group's inputs are live now, None if the log does not say."""
    files = stale.snapshot.files.take(pa.array(stale.rows))
    rows = files["num_records"]
    if rows.null_count:
        return None
    deleted = pc.sum(pc.struct_field(files["deletion_vector"], "cardinality")).as_py() or 0
    return int(pc.sum(rows).as_py() or 0) - int(deleted)


def reconciled_metrics(adds: Sequence[AddFile], reconciled: Sequence[Reconciled]) -> dict[str, str]:
    """Return what a commit says of rows that others deleted, nothing if there were none."""
    rows = sum(one.rows for one in reconciled)
    if not rows:
        return {}
    versions = sorted({version for one in reconciled for version in one.versions})
    metrics = {
        "numDeletionVectorsAdded": sum(add.deletion_vector is not None for add in adds),
        "numReconciledRows": rows,
        "numReconciledFiles": sum(one.files for one in reconciled),
        "reconciledBytesRead": sum(one.bytes_read for one in reconciled),
        "reconcileTimeMs": round(1000 * sum(one.seconds for one in reconciled)),
        "reconciledVersions": ",".join(map(str, versions)),
    }
    return {name: str(value) for name, value in metrics.items()}
