"""Whether the outputs of a group are of the partition that its inputs are in."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liquidlog.plan import ClusteringPlan, RewriteGroup, RewrittenGroup
from liquidlog.predicates.partitions import distinct_values
from liquidlog.snapshot import Snapshot
from liquidlog.spec.partition_values import in_zone
from liquidlog.spec.partitions import same_value


def partition_mismatches(
    plan: ClusteringPlan, planned: RewriteGroup, group: RewrittenGroup
) -> Iterator[str]:
    """Yield why a finished group's outputs are not those of the planned group's partition."""
    found = group.partition_values or {}
    if found != planned.partition_values:
        yield (
            f"the outputs of group {group.group_id} have the partition values {found}, expected"
            f" {planned.partition_values}"
        )
    if set(planned.partition_values) != set(plan.partitioned_by):
        listed = ", ".join(plan.partitioned_by) or "none"
        yield f"group {group.group_id} has values of other partition columns than {listed}"


def partition_changes(
    snapshot: Snapshot, group: RewriteGroup, inputs: NDArray[np.int64]
) -> Iterator[str]:
    """Yield a sentence if inputs are in another partition than the group's outputs will be.

    `inputs` (int64) are their row numbers in Snapshot.files. Values are compared typed.
    """
    kinds = {field.physical_name: field.data_type for field in snapshot.schema.fields}
    if not group.partition_values or group.partition_values.keys() - kinds.keys():
        return  # other partition columns are a change of the table, which is found elsewhere
    for document in distinct_values(snapshot.files.take(pa.array(inputs))).documents:
        if any(
            same_value(document.get(name), kinds[name]) != same_value(text, kinds[name])
            for name, text in group.partition_values.items()
        ):
            yield (
                f"inputs of group {group.group_id} have the partition values {document}, expected"
                f" {group.partition_values}"
            )
            return


def value_changes(
    snapshot: Snapshot,
    group: RewriteGroup,
    positions: NDArray[np.int64],
    is_changed: NDArray[np.bool_],
    time_zone: str,
) -> Iterator[str]:
    """Yield a sentence if inputs have other partition values than those that outputs hold.

    Args:
        snapshot: The table now.
        group: Of a plan that turns partition columns into data, or of any other.
        positions: The row number of each input in Snapshot.files (int64), -1 if it is not live.
        is_changed: Which inputs are live as something else.
        time_zone: That of timestamps which name none, for the plan.
    """
    values = group.inputs.columns["partition_values"]
    if values.null_count == len(values):
        return
    there = (positions >= 0) & ~is_changed
    planned = values.filter(pa.array(there)).to_pylist(maps_as_pydicts="strict")
    found = distinct_values(snapshot.files.take(pa.array(positions[there])))
    documents = [in_zone(one, snapshot.schema.fields, time_zone) for one in found.documents]
    for number, expected in zip(found.number.tolist(), planned, strict=True):
        if documents[number] != expected:
            yield (
                f"inputs of group {group.group_id} have the partition values"
                f" {documents[number]}, expected {expected}"
            )
            return
