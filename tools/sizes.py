"""Print how large the packages and the tests are: files, and lines of code, docstrings, imports.

    python tools/sizes.py

Blank lines and comments are in no column but the total. Lengths of functions are those of their
statements and signature, without docstring.
"""

import ast
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PARTS: Final = ("liquidlog", "liquidspark", "tests", "benchmarks", "tools", "demo")


@dataclass(frozen=True)
class FileSize:
    """The lines of one file by what they are, and the lengths of its functions."""

    lines: int
    code: int
    docstrings: int
    imports: int
    functions: tuple[int, ...]


def file_size(path: Path) -> FileSize:
    """Return the lines of a file of Python."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    docstrings = {line for node in ast.walk(tree) for line in _docstring_lines(node)}
    imports = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for line in _span(node)
    }
    written = {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    functions = tuple(
        len(set(_span(node)) - docstrings)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    code = len(written - docstrings - imports)
    return FileSize(text.count("\n"), code, len(docstrings), len(imports), functions)


def _docstring_lines(node: ast.AST) -> Iterator[int]:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
        yield from _span(node.body[0])


def _span(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def main() -> None:
    """Print a line for each part of the repository, and how long functions are."""
    print(f"{'':14}{'files':>7}{'lines':>9}{'code':>9}{'docstrings':>12}{'imports':>9}")
    functions: list[int] = []
    for part in PARTS:
        sizes = [file_size(path) for path in sorted((ROOT / part).rglob("*.py"))]
        if part in {"liquidlog", "liquidspark"}:
            functions += [length for size in sizes for length in size.functions]
        columns = [
            sum(getattr(size, name) for size in sizes)
            for name in ("lines", "code", "docstrings", "imports")
        ]
        print(f"{part:14}{len(sizes):>7}" + "".join(map("{:>{}}".format, columns, (9, 9, 12, 9))))
    deciles = statistics.quantiles(functions, n=10)
    longest = f"median {statistics.median(functions):.0f}, nine of ten {deciles[-1]:.0f}"
    print(f"functions of the packages: {len(functions)}, lines: {longest}")


if __name__ == "__main__":
    main()
