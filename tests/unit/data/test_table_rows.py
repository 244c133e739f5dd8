"""The parts in which files are read."""

import pytest

from liquidlog.data.table_rows import FilePart
from liquidlog.plan import InputFile


@pytest.mark.parametrize(("parts", "groups"), [(1, 5), (3, 10), (7, 3), (4, 0), (4, 4)])
def test_every_row_group_is_in_one_part(parts: int, groups: int) -> None:
    file = InputFile(path="f", size_bytes=1)
    found = [
        group
        for part in range(parts)
        for group in FilePart(file=file, path="f", values={}, part=part, parts=parts).row_groups(
            groups
        )
    ]
    assert found == list(range(groups))
