"""The cells of the documents' notebook run in order, and show what the notebook holds."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support import examples, notebooks

SVG = "image/svg+xml"


def printed(outputs: list[Any]) -> str:
    """Return what the outputs of a cell print; predicted bytes vary in their last digit."""
    text = "".join("".join(one.get("text", [])) for one in outputs)
    return re.sub(r"[\d.]+ [KM]iB", "<size>", text)


def boxes(outputs: list[Any]) -> int:
    """Return how many boxes the pictures of a cell have: their edges vary with the ids of files."""
    return sum("".join(one.get("data", {}).get(SVG, [])).count("<rect") for one in outputs)


def test_cells_show_what_the_notebook_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = notebooks.NOTEBOOK.read_text(encoding="utf-8")
    cells = notebooks.code_cells(json.loads(text))
    monkeypatch.chdir(tmp_path)
    drawn = []
    for cell, outputs in zip(cells, notebooks.run(cells), strict=True):
        assert examples.matches(printed(outputs), printed(cell["outputs"]))
        assert boxes(outputs) == boxes(cell["outputs"])
        drawn.append(boxes(outputs))
    assert [count for count in drawn if count] == [1 + 12, 1 + 4]
