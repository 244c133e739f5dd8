"""Which rewrites come into question for a table, as arguments of Table.plan, and their commands."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from liquidlog.clustering.settings import DEFAULT_STRATEGY, TAKES, WITH_OPTION
from liquidlog.plan import ClusteringPlan

_MIB: Final = 1 << 20

OVERLAP: Final = "overlap"

_SMALLER: Final = (
    (128 * _MIB, 10_000),
    (32 * _MIB, 1_000),
    (8 * _MIB, 100),
    (2 * _MIB, 50),
)
"""Smaller file sizes, and how many files of that size a table may have: the smaller they are, the
sooner their number is what costs."""

_SMALLER_SIZES: Final = 3
"""The most smaller sizes that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A rewrite that comes into question.

    `arguments` are those of Table.plan; `name` says what they are in short.
    """

    name: str
    arguments: Mapping[str, Any]


def judged_file_sizes(table_bytes: int, own_max_file_bytes: int) -> tuple[int, ...]:
    """Return the maximum file sizes to judge, the table's own first and then ever smaller ones."""
    smaller = [
        size
        for size, most in _SMALLER
        if size < own_max_file_bytes and 2 * size <= table_bytes <= size * most
    ]
    return (own_max_file_bytes, *smaller[:_SMALLER_SIZES])


def candidates(
    *, strategy: str | None, has_cubes: bool, takes_foreign: bool, sizes: Sequence[int]
) -> Iterator[Candidate]:
    """Yield the rewrites that come into question, those that need the fewest words first.

    Args:
        strategy: The strategy that the table remembers, None if it has no clustering columns.
        has_cubes: Whether there are files that the table's own columns have clustered, some of
            which the strategy overlap may leave alone.
        takes_foreign: Whether there are files that only a full rewrite takes.
        sizes: File sizes in bytes, the one that the table remembers first.
    """
    if strategy is None:
        for size in sizes:
            yield Candidate(name=f"files of {size_word(size)}", arguments={"max_file_size": size})
        return
    if strategy not in TAKES:
        # A strategy of another package may refuse any option.
        yield Candidate(name=f"strategy {strategy}", arguments={})
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
            yield Candidate(
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
    """Return what two plans of one table have in common if they write the same files."""
    return tuple(
        (len(group.inputs), group.size_bytes, group.expected_outputs) for group in plan.groups
    )
