"""Print which files a call of `Table.plan`, and an OPTIMIZE, go through, by what they call.

A table of random rows is made in a temporary directory, planned, rewritten by liquidspark in a
local session, and committed. Every Python function that is called meanwhile counts, in Spark's
Python workers too; what only runs while a module is imported does not.

    JAVA_HOME=$(python tools/java_home.py) python tools/main_path.py
"""

import ast
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

MAIN_LINE: Final = (
    "liquidlog/table",
    "liquidlog/operations/",
    "liquidlog/clustering/",
    "liquidlog/log/",
    "liquidlog/plan.py",
    "liquidlog/commit/",
    "liquidlog/rewriting/",
    "liquidlog/snapshot.py",
    "liquidspark/",
)
"""How the files begin that a reader of the path opens; what it says in, like the terms of the
protocol, kernels and storage, is its vocabulary."""

APPENDS: Final = 4
ROWS: Final = 800_000
"""Rows of an append: together more than a group that is rewritten by one task."""

_WORKER: Final = "sitecustomize.py"
_WORKER_CODE: Final = """\
import sys
sys.path.insert(0, {tools!r})
from main_path import Recorder
sys.path.remove({tools!r})
Recorder(file={file!r}).start()
"""


@dataclass(eq=False)
class Recorder:
    """Notes every function of the two packages that is called, and where it begins.

    With `file`, each is also a line of it, so that processes can be added up.
    """

    file: str | None = None
    called: set[tuple[str, int]] = field(default_factory=set)
    _seen: set[CodeType] = field(default_factory=set)

    def start(self) -> None:
        """Note calls of this thread and of those that it starts."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)

    def stop(self) -> None:
        """Note no more calls."""
        sys.setprofile(None)
        threading.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code in self._seen:
            return
        if not _is_ours(code.co_filename):
            self._seen.add(code)
        elif not _is_importing(frame):
            self._seen.add(code)
            self._note(code)

    def _note(self, code: CodeType) -> None:
        self.called.add((code.co_filename, code.co_firstlineno))
        if self.file is not None:
            with Path(self.file).open("a", encoding="utf-8") as lines:
                lines.write(f"{code.co_filename}\t{code.co_firstlineno}\n")


def _is_ours(file: str) -> bool:
    return file.startswith((f"{ROOT}/liquidlog/", f"{ROOT}/liquidspark/"))


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and _is_ours(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


@dataclass(frozen=True)
class CalledFile:
    """A file on a path: its lines, and those of the functions in it that were called."""

    name: str
    lines: int
    called_lines: int

    @property
    def is_main_line(self) -> bool:
        """Whether a reader of the path opens it."""
        return self.name.startswith(MAIN_LINE)


def called_files(called: Iterable[tuple[str, int]]) -> list[CalledFile]:
    """Return the files of (file, first line of a function), sorted by name."""
    first_lines: dict[str, set[int]] = {}
    for file, line in called:
        first_lines.setdefault(file, set()).add(line)
    files = (_called_file(Path(file), lines) for file, lines in first_lines.items())
    return sorted((file for file in files if file.called_lines), key=lambda file: file.name)


def _called_file(path: Path, first_lines: set[int]) -> CalledFile:
    text = path.read_text(encoding="utf-8")
    lines: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)])
            if first in first_lines:
                lines.update(range(first, (node.end_lineno or first) + 1))
    return CalledFile(str(path.relative_to(ROOT)), text.count("\n"), len(lines))


def show(name: str, files: list[CalledFile]) -> None:
    """Print the files, those of the main line first, and their sums."""
    print(f"{name}\n{'':4}{'file':52}{'lines':>7}{'called':>8}")
    parts = {
        "main line": [file for file in files if file.is_main_line],
        "vocabulary": [file for file in files if not file.is_main_line],
    }
    for part in parts.values():
        for file in part:
            print(f"{'':4}{file.name:52}{file.lines:7,}{file.called_lines:8,}")
    for title, part in {**parts, "together": files}.items():
        lines, called = (sum(f.lines for f in part), sum(f.called_lines for f in part))
        print(f"  {title:10} {len(part):3} files{'':38}{lines:7,}{called:8,}")


def recorded(action: Callable[[], object]) -> list[CalledFile]:
    """Return the files that an action goes through in this process."""
    recorder = Recorder()
    recorder.start()
    try:
        action()
    finally:
        recorder.stop()
    return called_files(recorder.called)


def main() -> None:
    """Measure both paths and print them."""
    with tempfile.TemporaryDirectory(prefix="liquidlog-path-") as directory:
        workers = Path(directory, "called")
        _profile_workers(Path(directory), workers)
        from liquidlog import Table

        uri = str(Path(directory, "table"))
        _make_table(uri)
        Table.open(uri).plan()  # imports
        show("plan", recorded(lambda: Table.open(uri).plan()))
        driver = Recorder()
        _optimize(uri, driver)
        show("optimize", called_files(driver.called | _calls_in(workers)))


def _profile_workers(directory: Path, file: Path) -> None:
    """Let Python processes that are started from here on note what they call in a file."""
    code = _WORKER_CODE.format(tools=str(ROOT / "tools"), file=str(file))
    Path(directory, _WORKER).write_text(code, encoding="utf-8")
    paths: Mapping[str, str] = os.environ
    given = [paths["PYTHONPATH"]] if "PYTHONPATH" in paths else []
    os.environ["PYTHONPATH"] = os.pathsep.join([str(directory), str(ROOT), *given])


def _make_table(uri: str) -> None:
    import numpy as np
    import pyarrow as pa

    from liquidlog import Table

    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    table = Table.create(uri, schema=schema, cluster_by=["x", "y"])
    random = np.random.default_rng(1)
    for _ in range(APPENDS):
        values = (pa.array(random.integers(0, 1 << 62, ROWS)) for _ in schema)
        table.append(pa.table(list(values), schema=schema))


def _optimize(uri: str, recorder: Recorder) -> None:
    import liquidspark
    from liquidlog import Table
    from liquidspark.session import open_session

    with open_session({"spark.master": "local[1]"}) as spark:
        recorder.start()
        try:
            table = Table.open(uri)
            plan = table.plan()
            table.commit(plan, liquidspark.execute(spark, plan))
        finally:
            recorder.stop()


def _calls_in(file: Path) -> set[tuple[str, int]]:
    called = set()
    with suppress(FileNotFoundError):
        for line in file.read_text(encoding="utf-8").splitlines():
            name, _, first = line.partition("\t")
            called.add((name, int(first)))
    return called


if __name__ == "__main__":
    main()
