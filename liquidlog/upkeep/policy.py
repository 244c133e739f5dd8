"""A policy of upkeep: which tables are looked at, when they are rewritten, and what that may take.

Sizes are bytes and times milliseconds, unless a name says otherwise. A limit that is None is none.
"""

from dataclasses import dataclass, field
from typing import Final

from liquidlog.judgement.verdicts import Bar
from liquidlog.upkeep.windows import QuietWindow

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteWhen:
    """What makes a table worth judging: any of these, each at least so much.

    `commits` and `age_ms` count since the last rewrite, whoever made it; `age_ms` only if something
    was committed since. `unclustered_bytes` and `depth_ratio` are those of the health,
    `small_file_share` is that of files below SMALL_FILE_BYTES among all. Within `payback_days` the
    best rewrite must have paid back.
    """

    commits: int | None = None
    unclustered_bytes: int | None = None
    small_file_share: float | None = None
    depth_ratio: float | None = None
    payback_days: float | None = None
    age_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePolicy:
    """When tables are rewritten, and for whom that must be worth it.

    `workload` is where the readers' predicates are, in the form that commands take.
    """

    when: RewriteWhen
    bar: Bar = field(default_factory=Bar)
    workload: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one run may take: bytes of the files to rewrite, and minutes to begin rewrites in."""

    bytes: int | None = None
    minutes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """How long a table is left alone after a run failed: the wait doubles with each failure.

    A run that has written nothing for `alive_ms` is taken for dead, and for a failure.
    """

    first_ms: int = _HOUR_MS
    longest_ms: int = 7 * _DAY_MS
    alive_ms: int = _DAY_MS

    def wait_ms(self, failures: int) -> int:
        """Return how long to wait after so many failures in a row, at least one."""
        doublings = min(failures - 1, 40)
        return min(self.first_ms << doublings, self.longest_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPolicy:
    """A checkpoint is made when the newest is so many commits old."""

    commits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumPolicy:
    """A vacuum is made when the last that deleted something is `age_ms` old.

    It keeps files for `retain`, a duration as the command takes it; as the table says if None.
    """

    age_ms: int
    retain: str | None = None


DEFAULT_WHEN: Final = RewriteWhen(
    commits=20, unclustered_bytes=1 << 30, small_file_share=0.5, depth_ratio=1.5, age_ms=7 * _DAY_MS
)
"""What makes a table worth judging if a policy does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepPolicy:
    """What a run of upkeep does with which tables.

    `tables` and `exclude` are addresses, or globs of them. `rewrite`, `checkpoint` and `vacuum` are
    None where nothing of that kind is to be done.
    """

    tables: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rewrite: RewritePolicy | None = field(default_factory=lambda: RewritePolicy(when=DEFAULT_WHEN))
    budget: Budget = field(default_factory=Budget)
    quiet: tuple[QuietWindow, ...] = ()
    back_off: BackOff = field(default_factory=BackOff)
    checkpoint: CheckpointPolicy | None = None
    vacuum: VacuumPolicy | None = None
