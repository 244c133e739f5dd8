"""Which files a condition on partition columns asks for: exactly those, or a refusal."""

import datetime as dt
from typing import Final

import numpy as np
import pyarrow as pa

from liquidlog.errors import UsageError
from liquidlog.predicates.matching import judged_each
from liquidlog.predicates.named import condition_on
from liquidlog.predicates.sessions import Session
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf, Mask
from liquidlog.spec.schema import quote_path

_UTC: Final = Session(None, dt.UTC)


def matching_partitions(snapshot: Snapshot, where: str, bounds_of: BoundsOf) -> Mask:
    """Return a mask of the files whose partition values satisfy a condition.

    Times without a zone are of UTC.
    """
    named = condition_on(where, snapshot)
    if isinstance(named, UsageError):
        raise named
    partitions = snapshot.metadata.partition_columns
    others = [quote_path(path) for path in named[1].values() if path[0] not in partitions]
    if others or not partitions:
        listed = ", ".join(quote_path((name,)) for name in partitions) or "none"
        raise UsageError(
            f"where may name partition columns only ({listed}), found"
            f" {', '.join(dict.fromkeys(others)) or where}",
            option="where",
        )
    asked, spared = judged_each(snapshot, [where, f"NOT ({where})"], bounds_of, _UTC)
    can_match = np.asarray(asked.may_match, np.bool_)
    undecided = can_match & np.asarray(spared.may_match, np.bool_)
    if undecided.any() or asked.asks_for_time:
        example = _example(snapshot, undecided)
        raise UsageError(
            f"partition values do not decide where: {where}{example}; compare the columns with"
            " constants by =, <>, <, <=, >, >=, IN, BETWEEN, IS NULL or LIKE 'prefix%'",
            option="where",
        )
    return can_match


def _example(snapshot: Snapshot, undecided: Mask) -> str:
    if not undecided.any():
        return ", which asks for the time"
    row = pa.array([int(np.flatnonzero(undecided)[0])])
    return f", as for {snapshot.files['path'].take(row)[0].as_py()}"
