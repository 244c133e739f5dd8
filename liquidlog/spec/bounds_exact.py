"""Raw statistics JSON to columns of typed bounds, file by file and value by value.

Slow and exact: for the few files whose statistics the columnar reader, `bounds_json`, refuses
because they are malformed or hold values of another type. The JSON of each file is decoded once
by a decoder generated for the asked leaves; their raw values are then converted column by
column, so that a value of the wrong type costs one bound.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.spec.bounds import (
    MAX_VALUES,
    MIN_VALUES,
    NULL_COUNT,
    NUM_RECORDS,
    Bounds,
    column_bounds,
)
from liquidlog.spec.schema import Leaf, Path

_ABSENT: Final = frozenset({b"", b"null"})

_RawColumn = list[bytes | None]

NameTree = dict[str, "NameTree"]
"""Nested names; a leaf has no names below it."""


def exact_bounds(stats: pa.Array, columns: Sequence[Leaf]) -> Bounds:
    """Return the bounds that `parse_bounds` promises, for each of `stats` (JSON strings)."""
    tree = name_tree(leaf.physical for leaf in columns)
    documents = _decode(stats, tree)

    def values(path: Path, section: str, wanted: pa.DataType) -> pa.Array:
        return _typed(_raw_values(documents, tree, section, path), wanted)

    records = [None if document is None else document.numRecords for document in documents]
    return Bounds(
        columns=tuple(column_bounds(leaf, partial(values, leaf.physical)) for leaf in columns),
        num_records=_typed(_present(records), pa.int64()),
    )


def name_tree(paths: Iterable[Path]) -> NameTree:
    """Return the nested names of leaves by their paths."""
    tree: NameTree = {}
    for path in paths:
        node = tree
        for part in path:
            node = node.setdefault(part, {})
    return tree


def _node_type(tree: NameTree) -> Any:  # noqa: ANN401  a generated type
    """Return a struct type with one field per name, leaves kept as raw JSON."""
    if not tree:
        return msgspec.Raw
    fields = []
    for position, below in enumerate(tree.values()):
        default = None if below else msgspec.Raw(b"")
        kind = _node_type(below)
        fields.append((f"f{position}", kind | None if below else kind, default))
    names = {f"f{position}": name for position, name in enumerate(tree)}
    return msgspec.defstruct("Node", fields, rename=names, gc=False)


def _decode(stats: pa.Array | pa.ChunkedArray, tree: NameTree) -> list[Any]:
    """Return one decoded document per file, None where the JSON is absent or malformed."""
    section = _node_type(tree) if tree else dict[str, msgspec.Raw]
    fields: list[tuple[str, Any, Any]] = [(NUM_RECORDS, msgspec.Raw, msgspec.Raw(b""))]
    fields += [(name, section | None, None) for name in (MIN_VALUES, MAX_VALUES, NULL_COUNT)]
    decode = msgspec.json.Decoder(msgspec.defstruct("Document", fields, gc=False)).decode

    def decoded(text: str | None) -> Any:  # noqa: ANN401  a generated type
        try:
            return decode(text) if text else None
        except (msgspec.MsgspecError, RecursionError):
            return None

    return [decoded(text) for text in stats.to_pylist()]


def _raw_values(documents: list[Any], tree: NameTree, section: str, path: Path) -> _RawColumn:
    nodes = [None if document is None else getattr(document, section) for document in documents]
    for part in path:
        name = f"f{list(tree).index(part)}"
        nodes = [None if node is None else getattr(node, name) for node in nodes]
        tree = tree[part]
    return _present(nodes)


def _present(values: Iterable[Any]) -> _RawColumn:
    raw = (b"" if value is None else bytes(value) for value in values)
    return [None if value in _ABSENT else value for value in raw]


def _typed(raw: _RawColumn, wanted: pa.DataType) -> pa.Array:
    """Return the values as `wanted`, null where a value is not of it."""
    convert = _strings if wanted == pa.string() else _scalars
    try:
        return convert(raw, wanted)
    except (pa.ArrowInvalid, msgspec.MsgspecError):
        return pa.concat_arrays([_typed_one(convert, value, wanted) for value in raw])


def _typed_one(
    convert: Callable[[_RawColumn, pa.DataType], pa.Array],
    value: bytes | None,
    wanted: pa.DataType,
) -> pa.Array:
    try:
        return convert([value], wanted)
    except (pa.ArrowInvalid, msgspec.MsgspecError):
        return pa.nulls(1, wanted)


def _strings(raw: _RawColumn, wanted: pa.DataType) -> pa.Array:
    document = b"[" + b",".join(value or b"null" for value in raw) + b"]"
    return pa.array(msgspec.json.decode(document, type=list[str | None]), wanted)


def _scalars(raw: _RawColumn, wanted: pa.DataType) -> pa.Array:
    text = pc.cast(pa.array(raw, pa.binary()), pa.string())
    return pc.cast(pc.utf8_trim(text, characters='"'), wanted)
