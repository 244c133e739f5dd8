"""What sources yield: questions to tables, and what cannot be used, with its reason."""

from dataclasses import dataclass

from liquidlog.workload.form import Observed


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question to one table, asked `times` times between two times.

    `files` and `bytes` are sums over the questions whose number is `measured`.
    """

    table: str
    conjuncts: tuple[str, ...]
    source: str
    ambiguous: bool = False
    times: int = 1
    first_ms: int | None = None
    last_ms: int | None = None
    measured: int = 0
    files: int = 0
    bytes: int = 0

    @property
    def observed(self) -> Observed | None:
        """What one question read, on average; None if its engine did not say."""
        if not self.measured:
            return None
        return Observed(round(self.files / self.measured), round(self.bytes / self.measured))


@dataclass(frozen=True, slots=True, kw_only=True)
class OfOther:
    """Questions to a table that was not asked for."""

    table: str
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NotUnderstood:
    """Questions that cannot be used: why, and one of them as the source has it."""

    reason: str
    example: str = ""
    times: int = 1


Found = Asked | OfOther | NotUnderstood


@dataclass(slots=True)
class Tally:
    """How often, when, and how much was read: what grouped questions add up to."""

    times: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    measured: int = 0
    files: int = 0
    bytes: int = 0

    def add(
        self, *, time_ms: int | None, files: int | None, size_bytes: int | None, times: int = 1
    ) -> None:
        """Count questions; files and bytes are those of all of them, None if not counted."""
        self.times += times
        self.span(time_ms, time_ms)
        if files is not None and size_bytes is not None:
            self.measured += times
            self.files += files
            self.bytes += size_bytes

    def span(self, first_ms: int | None, last_ms: int | None) -> None:
        """Widen the time."""
        if first_ms is not None:
            self.first_ms = first_ms if self.first_ms is None else min(self.first_ms, first_ms)
        if last_ms is not None:
            self.last_ms = last_ms if self.last_ms is None else max(self.last_ms, last_ms)
