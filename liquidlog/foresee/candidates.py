"""The rewrites to consider for a table, their commands, and parts of large plans.

Queries gain by the rewrite of one group whatever other groups do, so some groups stand for all, by
their share of the bytes. Of a very large table, these groups and an equal share of the files that
the plan leaves alone are judged like a small table.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from liquidlog.clustering.settings import DEFAULT_STRATEGY, TAKES, WITH_OPTION
from liquidlog.foresee.sample import spread
from liquidlog.plan import ClusteringPlan
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import Mask

_MIB: Final = 1 << 20

OVERLAP: Final = "overlap"

_SMALLER: Final = (
    (128 * _MIB, 10_000),
    (32 * _MIB, 1_000),
    (8 * _MIB, 100),
    (2 * _MIB, 50),
)
"""Smaller file sizes, and how many files of that size a table may have."""

_SMALLER_SIZES: Final = 3


class Choice(NamedTuple):
    """A rewrite to consider: its short `name`, and its `arguments` of Table.plan."""

    name: str
    arguments: Mapping[str, Any]


def judged_file_sizes(table_bytes: int, own_max_file_bytes: int) -> tuple[int, ...]:
    """Return the maximum file sizes to judge: the table's own, then ever smaller ones."""
    smaller = [
        size
        for size, most in _SMALLER
        if size < own_max_file_bytes and 2 * size <= table_bytes <= size * most
    ]
    return (own_max_file_bytes, *smaller[:_SMALLER_SIZES])


def candidates(
    *, strategy: str | None, has_cubes: bool, takes_foreign: bool, sizes: Sequence[int]
) -> Iterator[Choice]:
    """Yield the rewrites to consider, the ones with the fewest words first.

    `strategy` is None without clustering columns. The strategy overlap may leave files alone only
    if the table `has_cubes` of its own columns; a full rewrite `takes_foreign` files, too. `sizes`
    are bytes, the size that the table remembers first.
    """
    if strategy is None:
        for size in sizes:
            yield Choice(name=f"files of {size_word(size)}", arguments={"max_file_size": size})
        return
    if strategy not in TAKES:
        # A strategy of another package may refuse any option.
        yield Choice(name=f"strategy {strategy}", arguments={})
        strategy = DEFAULT_STRATEGY
    chosen = [(strategy, False)]
    if strategy != OVERLAP and has_cubes:
        chosen.append((OVERLAP, False))
    if takes_foreign:
        chosen.append((strategy, True))
    # By size first: whoever stops early has seen every strategy.
    for size in sizes:
        for name, full in chosen:
            arguments = {"strategy": name, "max_file_size": size}
            yield Choice(
                name=f"{name}, {'full, ' if full else ''}files of {size_word(size)}",
                arguments={**arguments, "full": True} if full else arguments,
            )


def size_word(size_bytes: int) -> str:
    """Return a size as one word that `--max-file-size` reads back exactly."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (_MIB, "MiB"), (1 << 10, "KiB")):
        if size_bytes % unit == 0:
            return f"{size_bytes // unit}{name}"
    return str(size_bytes)


def command(uri: str, arguments: Mapping[str, Any], workload_source: str | None = None) -> str:
    """Return the command that rewrites with these arguments, ready for a shell."""
    words = ["liquidlog", "optimize", uri]
    for name, value in arguments.items():
        option = f"--{name.replace('_', '-')}"
        if name not in WITH_OPTION:
            words += ["--set", f"{name}={_word(value)}"]
        elif value is True:
            words.append(option)
        else:
            words += [option, _word(value)]
    if workload_source is not None:
        words += ["--workload", workload_source]
    return shlex.join(words)


def _word(value: Any) -> str:  # noqa: ANN401  an argument of Table.plan
    match value:
        case bool():
            return str(value).lower()
        case int():
            return size_word(value)
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def outline(plan: ClusteringPlan) -> tuple[tuple[int, int, int], ...]:
    """Return a value that is equal for two plans of one table if they write the same files."""
    return tuple(
        (len(group.inputs), group.size_bytes, group.expected_outputs) for group in plan.groups
    )


MOST_FILES: Final = 2_000
"""Inputs and outputs of the groups that are predicted; at least one group is."""
MANY_FILES: Final = 100_000
"""Of a table with more files, the groups are predicted in a part of the table."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """A part of a plan, and the table, or a part of it, for the prediction.

    `share` is the share of the plan's bytes, `table_share` that of the table, both above 0. `files`
    marks the live files in the part; None if all are.
    """

    snapshot: Snapshot
    plan: ClusteringPlan
    share: float = 1.0
    table_share: float = 1.0
    files: Mask | None = None


def part_of(snapshot: Snapshot, plan: ClusteringPlan, most_files: int = MOST_FILES) -> Part:
    """Return groups spread evenly over the plan, with at most `most_files` files if possible."""
    files = [len(group.inputs) + group.expected_outputs for group in plan.groups]
    total, size_bytes = sum(files), plan.size_bytes
    if total <= most_files or len(files) < 2 or not size_bytes:  # noqa: PLR2004  no part of one
        return Part(snapshot=snapshot, plan=plan)
    wanted = max(1, len(files) * most_files // total)
    # The middle of each of `wanted` equal stretches.
    chosen = ((np.arange(wanted) + 0.5) * len(files) / wanted).astype(np.int64).tolist()
    part = structs.replace(plan, groups=tuple(plan.groups[number] for number in chosen))
    share = part.size_bytes / size_bytes
    if snapshot.files.num_rows <= MANY_FILES:
        return Part(snapshot=snapshot, plan=part, share=share)
    mask = _files(snapshot, plan, part, share)
    kept = replace(snapshot, files=snapshot.files.filter(pa.array(mask)), plain_files=None)
    return Part(snapshot=kept, plan=part, share=share, table_share=share, files=mask)


def _files(snapshot: Snapshot, plan: ClusteringPlan, part: ClusteringPlan, share: float) -> Mask:
    """Return a mask of the part's inputs, and of a share of the files that no group takes."""
    left = plan.skipped.columns["path"]
    some = left.take(pa.array(spread(len(left), round(len(left) * share))))
    paths = [chunk for group in part.groups for chunk in group.inputs.columns["path"].chunks]
    is_plain = snapshot.plain_files is snapshot.files
    among = snapshot.files["path"] if is_plain else pa.chunked_array([snapshot.paths()])
    found = pc.is_in(among, value_set=pa.concat_arrays([*paths, *some.chunks]))
    return np.asarray(found.to_numpy(), np.bool_)
