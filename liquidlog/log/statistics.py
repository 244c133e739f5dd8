"""Bounds of the live files, read from the log on demand and only for the requested columns.

Source: PROTOCOL.md, "Per-file Statistics", "Checkpoint Schema" (`stats`, `stats_parsed`).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.errors import CorruptLogError, VersionNotFoundError
from liquidlog.log.checkpoints import check_all, read_statistics, struct_field
from liquidlog.log.store import TableStore
from liquidlog.snapshot import (
    STATISTICS_TYPE,
    CheckpointFile,
    Snapshot,
    Statistics,
    deletion_vector,
    num_records,
)
from liquidlog.spec.actions import AddFile, FileKey, decode_line, file_key
from liquidlog.spec.arrow import one_array
from liquidlog.spec.bounds import (
    MAX_VALUES,
    MIN_VALUES,
    NULL_COUNT,
    NUM_RECORDS,
    Bounds,
    ColumnBounds,
    cast_where_possible,
    column_bounds,
    concat_bounds,
    parse_bounds,
)
from liquidlog.spec.paths import commit_name, log_path
from liquidlog.spec.schema import Leaf, Path
from liquidlog.spec.text import json_scalar

_TEXT: Final = ("stats",)
_PARSED: Final = "stats_parsed"

_FEW_SHARE: Final = 0.1
"""Up to this share of all files, only the statistics of the wanted ones are parsed."""


def load_bounds(store: TableStore, snapshot: Snapshot, columns: Sequence[Leaf]) -> Bounds:
    """Return the bounds of `columns` per row of `snapshot.files`; JSON goes before structs."""
    if not columns:
        return Bounds(columns=(), num_records=num_records(snapshot.files))
    rows = one_array(snapshot.files["statistics_row"])
    statistics = snapshot.statistics
    if len(rows) <= _FEW_SHARE * statistics.rows:
        return _bounds_of_few(store, snapshot, rows, columns)
    parts = [
        part
        for file in statistics.checkpoint
        for _, part in _of_checkpoint_file(store, file, columns)
    ]
    parts.append(parse_bounds(statistics.texts, columns))
    return concat_bounds(parts).take(rows)


def _bounds_of_few(
    store: TableStore, snapshot: Snapshot, rows: pa.Array, columns: Sequence[Leaf]
) -> Bounds:
    statistics = snapshot.statistics
    first_text = sum(file.adds for file in statistics.checkpoint)
    paths = one_array(snapshot.files["path"])
    found = [
        part
        for file in statistics.checkpoint
        for part in _of_checkpoint_file(store, file, columns, paths)
    ]
    # If commits and a checkpoint have the same file, the commits' statistics count.
    texts = pc.less_equal(first_text, rows)
    from_texts = pc.subtract(rows.filter(texts), first_text)
    found.append((paths.filter(texts), parse_bounds(statistics.texts.take(from_texts), columns)))
    known = pa.chunked_array([names for names, _ in found][::-1], pa.string())
    last = pc.index_in(paths, value_set=known)
    return concat_bounds([part for _, part in found][::-1]).take(last)


def _of_checkpoint_file(
    store: TableStore, file: CheckpointFile, columns: Sequence[Leaf], paths: pa.Array | None = None
) -> list[tuple[pa.Array, Bounds]]:
    sections = [
        (_PARSED, section, *leaf.physical)
        for leaf in columns
        for section in (MIN_VALUES, MAX_VALUES, NULL_COUNT)
    ]
    fields = [_TEXT, (_PARSED, NUM_RECORDS), *sections, ("path",)]

    def convert(adds: pa.StructArray) -> tuple[int, pa.Array, Bounds]:
        names, count = struct_field(adds, "path", pa.string()), len(adds)
        if paths is not None:
            chosen = pc.is_in(names, value_set=paths)
            adds, names = adds.filter(chosen), names.filter(chosen)
        return count, names, _bounds(adds, columns)

    parts = read_statistics(store, file, fields, convert, of_few=paths is not None)
    check_all(file, sum(count for count, _, _ in parts))
    return [(names, bounds) for _, names, bounds in parts]


def _bounds(adds: pa.StructArray, columns: Sequence[Leaf]) -> Bounds:
    texts = struct_field(adds, *_TEXT, STATISTICS_TYPE)
    parsed = struct_field(adds, _PARSED, pa.null())
    if not pa.types.is_struct(parsed.type):
        return parse_bounds(texts, columns)
    structs = _struct_bounds(parsed, columns)
    if texts.null_count == len(texts):
        return structs
    return _where(texts.is_null(), structs, parse_bounds(texts, columns))


def _struct_bounds(parsed: pa.Array, columns: Sequence[Leaf]) -> Bounds:
    def values(path: Path, section: str, wanted: pa.DataType) -> pa.Array:
        return _at(parsed, (section, *path), wanted)

    return Bounds(
        columns=tuple(column_bounds(leaf, partial(values, leaf.physical)) for leaf in columns),
        num_records=_at(parsed, (NUM_RECORDS,), pa.int64()),
    )


def _where(mask: pa.Array, yes: Bounds, no: Bounds) -> Bounds:
    return Bounds(
        columns=tuple(
            ColumnBounds(
                low=pc.if_else(mask, one.low, other.low),
                high=pc.if_else(mask, one.high, other.high),
                null_count=pc.if_else(mask, one.null_count, other.null_count),
            )
            for one, other in zip(yes.columns, no.columns, strict=True)
        ),
        num_records=pc.if_else(mask, yes.num_records, no.num_records),
    )


def _at(value: pa.Array, path: Path, wanted: pa.DataType) -> pa.Array:
    for part in path:
        if not pa.types.is_struct(value.type) or value.type.get_field_index(part) < 0:
            return pa.nulls(len(value), wanted)
        value = pc.struct_field(value, part)
    return cast_where_possible(value, wanted)


# Statistics of chosen live files as the protocol's JSON
#
# Source: PROTOCOL.md, "Per-file Statistics", "Checkpoint Schema" (`stats`, `stats_parsed`).

_FIELDS: Final[tuple[Path, ...]] = (("path",), ("stats",), ("stats_parsed",))
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


def raw_statistics(store: TableStore, snapshot: Snapshot, files: pa.Table) -> Sequence[str | None]:
    """Return the statistics of some of the snapshot's files as JSON, None if a file has none.

    A text is returned as it stands in the log; a struct without a text is rendered.
    """
    first_text = sum(file.adds for file in snapshot.statistics.checkpoint)
    rows = one_array(files["statistics_row"])
    in_checkpoint = pc.less(rows, first_text)
    paths = one_array(files["path"])
    found = _by_path(store, snapshot, paths.filter(in_checkpoint))
    texts = snapshot.statistics.texts.take(
        pc.if_else(in_checkpoint, None, pc.subtract(rows, first_text))
    )
    columns = (paths.to_pylist(), in_checkpoint.to_pylist(), texts.to_pylist())
    return [found.get(path) if there else text for path, there, text in zip(*columns, strict=True)]


def statistics_texts(store: TableStore, statistics: Statistics, files: pa.Table) -> pa.ChunkedArray:
    """Return the statistics of all `files` as text of the log, null without a text."""
    parts = [_stored_texts(store, file) for file in statistics.checkpoint]
    texts = pa.chunked_array([*parts, *statistics.texts.chunks], STATISTICS_TYPE)
    return texts.take(files["statistics_row"])


def _stored_texts(store: TableStore, file: CheckpointFile) -> pa.Array:
    def texts(adds: pa.StructArray) -> pa.Array:
        return struct_field(adds, "stats", STATISTICS_TYPE)

    parts = read_statistics(store, file, [("path",), ("stats",)], texts)
    check_all(file, sum(len(part) for part in parts))
    return pa.chunked_array(parts, STATISTICS_TYPE).combine_chunks()


def _by_path(store: TableStore, snapshot: Snapshot, paths: pa.Array) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for file in snapshot.statistics.checkpoint if len(paths) else ():
        for part in read_statistics(store, file, _FIELDS, lambda adds: _texts(adds, paths)):
            found.update(zip(part["path"].to_pylist(), part["text"].to_pylist(), strict=True))
    return found


def _texts(adds: pa.StructArray, paths: pa.Array) -> pa.Table:
    adds = adds.filter(pc.is_in(struct_field(adds, "path", pa.string()), value_set=paths))
    texts = struct_field(adds, "stats", STATISTICS_TYPE)
    parsed = struct_field(adds, "stats_parsed", pa.null())
    if pa.types.is_struct(parsed.type):
        missing = pc.and_(texts.is_null(), parsed.is_valid())
        rendered = [rendered_statistics(row) for row in parsed.filter(missing).to_pylist()]
        texts = pc.replace_with_mask(texts, missing, pa.array(rendered, STATISTICS_TYPE))
    found = pa.table({"path": struct_field(adds, "path", pa.string()), "text": texts})
    return found.filter(texts.is_valid())


def rendered_statistics(parsed: Mapping[str, Any]) -> str:
    """Return a row of `stats_parsed` as JSON; decimals keep all digits, nulls are omitted."""
    return _ENCODER.encode(_present(parsed)).decode()


def _present(value: Any) -> Any:  # noqa: ANN401  any value of a statistics struct
    match value:
        case dict():
            return {key: _present(child) for key, child in value.items() if child is not None}
        case _:
            return json_scalar(value, timespec="milliseconds")


# The adds of live files as they stand in the log, with fields that this project does not know

_Document = dict[str, msgspec.Raw]


def original_adds(
    store: TableStore, snapshot: Snapshot, files: pa.Table
) -> Sequence[Mapping[str, msgspec.Raw]]:
    """Return the newest add of each file as raw JSON by field.

    The add of a file that only a checkpoint names has the protocol's fields alone.
    """
    rows = files.to_pylist()
    versions = sorted({row["version"] for row in rows if row["version"] is not None})
    found = {version: _adds(store, version) for version in versions}
    statistics = raw_statistics(store, snapshot, files)
    return [_original(row, found, text) for row, text in zip(rows, statistics, strict=True)]


def _original(
    row: Mapping[str, Any],
    commits: Mapping[int, Mapping[FileKey, _Document]],
    statistics: str | None,
) -> Mapping[str, msgspec.Raw]:
    version = row["version"]
    add = add_of(row, statistics)
    if version is None:
        return msgspec.json.decode(msgspec.json.encode(add), type=_Document)
    original = commits[version].get(file_key(add))
    if original is None:
        raise CorruptLogError(log_path(commit_name(version)), f"does not add {add.path} any more")
    return original


def _adds(store: TableStore, version: int) -> dict[FileKey, _Document]:
    content = store.read_log(commit_name(version))
    if content is None:
        raise VersionNotFoundError(version, version, version)
    adds = {}
    for line in content.split(b"\n"):
        if b'"add"' not in line:
            continue
        action = decode_line(line)
        if isinstance(action, AddFile):
            document = msgspec.json.decode(line, type=dict[str, msgspec.Raw])["add"]
            adds[file_key(action)] = msgspec.json.decode(document, type=_Document)
    return adds


def add_of(row: Mapping[str, Any], statistics: str | None = None) -> AddFile:
    """Return a row in FILES_SCHEMA as an add that changes no data."""
    return AddFile(
        path=row["path"],
        partition_values=msgspec.json.decode(row["partition_values_json"] or "{}"),
        size=row["size"],
        modification_time=row["modification_time"] or 0,
        data_change=False,
        stats=statistics,
        tags=msgspec.json.decode(row["tags_json"]) if row["tags_json"] else None,
        deletion_vector=deletion_vector(row["deletion_vector"]),
        base_row_id=row["base_row_id"],
        default_row_commit_version=row["default_row_commit_version"],
        clustering_provider=row["clustering_provider"],
    )
