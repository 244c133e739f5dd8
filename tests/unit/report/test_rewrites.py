"""Documents of rewrites that are done."""

from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa

from liquidlog.operations.optimize import Round
from liquidlog.operations.reconcile import ReconciledRows
from liquidlog.report import changes
from liquidlog.report.printing import show
from liquidlog.report.rewrites import reconciled_document, rounds_document
from liquidlog.table import Table


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
