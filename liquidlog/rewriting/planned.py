"""What the executor takes from a plan: where its files are, its curve; and what it refuses."""

from functools import partial

from liquidlog.curve.curves import Curve, parse_curve
from liquidlog.data import vectors
from liquidlog.errors import DataFileError, ExecutorError, LiquidlogError, UsageError
from liquidlog.plan import ClusteringPlan, InputFile, RewriteGroup, RewriteMode, parsed_as
from liquidlog.spec.arrow import arrow_type
from liquidlog.spec.partitions import is_safe_directory
from liquidlog.spec.schema import leaves, parse_schema
from liquidlog.storage.addresses import file_address


def file_location(table_uri: str, path: str) -> str:
    """Return where a table or one of its files is: a local path or a URI.

    Args:
        table_uri: A plain path or a URI.
        path: Relative to the table, or absolute, or a URI; decoded. "" for the table.
    """
    try:
        return file_address(table_uri, path)
    except UsageError as error:
        raise ExecutorError(str(error)) from error


def curve_of(plan: ClusteringPlan) -> Curve | None:
    """Return the curve by which rows are sorted, None for a compaction."""
    if plan.mode is RewriteMode.COMPACTION:
        return None
    if not plan.columns:
        raise ExecutorError(f"a plan of mode {plan.mode} names no columns to sort by")
    try:
        return parse_curve(plan.curve)
    except UsageError as error:
        raise ExecutorError(str(error)) from error


def require_layout(plan: ClusteringPlan) -> None:
    """Refuse a prefix or constants of readers that do not fit the plan's columns."""
    try:
        numbers = plan.prefix
        if len(set(numbers)) < len(numbers):
            raise ExecutorError("the plan's prefix names a column twice")
        if plan.readers is not None:
            schema = parse_schema(plan.schema_string, where="the plan")
            known = {leaf.physical: leaf.data_type for leaf in leaves(schema)}
            kinds = [arrow_type(known[column.physical]) for column in plan.columns]
            plan.readers.conditions([partial(parsed_as, kind) for kind in kinds])
    except LiquidlogError as error:
        raise ExecutorError(error.message) from error
    except (ValueError, OverflowError, KeyError) as error:
        raise ExecutorError(f"the plan's fitted workload is not valid: {error}") from error


def require_partition(plan: ClusteringPlan, group: RewriteGroup) -> None:
    """Refuse partition values of other columns than the plan's, and a directory of other files."""
    if set(group.partition_values) != set(plan.partitioned_by):
        listed = ", ".join(plan.partitioned_by) or "none"
        raise ExecutorError(
            f"group {group.group_id} has values of other partition columns than the plan: {listed}"
        )
    if group.directory and not is_safe_directory(group.directory):
        raise ExecutorError(
            f"{group.directory!r} is no directory of data files of the table; plan again"
        )


def vector_location(table_uri: str, file: InputFile) -> str | None:
    """Return where an input's deletion vector is, None if it has none or the plan holds it."""
    try:
        return vectors.vector_location(table_uri, file)
    except DataFileError as error:
        raise ExecutorError(error.message) from error
