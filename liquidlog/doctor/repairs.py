"""Repairs of a table without rewriting data: changes of its clustering domain and of files' adds.

A repair adds a file again with the same content and `dataChange` false, so that streams ignore it;
all other fields of its add stay unchanged.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec
import pyarrow as pa

from liquidlog.clustering.columns import ClusteringColumn, clustering_domain
from liquidlog.doctor.findings import BROKEN_DOMAIN
from liquidlog.snapshot import decoded_paths
from liquidlog.spec.actions import Change, CopiedAdd
from liquidlog.spec.bounds import FileStatistics, encode_stats

OPERATION: Final = "REPAIR"

NOTHING_LEFT: Final = Change(operation=OPERATION, parameters={}, actions=())
"""No repair: other commits have meanwhile removed every file to repair."""

_SECTIONS: Final = ("minValues", "maxValues", "nullCount")
_NUM_RECORDS: Final = "numRecords"
_TIGHT: Final = "tightBounds"

_decoder = msgspec.json.Decoder(float_hook=Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")

Document = dict[str, Any]


def domain_repair(columns: Sequence[ClusteringColumn]) -> Change:
    """Return the change that replaces a broken domain, by an empty one without columns."""
    return Change(
        operation=OPERATION,
        parameters={
            "fix": BROKEN_DOMAIN,
            "newClusteringColumns": ",".join(column.name for column in columns),
        },
        actions=(clustering_domain(columns),),
    )


def files_repair(fix: str, adds: Sequence[CopiedAdd]) -> Change:
    """Return the change that adds files again, with other tags or statistics."""
    return Change(
        operation=OPERATION,
        parameters={"fix": fix},
        actions=tuple(adds),
        metrics={"numUpdatedFiles": str(len(adds))},
    )


def with_statistics(
    files: pa.Table,
    originals: Sequence[Mapping[str, msgspec.Raw]],
    found: Mapping[str, FileStatistics],
    *,
    replaces: bool,
    tight_bounds: bool,
) -> tuple[CopiedAdd, ...]:
    """Return the adds of changed `files` with more statistics from `found`, by decoded path.

    `replaces` says whether to replace statistics in the log, and `tight_bounds` whether the table's
    record if bounds are exact. As `found` covers physical rows, those of a file with deleted rows
    are not exact.
    """
    deleted = files["deletion_vector"].combine_chunks().is_valid().to_pylist()
    paths = (files["path"].to_pylist(), decoded_paths(files).to_pylist())
    adds = []
    for path, decoded, original, has_deleted in zip(*paths, originals, deleted, strict=True):
        statistics = found.get(decoded)
        if statistics is not None:
            tight = False if has_deleted else True if tight_bounds else None
            known = msgspec.json.decode(original.get("stats", b"null"), type=str | None)
            stats = _completed(_document(known), statistics, tight=tight, replaces=replaces)
            if stats is not None:
                document = {
                    **original,
                    "dataChange": msgspec.Raw(b"false"),
                    "stats": _encoder.encode(stats).decode(),
                }
                adds.append(
                    CopiedAdd(path=path, document=msgspec.Raw(msgspec.json.encode(document)))
                )
    return tuple(adds)


def _completed(
    before: Document, statistics: FileStatistics, *, tight: bool | None, replaces: bool
) -> Document | None:
    """Return statistics completed by others, None if that changes nothing."""
    computed = _decoder.decode(encode_stats(statistics))
    rows = before.get(_NUM_RECORDS)
    after = {**before, _NUM_RECORDS: computed[_NUM_RECORDS] if rows is None else rows}
    for name in _SECTIONS:
        section = _filled(before.get(name), computed[name], replaces=replaces)
        after |= {name: section} if section or name in before else {}
    if after == before:
        return None
    if tight is False or (tight and not any(before.get(name) for name in _SECTIONS)):
        after[_TIGHT] = tight
    return after


def _document(text: str | None) -> Document:
    """Return statistics in the log, an empty document if they are not a JSON object."""
    try:
        found = _decoder.decode(text) if text else {}
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _filled(before: object, computed: Document, *, replaces: bool) -> Document:
    """Return a part of statistics with computed values for missing ones, or for all of them."""
    filled = dict(before) if isinstance(before, dict) else {}
    for name, value in computed.items():
        known = filled.get(name)
        if isinstance(value, dict):
            filled[name] = _filled(known, value, replaces=replaces)
        elif known is None or replaces:
            filled[name] = value
    return filled
