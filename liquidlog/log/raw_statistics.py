"""Statistics of chosen live files as the protocol's JSON.

Source: PROTOCOL.md, "Per-file Statistics", "Checkpoint Schema" (`stats`, `stats_parsed`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.log.adds import check_all, read_statistics, struct_field
from liquidlog.log.store import TableStore
from liquidlog.snapshot import STATISTICS_TYPE, CheckpointFile, Snapshot, Statistics
from liquidlog.spec.arrow import one_array
from liquidlog.spec.scalars import json_scalar
from liquidlog.spec.schema import Path

_FIELDS: Final[tuple[Path, ...]] = (("path",), ("stats",), ("stats_parsed",))
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


def raw_statistics(store: TableStore, snapshot: Snapshot, files: pa.Table) -> Sequence[str | None]:
    """Return the statistics of `files`, which are some of the snapshot's; None if a file has none.

    Texts are those of the log; structs of a checkpoint that has no texts are rendered.
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
    """Return the statistics texts of all `files` as they stand in the log, null without a text."""
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
        for part in read_statistics(
            store, file, _FIELDS, lambda adds: _texts(adds.filter(_chosen(adds, paths)))
        ):
            found.update(zip(part["path"].to_pylist(), part["text"].to_pylist(), strict=True))
    return found


def _chosen(adds: pa.StructArray, paths: pa.Array) -> pa.Array:
    return pc.is_in(struct_field(adds, "path", pa.string()), value_set=paths)


def _texts(adds: pa.StructArray) -> pa.Table:
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
