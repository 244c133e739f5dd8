"""docs/follow-a-plan.md names the functions of a plan and of a commit in the order of their calls.

Those of a rewrite run in several processes; they are only checked to exist.
"""

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pyarrow as pa

from liquidlog.table import Table
from support.arrow_executor import execute
from support.repository import ROOT, text

ROWS = pa.table({"a": list(range(100)), "b": [number * 7 % 100 for number in range(100)]})
Step = tuple[str, str]
"""A module and a function in it, with its class."""


def steps(begin: str, end: str) -> list[Step]:
    """Return the steps of a part of the page, in order."""
    _, _, rest = text("docs/follow-a-plan.md").partition(f"{begin}\n")
    rows = re.findall(r"^\| `(\S+\.py)` \| (`[^|]+`) \|", rest.partition(end)[0], re.MULTILINE)
    return [(module, name) for module, names in rows for name in re.findall(r"`([\w.]+)`", names)]


def called(work: Callable[[], object]) -> list[Step]:
    """Return the functions of the package that some work calls, in the order of first calls."""
    found: dict[Step, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            module = Path(frame.f_code.co_filename).relative_to(ROOT)
            found.setdefault((str(module), frame.f_code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(found)


def made(tmp_path: Path) -> Table:
    table = Table.create(tmp_path / "t", schema=ROWS.schema, cluster_by=["a", "b"])
    table.append(ROWS)
    table.checkpoint()
    table.append(ROWS)
    return table


def test_a_plan_calls_what_the_page_says_in_its_order(tmp_path: Path) -> None:
    uri = made(tmp_path).uri
    walk = steps("## Table.plan", "## optimize")
    assert len(walk) > 15
    calls = called(lambda: Table.open(uri).plan())
    assert [step for step in calls if step in walk] == walk


def test_a_commit_calls_what_the_page_says_in_its_order(tmp_path: Path) -> None:
    table = made(tmp_path)
    plan = table.plan()
    result = execute(plan)
    walk = steps("### RewriteResult → Commit", "If other writers")
    assert len(walk) == 10
    calls = called(lambda: table.commit(plan, result))
    assert [step for step in calls if step in walk] == walk
