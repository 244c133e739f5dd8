"""Schemas made of a few words."""

from liquidlog.spec.schema import StructType, parse_schema

STRUCT = (
    '{"type":"struct","fields":[{"name":"X","type":"long","nullable":true},'
    '{"name":"y","type":"boolean","nullable":true}]}'
)
ARRAY = '{"type":"array","elementType":"long","containsNull":true}'


def schema_of(**types: str) -> StructType:
    """Return a schema of columns by name; a type is a name or a type in JSON."""
    fields = ",".join(
        f'{{"name":"{name}","type":{kind if kind.startswith("{") else chr(34) + kind + chr(34)},'
        '"nullable":true,"metadata":{}}'
        for name, kind in types.items()
    )
    return parse_schema(f'{{"type":"struct","fields":[{fields}]}}', where="test")
