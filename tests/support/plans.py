"""Plans built by hand over Parquet files in a directory."""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import structs

from liquidlog.clustering.planner import Reconcilable, Staleness, staleness_of
from liquidlog.commit import ReadSet, WinnerConflict, Winners
from liquidlog.plan import (
    ClusteringPlan,
    ClusteringPolicy,
    InputFile,
    InputFiles,
    PlannedColumn,
    RewriteGroup,
    RewriteMode,
    RewrittenGroup,
    SkippedFiles,
    WriterOptions,
    WrittenFile,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import Commit
from liquidlog.spec.schema import StructType, leaves, parse_schema


def write_inputs(
    directory: Path, table: pa.Table, files: int, *, row_group_rows: int = 500
) -> tuple[InputFile, ...]:
    """Write the rows as `files` Parquet files and return them as inputs of a plan."""
    directory.mkdir(parents=True, exist_ok=True)
    inputs = []
    for number in range(files):
        start, stop = number * len(table) // files, (number + 1) * len(table) // files
        path = directory / f"input {number}.parquet"
        pq.write_table(table.slice(start, stop - start), path, row_group_size=row_group_rows)
        inputs.append(InputFile(path=path.name, size_bytes=path.stat().st_size))
    return tuple(inputs)


def copy_inputs(directory: Path, inputs: Sequence[InputFile], name: str) -> tuple[InputFile, ...]:
    """Return inputs with the same content as others, in a directory `name` below the table."""
    (directory / name).mkdir()
    for file in inputs:
        shutil.copy(directory / file.path, directory / name)
    return tuple(structs.replace(file, path=f"{name}/{file.path}") for file in inputs)


def make_plan(
    directory: Path,
    schema_string: str,
    groups: Sequence[tuple[tuple[InputFile, ...], int]],
    *,
    columns: Sequence[tuple[str, ...]] = (),
    mode: RewriteMode = RewriteMode.CLUSTERING,
    curve: str = "hilbert",
) -> ClusteringPlan:
    """Return a plan; a group is (inputs, expected outputs)."""
    schema = parse_schema(schema_string, where="test")
    return ClusteringPlan(
        plan_id="plan-1",
        table_uri=str(directory),
        table_id="table-1",
        read_version=0,
        strategy="cube",
        mode=mode,
        policy=ClusteringPolicy(curve=curve),
        columns=tuple(PlannedColumn(logical=path, physical=path) for path in columns),
        schema_string=schema_string,
        writer_options=WriterOptions(indexed=tuple(leaf.physical for leaf in leaves(schema))),
        groups=tuple(
            RewriteGroup(
                group_id=number,
                zcube_id=f"cube-{number}",
                inputs=InputFiles.of(inputs),
                expected_outputs=outputs,
            )
            for number, (inputs, outputs) in enumerate(groups)
        ),
        skipped=SkippedFiles.of(),
    )


def schema_json_of(columns: Mapping[str, object]) -> str:
    """Return the protocol's JSON of a schema of nullable columns, types as the protocol's."""
    return json.dumps({"type": "struct", "fields": _fields(columns)})


STRUCT: Final = {"X": "long", "y": "boolean"}
ARRAY: Final = {"type": "array", "elementType": "long", "containsNull": True}


def schema_of(**columns: object) -> StructType:
    """Return a schema of nullable columns, types as the protocol's or as STRUCT has them."""
    return parse_schema(schema_json_of(columns), where="test")


def read_outputs(directory: Path, group: RewrittenGroup) -> list[pa.Table]:
    """Return the rows of each output in the order of their file names."""
    return [pq.read_table(directory / output.path) for output in group.outputs]


def rows_of(tables: Sequence[pa.Table]) -> list[str]:
    """Return all rows, printed and sorted: equal lists are equal multisets, NaN included."""
    return sorted(repr(sorted(row.items())) for table in tables for row in table.to_pylist())


def parquet_names(directory: Path) -> set[str]:
    """Return the names of all Parquet files in a directory."""
    return {path.name for path in directory.glob("*.parquet")}


def _fields(columns: Mapping[str, object]) -> list[dict[str, object]]:
    return [
        {
            "name": name,
            "type": {"type": "struct", "fields": _fields(kind)}
            if isinstance(kind, Mapping) and "type" not in kind
            else kind,
            "nullable": True,
            "metadata": {},
        }
        for name, kind in columns.items()
    ]


# What stands in the way of a commit: of a whole list of winners, and of one group


def check_conflicts(read_set: ReadSet, winners: Iterable[Commit]) -> tuple[WinnerConflict, ...]:
    """Return every conflict with commits, in order, that landed after `read_set.version`."""
    known = Winners(read_set.version, read_set.terms)
    known.take(winners)
    return known.conflicts(read_set)


def staleness(
    snapshot: Snapshot,
    plan: ClusteringPlan,
    group: RewriteGroup,
    reconcilable: Reconcilable | None = None,
) -> Staleness:
    """Return every reason why `group` cannot be committed on top of `snapshot`."""
    return staleness_of(snapshot, plan, [group], reconcilable)[0]


def output(path: str = "new file", **fields: Any) -> WrittenFile:
    """Return facts about a file of 12 rows, or as the fields say."""
    facts = {
        "path": path,
        "size_bytes": 90,
        "modification_time_ms": 3,
        "num_records": 12,
        "stats": '{"numRecords":12,"nullCount":{"x":0}}',
        **fields,
    }
    return WrittenFile(**facts)


def finished(**fields: Any) -> RewrittenGroup:
    """Return the first group of a plan made by `planned`, with one output of all its rows."""
    facts = {
        "plan_id": "new-0",
        "run": "0" * 12,
        "group_id": 0,
        "outputs": (output(),),
        "rows_read": 12,
        "rows_written": 12,
        "checksum_read": "a" * 32,
        "checksum_written": "a" * 32,
        "seconds": 1.0,
        **fields,
    }
    return RewrittenGroup(**facts)
