"""What a whole workload says of the live files, and which of its predicates say nothing."""

from dataclasses import dataclass

from liquidlog.errors import UsageError
from liquidlog.predicates.matching import Judged, judged_or_refused
from liquidlog.predicates.sessions import Session
from liquidlog.predicates.workload import NotUsable, WeightedPredicate, Workload
from liquidlog.snapshot import Snapshot
from liquidlog.spec.bounds import BoundsOf
from liquidlog.spec.text import iso_time


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """The predicates that are conditions on the table, each with its answer, and the others."""

    workload: Workload
    judged: tuple[Judged, ...]
    not_usable: tuple[NotUsable, ...]

    @property
    def cannot_prune(self) -> tuple[str, ...]:
        """Return the conditions of all predicates that rule out no file, each once."""
        return tuple(dict.fromkeys(text for one in self.judged for text in one.cannot_prune))

    def asked_at(self, now_ms: int | None) -> str | None:
        """Return the time (ISO 8601, UTC) that some answer depends on; None if none does."""
        return iso_time(now_ms) if self.asks_for_time and now_ms is not None else None

    @property
    def asks_for_time(self) -> bool:
        """Return whether some answer depends on the time at which it is asked."""
        return any(one.asks_for_time for one in self.judged)


def answers(
    snapshot: Snapshot, workload: Workload, bounds_of: BoundsOf, session: Session
) -> Answers:
    """Return what the predicates of a workload say of the live files.

    Predicates that are no condition on this table are set aside with the reason.
    """
    problems = [_problem(predicate) for predicate in workload]
    readable = [
        predicate.where
        for predicate, problem in zip(workload, problems, strict=True)
        if problem is None
    ]
    rest = iter(judged_or_refused(snapshot, readable, bounds_of, session))
    found = [next(rest) if problem is None else problem for problem in problems]
    pairs = list(zip(workload, found, strict=True))
    refused = [(predicate, one) for predicate, one in pairs if isinstance(one, UsageError)]
    if len(workload) == 1 and refused:
        raise refused[0][1]
    if len(refused) == len(workload):
        raise UsageError(_none_usable([error.message for _, error in refused]))
    return Answers(
        workload=tuple(predicate for predicate, one in pairs if isinstance(one, Judged)),
        judged=tuple(one for one in found if isinstance(one, Judged)),
        not_usable=tuple(
            NotUsable(where=predicate.where, weight=predicate.weight, reason=error.message)
            for predicate, error in refused
        ),
    )


def _problem(predicate: WeightedPredicate) -> UsageError | None:
    problem = predicate.problem
    return None if problem is None else UsageError(problem, predicate=predicate.where)


def _none_usable(reasons: list[str]) -> str:
    return (
        f"none of {len(reasons)} predicates is a condition on this table; the first: {reasons[0]}"
    )
