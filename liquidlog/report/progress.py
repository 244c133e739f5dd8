"""A progress bar on a terminal: finished groups and bytes, and the remaining time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from liquidlog.plan import ClusteringPlan


@dataclass(slots=True)
class RewriteProgress:
    """Receives the progress of the executor and of the committer, and shows it."""

    progress: Progress
    task: TaskID
    group_bytes: Mapping[int, int]
    shares: dict[int, float] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)

    def on_share(self, group_id: int, share: float) -> None:
        """Record which share of a group, 0 to 1, is rewritten."""
        self.shares[group_id] = share
        self._show()

    def on_group(self, group_id: int) -> None:
        """Record that a group is finished."""
        self.finished.add(group_id)
        self.on_share(group_id, 1.0)

    def _show(self) -> None:
        done_bytes = sum(self.group_bytes[key] * share for key, share in self.shares.items())
        text = f"{len(self.finished)}/{len(self.group_bytes)} groups"
        self.progress.update(self.task, completed=done_bytes, groups=text)


@contextmanager
def rewrite_progress(plan: ClusteringPlan) -> Iterator[RewriteProgress]:
    """Show a bar on stderr during the execution of a plan; nothing if stderr is no terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("rewriting"),
        BarColumn(),
        TextColumn("{task.fields[groups]}"),
        DownloadColumn(binary_units=True),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    visible = console.is_terminal and bool(plan.groups)
    with Progress(*columns, console=console, disable=not visible, transient=True) as progress:
        group_bytes = {group.group_id: group.size_bytes for group in plan.groups}
        task = progress.add_task("", total=plan.size_bytes, groups=f"0/{len(group_bytes)} groups")
        yield RewriteProgress(progress, task, group_bytes)
