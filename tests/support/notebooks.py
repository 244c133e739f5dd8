"""The notebook of the documents, its code cells run in order without a notebook server.

    PYTHONPATH=tests python -m support.notebooks

writes anew what its cells show. What a cell prints and the picture of its last expression are kept,
and nothing of the machine: cells print no path.
"""

import ast
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Final

from support.repository import ROOT

NOTEBOOK: Final = ROOT / "docs" / "notebook.ipynb"

Output = Mapping[str, Any]


def code_cells(notebook: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the code cells of a notebook, in order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(cells: Sequence[Mapping[str, Any]]) -> Iterator[list[Output]]:
    """Run the cells in the present directory, in one namespace; yield what each shows."""
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells, start=1):
        with redirect_stdout(StringIO()) as out:
            last = _value("".join(cell["source"]), names, number)
        printed = [_stream(out.getvalue())] if out.getvalue() else []
        svg = getattr(last, "_repr_svg_", None)
        yield printed + ([_picture(svg())] if svg else [])


def _value(source: str, names: dict[str, Any], number: int) -> object:
    """Run a cell and return the value of its last expression, None if it ends otherwise."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), f"<cell {number}>", "exec"), names)  # noqa: S102  our own
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), f"<cell {number}>", "eval"), names)  # noqa: S307


def _stream(text: str) -> Output:
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}


def _picture(svg: str) -> Output:
    data = {"image/svg+xml": svg.splitlines(keepends=True)}
    return {"output_type": "display_data", "data": data, "metadata": {}}


def main() -> None:
    """Write the notebook with what its cells show now."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = code_cells(notebook)
    with tempfile.TemporaryDirectory() as home, chdir(home):
        for number, (cell, shown) in enumerate(zip(cells, run(cells), strict=True), start=1):
            cell["outputs"], cell["execution_count"] = shown, number
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    Path(NOTEBOOK).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
