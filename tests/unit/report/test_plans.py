from io import StringIO
from pathlib import Path

import pytest

from liquidlog.plan import InputFile
from liquidlog.report import plans
from liquidlog.report.printing import show
from support.plans import make_plan, schema_json_of


@pytest.mark.parametrize(
    ("columns", "outputs", "curve", "advised"),
    [
        (5, 24, "hilbert", True),
        (5, 2, "hilbert", False),
        (5, 24, "kd", False),
        (2, 24, "hilbert", False),
    ],
)
def test_a_plan_advises_boxes_where_files_are_not_fitted_to_the_curve(
    tmp_path: Path, columns: int, outputs: int, curve: str, *, advised: bool
) -> None:
    names = [f"c{number}" for number in range(columns)]
    plan = make_plan(
        tmp_path,
        schema_json_of(dict.fromkeys(names, "long")),
        [((InputFile(path="a.parquet", size_bytes=10),), outputs)],
        columns=[(name,) for name in names],
        curve=curve,
    )
    printed = StringIO()
    show(plans.plan(plan), printed)
    assert ("--curve kd would" in printed.getvalue()) == advised
