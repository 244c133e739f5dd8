"""From advice to a table: the columns and properties to set, and the commands that do it."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from liquidlog.advice.advice import SAVED_AS, ProtocolChange
from liquidlog.advice.candidates import Candidate
from liquidlog.clustering.columns import clustering_state
from liquidlog.clustering.settings import (
    DEFAULT_STRATEGY,
    PREFIX_PROPERTY,
    WEIGHTS_PROPERTY,
    ZORDER_PROPERTY,
    remembered_if_right,
)
from liquidlog.snapshot import Snapshot
from liquidlog.spec.features import clustering_upgrade, is_clustered, table_features
from liquidlog.spec.schema import quote_path
from liquidlog.spec.text import alter, set_properties, unset_properties

_CURVE_PROPERTY: Final = "liquidlog.curve"
_SIZE_PROPERTY: Final = "liquidlog.maxFileSize"


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What makes a layout: see `Advice`."""

    commands: tuple[str, ...] = ()
    protocol_change: ProtocolChange | None = None
    sets: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()


NOTHING_TO_DO: Final = Steps()


def steps(snapshot: Snapshot, best: Candidate) -> Steps:
    """Return what makes a candidate the layout of a table; nothing for a partitioned one."""
    if snapshot.metadata.partition_columns:
        return NOTHING_TO_DO
    sets, unset = _properties(snapshot, best)
    uri = shlex.quote(snapshot.uri)
    names = ",".join(quote_path(path) for path in best.columns)
    own = tuple(column.logical for column in clustering_state(snapshot).columns)
    commands = []
    if own != best.columns:
        commands.append(f"liquidlog cluster-by {uri} {shlex.quote(names)}")
    if sets:
        commands.append(alter(snapshot.uri, set_properties(sets)))
    if unset:
        commands.append(alter(snapshot.uri, unset_properties(unset)))
    if best.is_fitted:
        commands.append(f"liquidlog optimize {uri} --advice {SAVED_AS}")
    else:
        is_other = remembered_if_right(snapshot, "strategy") != DEFAULT_STRATEGY
        strategy = f" --strategy {DEFAULT_STRATEGY}" if is_other else ""
        commands.append(f"liquidlog optimize {uri} --full{strategy}")
    return Steps(
        commands=tuple(commands),
        protocol_change=_protocol_change(snapshot) if own != best.columns else None,
        sets=sets,
        unset=unset,
    )


def _properties(snapshot: Snapshot, best: Candidate) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the properties to set and to remove, so that a plan makes this layout."""
    configuration = snapshot.metadata.configuration
    sets: dict[str, str] = {}
    unset = []
    if remembered_if_right(snapshot, "max_file_bytes") != best.max_file_bytes:
        sets[_SIZE_PROPERTY] = str(best.max_file_bytes)
    if len(best.columns) > 1 and remembered_if_right(snapshot, "curve") != best.curve.value:
        sets[_CURVE_PROPERTY] = best.curve.value
    prefix = ",".join(quote_path(path) for path in best.prefix)
    if prefix and configuration.get(PREFIX_PROPERTY) != prefix:
        sets[PREFIX_PROPERTY] = prefix
    elif not prefix and PREFIX_PROPERTY in configuration:
        unset.append(PREFIX_PROPERTY)
    # Neither has a say in the layout that was measured; the second has none in a clustered table.
    unset += [name for name in (WEIGHTS_PROPERTY, ZORDER_PROPERTY) if name in configuration]
    return sets, tuple(unset)


def _protocol_change(snapshot: Snapshot) -> ProtocolChange | None:
    old = snapshot.protocol
    if is_clustered(old):
        return None
    new = clustering_upgrade(old)
    added = tuple(name for name in new.writer_features or () if name not in table_features(old))
    return ProtocolChange(
        features_added=added,
        min_writer_version=new.min_writer_version,
        text=(
            f"the table's writer version becomes {new.min_writer_version}, from"
            f" {old.min_writer_version}, with the features {', '.join(added)}; writers that do not"
            " know clustered tables then refuse this one, delta-rs among them; readers need nothing"
            " new"
        ),
    )
