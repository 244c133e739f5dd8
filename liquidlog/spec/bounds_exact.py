"""Raw statistics JSON to columns of typed bounds, file by file and value by value.

Slow and exact: for the few files whose statistics the columnar reader of `bounds` does not take,
because they are malformed or hold values of another type. The JSON of each file is decoded once
by a decoder generated for the asked leaves; their raw values are then converted column by
column, so that a value of the wrong type costs one bound.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.spec.arrow import arrow_type, unsupported_types
from liquidlog.spec.schema import Leaf, Path, PrimitiveType, StructField, StructType

SECTIONS: Final = (("min", "minValues"), ("max", "maxValues"), ("null_count", "nullCount"))
"""Prefix of the columns of bounds, and the key of the statistics they come from."""

_ABSENT: Final = frozenset({b"", b"null"})
_NEVER_SHOWN: Final = (PrimitiveType("variant"), PrimitiveType("void"))

_RawColumn = list[bytes | None]

NameTree = dict[str, "NameTree"]
"""Nested names; a leaf has no names below it."""


def exact_columns(stats: pa.Array, columns: Sequence[tuple[Leaf, bool]]) -> pa.Table:
    """Return the table that parse_bounds promises, but maxima are not raised.

    The flag of a column says if its type has bounds.
    """
    tree = name_tree(leaf.physical for leaf, _ in columns)
    documents = _decode(stats, tree)
    found: dict[str, pa.Array] = {}
    for number, (leaf, bounded) in enumerate(columns):
        for name, section in SECTIONS:
            raw = _raw_values(documents, tree, section, leaf.physical)
            if name == "null_count":
                found[f"{name}.{number}"] = _typed(raw, pa.int64())
            elif bounded:
                found[f"{name}.{number}"] = _typed(raw, arrow_type(leaf.data_type))
            else:
                found[f"{name}.{number}"] = pa.nulls(len(raw), type_without_bounds(leaf))
    records = [None if document is None else document.numRecords for document in documents]
    found["num_records"] = _typed(_present(records), pa.int64())
    return pa.table(found)


def type_without_bounds(leaf: Leaf) -> pa.DataType:
    """Return the type of the empty columns of a leaf whose type has no bounds."""
    alone = StructType((StructField(leaf.logical[-1], leaf.data_type),))
    shown = leaf.data_type not in _NEVER_SHOWN and not unsupported_types(alone)
    return arrow_type(leaf.data_type) if shown else pa.null()


def name_tree(paths: Iterable[Path]) -> NameTree:
    """Return the nested names of the leaves; a leaf has no names below it."""
    tree: NameTree = {}
    for path in paths:
        node = tree
        for part in path:
            node = node.setdefault(part, {})
    return tree


def _node_type(tree: NameTree) -> Any:  # noqa: ANN401  a generated type
    """Return a struct type with one field a name, leaves kept as raw JSON."""
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
    """Return one decoded document a file, None where the JSON is absent or malformed."""
    section = _node_type(tree) if tree else dict[str, msgspec.Raw]
    fields: list[tuple[str, Any, Any]] = [("numRecords", msgspec.Raw, msgspec.Raw(b""))]
    fields += [(name, section | None, None) for _, name in SECTIONS]
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
