"""Compare everything in a checkpoint with the log.

Only differences that no reader can see are allowed: the order of keys in tags and partition values,
and null or an empty map for a file without tags.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from liquidlog.log.checkpoints import CheckpointState
from liquidlog.log.replay import file_keys
from liquidlog.snapshot import Snapshot, decoded_paths
from liquidlog.spec.actions import FileKey, Metadata, Protocol
from liquidlog.spec.arrow import one_array

_COMPARED: Final = (
    "path",
    "size",
    "modification_time",
    "num_records",
    "clustering_provider",
    "deletion_vector",
    "base_row_id",
    "default_row_commit_version",
)
_MAPS: Final = ("partition_values_json", "tags_json")


def state_differences(expected: Snapshot, found: CheckpointState, files: pa.Table) -> list[str]:
    """Return what differs in a checkpoint, whose files are `files` in the snapshot's order."""
    differences = list(_table_differences(expected, found))
    if files.num_rows != expected.files.num_rows:
        counts = f"{files.num_rows} live files instead of {expected.files.num_rows}"
        return [*differences, counts]
    other = [
        name
        for names, compared in ((_COMPARED, _plain), (_MAPS, _canonical))
        for name in names
        if not compared(files[name]).equals(compared(expected.files[name]))
    ]
    return [*differences, *(f"the {name} of some live file" for name in other)]


def statistics_differences(
    expected: pa.ChunkedArray, found: pa.ChunkedArray, *, as_text: bool
) -> list[str]:
    """Return what differs between two arrays of live files' statistics, JSON in the same order.

    A table may keep no statistics as text; then those of the checkpoint may be null.
    """
    same = pc.fill_null(pc.equal(expected, found), fill_value=False)
    neither = pc.and_(expected.is_null(), found.is_null())
    other = pc.invert(pc.or_(same, neither))
    pairs = zip(expected.filter(other).to_pylist(), found.filter(other).to_pylist(), strict=True)
    for before, after in pairs:
        if before is None or (after is None and not as_text):
            continue
        if after is None or _value(before) != _value(after):
            return ["the statistics of some live file"]
    return []


def tombstone_differences(
    expected: frozenset[FileKey], found: frozenset[FileKey], live: pa.Table
) -> list[str]:
    """Return which tombstones are missing, and how many of the `live` files are tombstones."""
    missing = len(expected - found)
    suspects = live.filter(
        pc.is_in(decoded_paths(live), pa.array({path for path, _ in found}, pa.string()))
    )
    revived = found.intersection(file_keys(suspects))
    lost = [f"{missing} of {len(expected)} tombstones are missing"] if missing else []
    return lost + ([f"{len(revived)} live files are tombstones"] if revived else [])


def _table_differences(expected: Snapshot, found: CheckpointState) -> Iterator[str]:
    if found.protocol is None or _protocol(found.protocol) != _protocol(expected.protocol):
        yield "the protocol"
    if found.metadata is None or _metadata(found.metadata) != _metadata(expected.metadata):
        yield "the metadata"
    if dict(found.domains) != dict(expected.domains):
        yield "the domains"
    if dict(found.transactions) != dict(expected.transactions):
        yield "the transaction identifiers"


def _protocol(protocol: Protocol) -> tuple[object, ...]:
    return (
        protocol.min_reader_version,
        protocol.min_writer_version,
        frozenset(protocol.reader_features or ()),
        frozenset(protocol.writer_features or ()),
    )


def _metadata(metadata: Metadata) -> Metadata:
    """Return the metadata with an empty mapping of options in place of none."""
    options = dict(metadata.format.options or {})
    return structs.replace(metadata, format=structs.replace(metadata.format, options=options))


def _plain(column: pa.ChunkedArray) -> pa.Array:
    values = one_array(column)
    return pc.cast(values, pa.string()) if pa.types.is_dictionary(values.type) else values


def _canonical(column: pa.ChunkedArray) -> pa.Array:
    """Return JSON objects with sorted keys, {} for null; each distinct text is decoded once."""
    values = one_array(column)
    kinds = [_sorted(text) for text in values.dictionary.to_pylist()]
    texts = pa.array(kinds, pa.string()).take(values.indices)
    return pc.fill_null(texts, "{}")


def _sorted(text: str) -> str:
    return msgspec.json.encode(msgspec.json.decode(text), order="sorted").decode()


def _value(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
