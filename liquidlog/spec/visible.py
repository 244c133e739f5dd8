r"""Text from outside, with every character that a terminal would act on made visible.

A log, a file name or an error of a parser can hold control characters, marks that turn the
direction of text, characters without width, and halves of a surrogate pair. Each becomes the
escape that Python writes for it, `\x1b` or `\u202e`; all other characters stay.

Source: Unicode 15, general categories Cc, Cf (but signs that are seen, like U+0600), Cs, Zl, Zp.
"""

import re
from typing import Final

_HIDDEN: Final = (
    r"\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff"
    r"\ufeff\ufff9-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0001\U000e0020-\U000e007f"
)
_IN_A_LINE: Final = re.compile(f"[{_HIDDEN}]")
_IN_LINES: Final = re.compile(f"(?!\n)[{_HIDDEN}]")
_NOT_ASCII: Final = re.compile(f"(?!\n)[{_HIDDEN}]|[^\x00-\x7f]")


def visible(text: str) -> str:
    """Return `text` as one line without characters that hide or act, each as its escape."""
    # Printable text hides nothing, and this test is much faster.
    return text if text.isprintable() else _IN_A_LINE.sub(_escape, text)


def visible_lines(text: str, *, indent: str = "  ") -> str:
    """Return `text` like `visible`, but keep its lines; all after the first are indented.

    The indent keeps a line break in a name from beginning a line that reads as another message.
    """
    return _IN_LINES.sub(_escape, text.replace("\n", f"\n{indent}"))


def visible_json(document: str, *, ascii_only: bool = False) -> str:
    """Return an equal JSON document in which hidden characters are JSON escapes.

    Args:
        document: JSON. Hidden characters other than line ends can only be inside strings.
        ascii_only: Whether to escape all characters beyond ASCII.
    """
    return (_NOT_ASCII if ascii_only else _IN_LINES).sub(_json_escape, document)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
