"""What findings are derived from, and what a finding says."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from liquidlog.clustering.columns import ClusteringState
from liquidlog.clustering.health.measure import Health
from liquidlog.definition.schema_changes import LostColumns, Retagging
from liquidlog.doctor.asked import Asked
from liquidlog.doctor.missed import Missed
from liquidlog.foresee.verdict import Verdict
from liquidlog.snapshot import Snapshot
from liquidlog.spec.actions import FileKey
from liquidlog.spec.bounds import Bounds, Mask
from liquidlog.spec.text import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault of a table.

    `files` is the number of files that have the fault, None for a fault of the table itself.
    `command` repairs it; if it is `fixable`, that is `doctor --fix`, which rewrites no data file.
    It is None where nothing should be done, or no command of ours does it: `detail` says which.
    """

    name: str
    detail: str
    files: int | None
    command: str | None
    fixable: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Examined:
    """The facts about a table that findings are derived from.

    `bounds` has those of the clustering columns, one entry per live file. `min_cube_bytes` is the
    size from which a cube counts as stable. `state` and `health` are
    None if the domain cannot be read; `domain_problem` says why. `wrong_properties` says what is
    wrong with the values of properties about the layout, by their names. `verdict` says what
    should be done about the layout, None if the domain cannot be read; `rewritten` marks the files
    that it takes. `asked` is what a workload asks for, None without one; `workload_source` is where
    a command finds that workload. `refused_dates` says why a rewrite would refuse files for the
    calendar of their dates, a sentence for each, of a few that were looked into. `missed` are
    removes of past commits that removed nothing, and
    `not_removed` the live files that a version, the value, removed with another vector only.
    """

    snapshot: Snapshot
    state: ClusteringState | None
    domain_problem: str | None
    bounds: Bounds
    min_cube_bytes: int
    health: Health | None
    retagging: Retagging | None
    lost: LostColumns | None
    wrong_properties: Mapping[str, str] = field(default_factory=dict)
    verdict: Verdict | None = None
    rewritten: Mask | None = None
    asked: Asked | None = None
    workload_source: str | None = None
    refused_dates: tuple[str, ...] = ()
    missed: tuple[Missed, ...] = ()
    not_removed: Mapping[FileKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Diagnosis(Summary):
    """All findings of a table, and the verdict on its layout.

    `verdict` is None if the clustering columns cannot be read, `asked` without a workload.
    """

    findings: tuple[Finding, ...]
    verdict: Verdict | None
    asked: Asked | None = None

    def _facts(self) -> Mapping[str, object]:
        verdict = {} if self.verdict is None else {"verdict": self.verdict.sentence}
        return {**verdict, "findings": tuple(finding.name for finding in self.findings)}

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __getitem__(self, number: int) -> Finding:
        return self.findings[number]


def fixable(snapshot: Snapshot, name: str, detail: str, files: int | None = None) -> Finding:
    """Return a finding that `doctor --fix` repairs."""
    command = f"liquidlog doctor {shlex.quote(snapshot.uri)} --fix {name}"
    return Finding(name=name, detail=detail, files=files, command=command, fixable=True)


def repaired(
    snapshot: Snapshot, name: str, detail: str, command: str | None, files: int | None = None
) -> Finding:
    """Return a finding with its command; one of a verb says `{table}` instead of the table."""
    filled = command
    if command is not None and not command.startswith("liquidlog "):
        filled = "liquidlog " + command.replace("{table}", shlex.quote(snapshot.uri))
    return Finding(name=name, detail=detail, files=files, command=filled, fixable=False)


def by_rewrite(
    examined: Examined, name: str, detail: str, files: Mask, *, count: int | None = None
) -> Finding:
    """Return a finding about files that only a rewrite changes.

    Its command is that of the rewrite that is worth it, if that takes some of these files. Else it
    has none, and `detail` says why the files are left alone.

    Args:
        examined: The facts about the table.
        name: The name of the finding.
        detail: What is the matter with these files.
        files: A mask of them among the live files.
        count: How many they are, if not all of the mask counts.
    """
    verdict, rewritten = examined.verdict, examined.rewritten
    command = None
    if verdict is None:
        why = "left alone: whether a rewrite is worth it was not judged"
    elif verdict.best is None:
        shown = verdict.shown
        why = f"left alone: {verdict.sentence if shown is None else shown.problem}"
    elif rewritten is not None and not np.any(rewritten & files):
        why = "left alone: the rewrite that is worth it takes none of them"
    else:
        why, command = "rewriting them is worth it", verdict.best.command
    return Finding(
        name=name,
        detail=f"{detail}; {why}",
        files=int(files.sum()) if count is None else count,
        command=command,
        fixable=False,
    )
