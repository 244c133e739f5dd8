"""Text on the page can be read, in the light, in the dark and on paper."""

import re
from itertools import product

from support.repository import ROOT

TEMPLATES = ROOT / "liquidlog" / "report" / "templates"
STYLES = (TEMPLATES / "style.css").read_text()

LEAST = 4.5
"""The least contrast of text, as WCAG 2.2 has it (level AA)."""

LEAST_OF_SHAPES = 1.5
"""What stands out enough in a picture beside which there are numbers."""

TEXTS = ("text", "soft", "good", "bad")
BEHIND = ("back", "panel")
SHAPES = ("main", "now")


def schemes() -> dict[str, dict[str, str]]:
    """Return the colours of each scheme by name; those of dark and paper go over the light ones."""
    blocks = re.findall(r":root \{(.*?)\}", STYLES, re.DOTALL)
    assert len(blocks) == 3
    names = [set(re.findall(r"--(\w+):", block)) for block in blocks]
    assert names[0] == names[1] == names[2]
    found = [dict(re.findall(r"--(\w+): (#[0-9a-f]+)", block)) for block in blocks]
    light, dark, paper = found
    return {"light": light, "dark": light | dark, "paper": light | paper}


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    parts = [int(digits[n : n + 2], 16) / 255 for n in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_text_and_shapes_stand_out() -> None:
    faint = [
        (scheme, front, behind)
        for scheme, colours in schemes().items()
        for front, behind in product((*TEXTS, *SHAPES), BEHIND)
        if contrast(colours[front], colours[behind])
        < (LEAST if front in TEXTS else LEAST_OF_SHAPES)
    ]
    assert faint == []
