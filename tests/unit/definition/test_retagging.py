from liquidlog.definition.schema_changes import plan_late_retagging
from liquidlog.spec.schema import PrimitiveType, StructField, StructType
from support.snapshots import FileSpec, snapshot_of


def schema(**physical: str) -> StructType:
    """A schema of logical names and the physical names that they stand for."""
    return StructType(
        tuple(
            StructField(name, PrimitiveType("integer"), metadata=_mapped(stored))
            for name, stored in physical.items()
        )
    )


def _mapped(stored: str) -> dict[str, object]:
    return {"delta.columnMapping.physicalName": stored}


def retagged(current: StructType, *past: StructType) -> dict[str, str]:
    tags = ('["x"]', '["y"]', '["x","y"]', '["gone"]', '["never"]', "no list", None)
    files = [
        FileSpec(path=str(n), cube=None if tag is None else "c", zorder_by=tag)
        for n, tag in enumerate(tags)
    ]
    snapshot = snapshot_of(files, schema=current, cluster_by=None)
    found = plan_late_retagging(snapshot, (*past, current))
    assert set(found.files["zorder_by"].to_pylist()) == set(found.tags)
    return dict(found.tags)


def test_tags_follow_their_columns_through_renames() -> None:
    first = schema(x="p1", y="p2", gone="p3")
    second = schema(x="p1", z="p2", gone="p3")
    assert retagged(schema(x="p1", **{"a b": "p2"}), first, second) == {
        '["y"]': '["`a b`"]',
        '["x","y"]': '["x","`a b`"]',
    }


def test_names_that_meant_several_columns_are_left_alone() -> None:
    # y took the name of x, so a tag of x alone may mean either; x and y were once both there.
    assert retagged(schema(old="p1", x="p2"), schema(x="p1", y="p2")) == {
        '["y"]': '["x"]',
        '["x","y"]': '["old","x"]',
    }


def test_without_renames_nothing_is_tagged_anew() -> None:
    assert retagged(schema(x="p1", y="p2"), schema(x="p1", y="p2", gone="p3")) == {}
