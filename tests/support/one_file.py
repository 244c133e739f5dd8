"""A table of one file, or some, whose bounds predicates are held against."""

from liquidlog.predicates.matching import may_match
from liquidlog.spec.schema import DecimalType, PrimitiveType, StructField, StructType
from support.snapshots import FileSpec, bounds_of, snapshot_of

SCHEMA = StructType(
    (
        StructField("i", PrimitiveType("integer")),
        StructField("f", PrimitiveType("double")),
        StructField("n", DecimalType(38, 2)),
        StructField("s", PrimitiveType("string")),
        StructField("d", PrimitiveType("date")),
        StructField("t", PrimitiveType("timestamp")),
        StructField("z", PrimitiveType("timestamp_ntz")),
        StructField("flag", PrimitiveType("boolean")),
        StructField("a.b", PrimitiveType("integer")),
        StructField(
            "c", PrimitiveType("string"), metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}
        ),
        StructField("st", StructType((StructField("x", PrimitiveType("long")),))),
    )
)
LOW = {
    "i": (1, 5),
    "f": (0.5, 1.5),
    "n": (1.25, 2.5),
    "s": ("bar", "foo"),
    "d": ("2024-01-01", "2024-01-31"),
    "t": ("2024-01-01T00:00:00.000Z", "2024-01-01T12:00:00.000Z"),
    "z": ("2024-01-01T00:00:00.000", "2024-01-01T12:00:00.000"),
    "a.b": (1, 1),
    "c": ("a  ", "a  "),
}
ONE = [FileSpec(path="1", bounds=LOW)]


def matches(predicate: str, *files: FileSpec) -> list[bool]:
    snapshot = snapshot_of(files or ONE, schema=SCHEMA)
    found: list[bool] = may_match(snapshot, predicate, bounds_of(snapshot)).to_pylist()
    return found
