"""Texts of few values travel in dictionaries; no other column, and no value, changes."""

import pyarrow as pa

from liquidlog.data.encodings import decoded
from liquidlog.data.file_encoding import with_light_dictionaries

ROWS = 20_000


def table(rows: int) -> pa.Table:
    few = ["a", None, "", "\U0010ffff"]
    return pa.table(
        {
            "few": [few[n % 4] for n in range(rows)],
            "many": [f"value {n}" for n in range(rows)],
            "late": ["same" if n < rows // 2 else f"value {n}" for n in range(rows)],
            "none": pa.nulls(rows, pa.string()),
            "raw": pa.array([b"x"] * rows, pa.binary()),
            "list": [["a"]] * rows,
            "number": range(rows),
        }
    )


def test_texts_of_few_values_are_codes() -> None:
    before = table(ROWS)
    chunked = pa.concat_tables([before.slice(0, 7_000), before.slice(7_000)])
    after = with_light_dictionaries(chunked)
    changed = [name for name in before.column_names if after[name].type != before[name].type]
    assert changed == ["few", "none"]
    assert decoded(after).equals(before)


def test_few_rows_stay_as_they_are() -> None:
    assert with_light_dictionaries(table(100)).equals(table(100))
