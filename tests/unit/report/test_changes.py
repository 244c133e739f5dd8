"""What reports of plans and of rewrites say."""

from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa

from liquidlog.operations.batches import ReconciledRows
from liquidlog.operations.optimize import Round
from liquidlog.plan import InputFile
from liquidlog.report import changes
from liquidlog.report.changes import reconciled_document, rounds_document
from liquidlog.report.printing import Line, show
from liquidlog.table import Table
from support.plans import make_plan, schema_json_of

ROW = {"path": "a", "size_bytes": 5, "modified": "", "orphan": True, "deleted": False, "reason": ""}


def test_orphans_that_stayed_are_not_called_deleted() -> None:
    for deleted, dry_run, said in (
        (True, False, "2 orphans of 10 B: 1 deleted"),
        (True, True, "2 orphans of 10 B: would delete 1; nothing was deleted"),
        (False, False, "2 orphans of 10 B: delete them with --delete"),
    ):
        found = {"files": [ROW, ROW], "orphan_count": 2, "orphan_bytes": 10, "deleted": deleted}
        assert changes.orphans(found, gone=1, dry_run=dry_run)[-1] == Line(said)


def test_a_plan_advises_boxes_where_files_are_not_fitted_to_the_curve(tmp_path: Path) -> None:
    for columns, outputs, curve, advised in (
        (5, 24, "hilbert", True),
        (5, 2, "hilbert", False),
        (5, 24, "kd", False),
        (2, 24, "hilbert", False),
    ):
        names = [f"c{number}" for number in range(columns)]
        plan = make_plan(
            tmp_path,
            schema_json_of(dict.fromkeys(names, "long")),
            [((InputFile(path="a.parquet", size_bytes=10),), outputs)],
            columns=[(name,) for name in names],
            curve=curve,
        )
        printed = StringIO()
        show(changes.plan(plan), printed)
        assert ("--curve kd would" in printed.getvalue()) == advised


def done(version: int, reconciled: ReconciledRows) -> Round[Mapping[str, Any]]:
    document: Mapping[str, Any] = {
        "versions": (version,),
        "groups": [],
        "rows_verified": 10,
        "reconciled": reconciled_document(reconciled),
        "seconds": 0.5,
    }
    return Round(done=document, average_depth=2.0)


def test_rounds_say_what_was_reconciled_in_all(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", schema=pa.schema([("x", pa.int64())]), cluster_by=["x"])
    one = ReconciledRows(rows=3, files=2, bytes_read=100, seconds=0.25, versions=(7,))
    other = ReconciledRows(rows=1, files=1, bytes_read=50, seconds=0.5, versions=(9, 7))
    plan = table.plan()
    found = rounds_document(table, plan, (done(8, one), done(10, other)))
    assert found["versions"] == [8, 10]
    assert found["reconciled"] == {
        "rows": 4,
        "files": 3,
        "bytes_read": 150,
        "seconds": 0.75,
        "versions": (7, 9),
    }
    assert rounds_document(table, plan, ())["reconciled"] == reconciled_document(ReconciledRows())
    out = StringIO()
    show(changes.optimized(found), out)
    assert "4 row(s)" in out.getvalue()
