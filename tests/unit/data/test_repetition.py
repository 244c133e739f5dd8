import pyarrow as pa

from liquidlog.data.writer import repetitive_leaves

ROWS = 20_000
UNIQUE = pa.array(range(ROWS))
FEW = pa.array([row % 100 for row in range(ROWS)])


def test_columns_that_repeat_are_chosen_at_every_depth() -> None:
    inner = pa.StructArray.from_arrays([UNIQUE, FEW], ["unique", "few"])
    table = pa.table({"unique": UNIQUE, "few": FEW, "s": inner})
    assert repetitive_leaves(table) == ["few", "s.few"]


def test_leaves_of_lists_and_maps_and_dictionaries_are_always_chosen() -> None:
    kinds = {
        "l": pa.list_(pa.field("element", pa.struct([("a", pa.int64())]))),
        "m": pa.map_(pa.string(), pa.list_(pa.field("element", pa.int64()))),
        "d": pa.dictionary(pa.int32(), pa.string()),
    }
    table = pa.schema(list(kinds.items())).empty_table()
    assert repetitive_leaves(table) == [
        "l.list.element.a",
        "m.key_value.key",
        "m.key_value.value.list.element",
        "d",
    ]


def test_the_sample_is_spread_over_all_rows() -> None:
    late = pa.concat_arrays([pa.array([0] * (ROWS // 8)), UNIQUE.slice(0, ROWS * 7 // 8)])
    assert repetitive_leaves(pa.table({"late": late})) == []
