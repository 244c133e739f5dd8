"""Progress bars on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from liquidlog.plan import ClusteringPlan


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
def rewrite_progress(
    plan: ClusteringPlan,
) -> Iterator[tuple[Callable[[int, float], None], Callable[[int], None]]]:
    """Show a bar; yield a callback for a group's rewritten share (0 to 1), and one at its end."""
    group_bytes = {group.group_id: group.size_bytes for group in plan.groups}
    shares: dict[int, float] = {}
    finished: set[int] = set()
    columns = (TextColumn("{task.fields[groups]}"), DownloadColumn(binary_units=True))
    with _shown("rewriting", *columns, is_needed=bool(plan.groups)) as progress:
        task = progress.add_task("", total=plan.size_bytes, groups=f"0/{len(group_bytes)} groups")

        def on_share(group_id: int, share: float) -> None:
            shares[group_id] = share
            done_bytes = sum(group_bytes[key] * part for key, part in shares.items())
            groups = f"{len(finished)}/{len(group_bytes)} groups"
            progress.update(task, completed=done_bytes, groups=groups)

        def on_group(group_id: int) -> None:
            finished.add(group_id)
            on_share(group_id, 1.0)

        yield on_share, on_group


@contextmanager
def counted_progress(noun: str) -> Iterator[tuple[Callable[[int], None], Callable[[], None]]]:
    """Show a bar; yield a callback that sets the number of steps, and one that counts a step."""
    with _shown(noun, MofNCompleteColumn()) as progress:
        task = progress.add_task("", total=None)
        yield lambda count: progress.update(task, total=count), partial(progress.advance, task)
