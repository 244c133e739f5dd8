"""Contenders of a simulation: each strategy with the policies to try."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from liquidlog.clustering.settings import policy_settings
from liquidlog.errors import UsageError
from liquidlog.plan import DEFAULT_MAX_FILE_BYTES, DEFAULT_MIN_CUBE_BYTES, ClusteringPolicy
from liquidlog.simulation.rounds import EVERYTHING, Contender, Setting
from liquidlog.simulation.table import SimulatedTable
from liquidlog.spec.sizes import render_size

CONTENDERS: Final = ("all", "new", "cube", "overlap")
"""The names: rewrite everything, rewrite only new files, and the two strategies of plans."""

SIZED: Final = frozenset({"cube", "overlap"})
"""The contenders that use a minimum cube size, and a target."""


def contenders(
    names: Sequence[str] = (),
    *,
    min_cube_bytes: Sequence[int] = (),
    max_file_size: int | str | None = None,
    curve: str | None = None,
    tolerance: float | None = None,
    remembered: Mapping[str, Any] | None = None,
) -> tuple[Contender, ...]:
    """Return contenders by name; those that use a minimum cube size appear once per size.

    Args:
        names: Names in CONTENDERS; all if empty.
        min_cube_bytes: Minimum cube sizes in bytes; the target size is 1.5 times each. The default
            of plans if empty.
        max_file_size: The maximum size of files that rewrites write.
        curve: The order of rows in a cube.
        tolerance: The tolerance of the strategy `overlap`.
        remembered: Fields of the policy that a table remembers, for arguments that are not given.
    """
    chosen = tuple(dict.fromkeys(names or CONTENDERS))
    for name in chosen:
        if name not in CONTENDERS:
            raise UsageError(f"there is no contender {name!r}; known are {', '.join(CONTENDERS)}")
    if tolerance is not None and "overlap" not in chosen:
        raise UsageError("tolerance has no effect without overlap", option="tolerance")
    if min_cube_bytes and not SIZED & set(chosen):
        raise UsageError(
            "min_cube_size has no effect without cube or overlap", option="min_cube_size"
        )
    known = dict(remembered or {})
    least, target = known.pop("min_cube_bytes", None), known.pop("target_cube_bytes", None)
    tolerant = {"tolerance": known.pop("tolerance")} if "tolerance" in known else {}
    shared = {**known, **policy_settings({"max_file_size": max_file_size, "curve": curve})}
    own = {"overlap": {**tolerant, **policy_settings({"tolerance": tolerance})}}
    sizes = tuple(dict.fromkeys(min_cube_bytes or (least or DEFAULT_MIN_CUBE_BYTES,)))
    return tuple(
        contender
        for name in chosen
        for contender in _sized(
            name,
            sizes,
            None if min_cube_bytes else target,
            {**shared, **own.get(name, {})},
        )
    )


def _sized(
    name: str, sizes: Sequence[int], target: int | None, settings: Mapping[str, Any]
) -> Iterator[Contender]:
    if name not in SIZED:
        size = EVERYTHING if name == "all" else 1
        policy = ClusteringPolicy(min_cube_bytes=size, target_cube_bytes=EVERYTHING, **settings)
        yield Contender(name=name, strategy="cube", policy=policy)
        return
    for size in sizes:
        policy = ClusteringPolicy(
            min_cube_bytes=size, target_cube_bytes=target or size + size // 2, **settings
        )
        yield Contender(name=f"{name} {render_size(size)}", strategy=name, policy=policy)


def setting(
    first: SimulatedTable,
    *,
    scenario: str,
    rounds: int,
    append_bytes: int,
    max_file_size: int | str | None = None,
    curve: str | None = None,
    remembered: Mapping[str, Any] | None = None,
) -> Setting:
    """Return the setting of a simulation that starts from the table `first`.

    `remembered` are fields of the policy that it remembers, for arguments that are not given.
    """
    if curve is not None and first.columns == 1:
        raise UsageError(
            "curve has no effect with one column, which is always in linear order", option="curve"
        )
    named = policy_settings({"max_file_size": max_file_size, "curve": curve})
    named = {**(remembered or {}), **named}
    return Setting(
        scenario=scenario,
        rounds=rounds,
        append_bytes=append_bytes,
        max_file_bytes=named.get("max_file_bytes", DEFAULT_MAX_FILE_BYTES),
        curve=named.get("curve", "hilbert"),
    )
