"""Patterns of LIKE: the text with which all that match begin.

Source: Spark, StringUtils.escapeLikeRegex.
"""

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.predicates.limits import Limits
from liquidlog.predicates.verdicts import Verdict, true_or_unknown


@dataclass(frozen=True, slots=True)
class Pattern:
    """What a text that matches begins with; `is_whole` if that is all of it.

    `is_open` says that every text with this beginning matches.
    """

    prefix: str
    is_whole: bool = False
    is_open: bool = False


def pattern(text: str, escape: str = "\\") -> Pattern | None:
    """Return what a pattern asks for, None if Spark fails on it."""
    prefix: list[str] = []
    rest = iter(enumerate(text))
    found: Pattern | None = None
    for place, character in rest:
        if character == escape:
            _, escaped = next(rest, (0, ""))
            if escaped not in ("%", "_", escape) or not escaped:
                return None
            prefix.append(escaped)
        elif character in "%_" and found is None:
            found = Pattern("".join(prefix), is_open=text[place:].strip("%") == "")
        else:
            prefix.append(character)
    return found or Pattern("".join(prefix), is_whole=True)


def like_expression(text: str, escape: str = "\\") -> re.Pattern[str] | None:
    """Return a pattern as a regular expression of whole texts, None if Spark fails on it."""
    if pattern(text, escape) is None:
        return None
    made: list[str] = []
    rest = iter(text)
    for character in rest:
        if character == escape:
            made.append(re.escape(next(rest)))
        else:
            made.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    return re.compile("".join(made), re.DOTALL)


def begins_with(limits: Limits, prefix: str, *, is_open: bool) -> Verdict:
    """Return the verdict about texts within limits: do they begin with a prefix?

    If `is_open` is false, more is asked of a text, so any may fail.
    """
    # In the order of UTF-8, the texts with this prefix are consecutive, and the prefix is first.
    start = pa.scalar(prefix.encode(), pa.binary())
    low, high = (pc.cast(end, pa.binary()) for end in limits)
    low_begins, high_begins = (pc.binary_slice(end, 0, len(prefix.encode())) for end in (low, high))
    may = true_or_unknown(pc.less_equal(low_begins, start)) & true_or_unknown(
        pc.greater_equal(high, start)
    )
    all_begin = pc.and_kleene(pc.equal(low_begins, start), pc.equal(high_begins, start))
    some_fail = true_or_unknown(pc.invert(all_begin))
    return Verdict(may, some_fail if is_open else some_fail | True)
