"""Progress bars on a terminal: finished groups and bytes, or counts, and the time left."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from liquidlog.plan import ClusteringPlan


@dataclass(slots=True)
class RewriteProgress:
    """Shows the progress of the executor and the committer."""

    progress: Progress
    task: TaskID
    group_bytes: Mapping[int, int]
    shares: dict[int, float] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)

    def on_share(self, group_id: int, share: float) -> None:
        """Record the rewritten share of a group, 0 to 1."""
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
def _shown(noun: str, *columns: ProgressColumn, is_needed: bool = True) -> Iterator[Progress]:
    console = Console(stderr=True)
    left = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(
        *(TextColumn(noun), BarColumn(), *columns, *left),
        console=console,
        disable=not (is_needed and console.is_terminal),
        transient=True,
    ) as progress:
        yield progress


@contextmanager
def rewrite_progress(plan: ClusteringPlan) -> Iterator[RewriteProgress]:
    """Show a bar during the execution of a plan."""
    columns = (TextColumn("{task.fields[groups]}"), DownloadColumn(binary_units=True))
    with _shown("rewriting", *columns, is_needed=bool(plan.groups)) as progress:
        group_bytes = {group.group_id: group.size_bytes for group in plan.groups}
        task = progress.add_task("", total=plan.size_bytes, groups=f"0/{len(group_bytes)} groups")
        yield RewriteProgress(progress, task, group_bytes)


@contextmanager
def counted_progress(noun: str) -> Iterator[tuple[Callable[[int], None], Callable[[], None]]]:
    """Show a bar while things are done one by one; yields what expects so many, and counts one."""
    with _shown(noun, MofNCompleteColumn()) as progress:
        task = progress.add_task("", total=None)
        yield lambda count: progress.update(task, total=count), partial(progress.advance, task)
