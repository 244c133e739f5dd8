from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.definition.property_rules import refusal
from liquidlog.errors import SchemaProblemKind, UsageError
from liquidlog.table import Table


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("delta.appendonyl", "delta.appendOnly"),
        ("delta.checkpointIntervall", "delta.checkpointInterval"),
        ("delta.nope", None),
        ("delta.zorder", None),
        ("delta.x", None),
    ],
)
def test_only_a_near_property_is_suggested(name: str, meant: str | None) -> None:
    problem = refusal(name)
    assert problem is not None
    assert (problem.kind, problem.property) == (SchemaProblemKind.PROPERTY_UNKNOWN, name)
    assert problem.text.partition("; ")[2] == ("" if meant is None else f"did you mean {meant}?")


@pytest.mark.parametrize(
    "properties",
    [{"delta.nope": "1"}, {"delta.appendOnly": "yes"}, {"delta.checkpointInterval": "often"}],
)
def test_a_new_table_has_only_properties_that_delta_knows(
    properties: dict[str, str], tmp_path: Path
) -> None:
    schema = pa.schema([("x", pa.int64())])
    with pytest.raises(UsageError):
        Table.create(tmp_path / "t", schema=schema, properties=properties)
    assert not (tmp_path / "t").exists()
    kept = {"delta.enableRowTracking": "true", "delta.constraints.c": "x > 0", "mine": "1"}
    made = Table.create(tmp_path / "t", schema=schema, properties=kept).snapshot()
    assert {*kept} <= {*made.metadata.configuration}
