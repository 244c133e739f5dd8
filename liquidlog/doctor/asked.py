"""Which columns a workload asks for, and what the log lacks for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from liquidlog.errors import UsageError
from liquidlog.predicates.workload import NotUsable, Session, Workload, shares
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf, has_bounds
from liquidlog.spec.schema import Leaf, Path


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedColumn:
    """A column that a workload asks for.

    `share` is the share of readings that do. `files_without` is the number of live files without
    statistics of it.
    """

    leaf: Leaf
    share: float
    files_without: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a workload asks for.

    `columns` are those that can have bounds, the most asked first. `unlike_share` is the share of
    readings that ask for no clustering column, `unlike_columns` what they ask for, and
    `unlike_read_share` the share of the table's bytes that they read on average. `cannot_prune`
    lists the conditions that rule out no file, `not_usable` the predicates that are no condition on
    the table.
    """

    columns: tuple[AskedColumn, ...]
    unlike_share: float
    unlike_columns: tuple[Path, ...]
    unlike_read_share: float
    cannot_prune: tuple[str, ...]
    not_usable: tuple[NotUsable, ...]

    def document(self) -> dict[str, Any]:
        """Return what is said of the workload's predicates, ready to print as JSON."""
        return {"cannot_prune": self.cannot_prune, "not_usable": self.not_usable}


def asked_of(
    snapshot: Snapshot,
    workload: Workload,
    clustered: Sequence[Path],
    bounds_of: BoundsOf,
    now_ms: int | None,
) -> Asked:
    """Return what a workload asks for, of a table that is clustered by these columns.

    Predicates that are no condition on the table count nowhere.
    """
    # The SQL parser takes a third of a command's start.
    from liquidlog.predicates.conditions import referenced_leaves_each
    from liquidlog.predicates.matching import answers

    session = Session.at_ms(now_ms)
    found = answers(snapshot, workload, bounds_of, session)
    weights = shares(found.workload)
    wheres = [one.where for one in found.workload]
    # Whatever was answered is a condition on the table.
    named = [
        leaves
        for leaves in referenced_leaves_each(snapshot, wheres)
        if not isinstance(leaves, UsageError)
    ]
    share: dict[Leaf, float] = {}
    for leaves, weight in zip(named, weights, strict=True):
        for leaf in leaves:
            if has_bounds(leaf.data_type):
                share[leaf] = share.get(leaf, 0.0) + weight
    ranked = sorted(share, key=lambda leaf: -share[leaf])
    bounds = bounds_of(ranked)
    own = set(clustered)
    unlike = [not own & {leaf.logical for leaf in leaves} for leaves in named]
    size_bytes = snapshot.files["size"].to_numpy().astype(np.float64)
    total, others = (
        max(size_bytes.sum(), 1.0),
        sum(weight for weight, is_unlike in zip(weights, unlike, strict=True) if is_unlike),
    )
    read = sum(
        weight * float(size_bytes[pc.fill_null(one.may_match, True).to_numpy(False)].sum())  # noqa: FBT003
        for one, weight, is_unlike in zip(found.judged, weights, unlike, strict=True)
        if is_unlike
    )
    return Asked(
        columns=tuple(
            AskedColumn(
                leaf=leaf,
                share=share[leaf],
                files_without=int(bounds.unknown(number).sum()),
            )
            for number, leaf in enumerate(ranked)
        ),
        unlike_share=others,
        unlike_columns=tuple(
            dict.fromkeys(
                leaf.logical
                for leaves, is_unlike in zip(named, unlike, strict=True)
                if is_unlike
                for leaf in leaves
                if has_bounds(leaf.data_type)
            )
        ),
        unlike_read_share=read / total / others if others else 0.0,
        cannot_prune=found.cannot_prune,
        not_usable=found.not_usable,
    )
