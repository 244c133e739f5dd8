"""The executor `local`: plan to outcomes on worker processes of this machine, for small plans."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, Self

from liquidlog.errors import ExecutorError
from liquidlog.local.engine import LocalEngine, LocalJobs
from liquidlog.local.workers import TaskFailedError, Workers, core_count
from liquidlog.plan import Cancelled, ClusteringPlan, Outcome, Progress
from liquidlog.rewriting.flight import Flight
from liquidlog.rewriting.groups import GroupRun, GroupsInFlight, runs_of
from liquidlog.rewriting.process import CANNOT_READ, new_token, storage_problem
from liquidlog.rewriting.source import ExecutorOptions
from liquidlog.spec.text import render_size
from liquidlog.storage.options import OptionsSource, StorageOptions

DEFAULT_LIMIT_BYTES: Final = 20 << 30
"""The most input that a plan may have: beyond it, one machine is not the place."""

_WORKER_BYTES: Final = 512 << 20
"""What a worker is reckoned with; all of them get half of the memory that there is."""

_SLICE_BYTES: Final = 8 << 20
"""A quarter of what tasks on a cluster read at a time; files do not depend on it."""

_CGROUP_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


class _Slots:
    watched = True
    groups_per_job = 1

    def __init__(self, count: int) -> None:
        self._count = count

    def count(self) -> int:
        return self._count


class LocalExecutor:
    """Context manager: an executor on worker processes of this machine.

    Args:
        conf: Must be empty: there is nothing to configure.
        storage_options: With which workers open the files of tables, or a callable that gives
            them, asked before each job.
        read_back: Whether every output is read back and proved to hold what was read.
        verb: For what it is started, as the markers of its runs say.
        limit_bytes: The most input that groups to rewrite may have together.
    """

    def __init__(
        self,
        conf: Mapping[str, str],
        storage_options: OptionsSource | None = None,
        *,
        read_back: bool = True,
        verb: str = "run",
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        assert not conf  # noqa: S101  `liquidlog.operations.executors` refuses one
        self._storage_options = storage_options
        self._options = ExecutorOptions(read_back=read_back, slice_bytes=_SLICE_BYTES)
        self._verb = verb
        self._limit_bytes = limit_bytes
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._workers = Workers(worker_count())
        self._stack.callback(self._workers.close)
        self._directory = self._stack.enter_context(scratch_directory())
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @staticmethod
    def require_doable(
        plan: ClusteringPlan, groups: Collection[int] | None, limit_bytes: int | None
    ) -> None:
        """Refuse groups, all if None, that have more input than one machine should rewrite."""
        limit_bytes = DEFAULT_LIMIT_BYTES if limit_bytes is None else limit_bytes
        wanted = [group for group in plan.groups if groups is None or group.group_id in groups]
        input_bytes = sum(group.size_bytes for group in wanted)
        if input_bytes > limit_bytes:
            raise ExecutorError(
                f"the plan rewrites {render_size(input_bytes)}, expected at most"
                f" {render_size(limit_bytes)} with the executor local: use the executor spark, plan"
                " less at a time (--budget, --where), or raise local_limit"
            )

    def __call__(
        self,
        plan: ClusteringPlan,
        groups: Sequence[int],
        progress: Progress,
        cancelled: Cancelled | None = None,
    ) -> Iterator[Outcome]:
        """Yield each group when it finishes or fails; a failure does not stop the others.

        Closing the iterator ends what runs and deletes what it wrote.
        """
        self.require_doable(plan, groups, self._limit_bytes)
        storage = StorageOptions.of(self._storage_options)
        runs = runs_of(plan, groups, options=self._options, storage=storage, verb=self._verb)
        if runs:
            _require_access(runs[0])
        engines = [LocalEngine(self._workers, self._directory) for _ in runs]
        flying = [GroupsInFlight((run,), one) for run, one in zip(runs, engines, strict=True)]
        yield from Flight(_Slots(self._workers.count), flying).outcomes(progress, cancelled)

    def tasks(self, function: Callable[[Any], Any], requests: Sequence[Any]) -> Sequence[Any]:
        """Return what a function returns for each request, in their order; a `plan.Tasks`."""
        try:
            return LocalJobs(self._workers).run(function, [(request,) for request in requests])
        except TaskFailedError as error:
            raise ExecutorError(str(error)) from error


def worker_count() -> int:
    """Return how many workers this machine has cores and memory for, at least 1."""
    by_memory = memory_bytes() // 2 // _WORKER_BYTES
    return max(1, min(core_count(), by_memory))


def memory_bytes() -> int:
    """Return how much memory this process may use: the machine's, or what its control group has."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # "max" is no limit
            found.append(int(Path(path).read_text(encoding="ascii")))
    return min(found)


def _require_access(run: GroupRun) -> None:
    file = run.first_input
    if file is None:
        return
    problem = storage_problem(
        directory=run.directory,
        file=file,
        token=new_token(),
        options=dict(run.storage.fresh().items),
    )
    # An input that cannot be read is its group's failure.
    if problem is not None and not problem.startswith(CANNOT_READ):
        raise ExecutorError(f"this machine {problem}; it needs the right to")


_PREFIX: Final = "liquidlog-rows-"
_LOCK: Final = "in-use"


@contextmanager
def scratch_directory() -> Iterator[str]:
    """Context manager: a new directory, deleted in the end; those of dead processes are, too."""
    home = Path(tempfile.gettempdir())
    try:
        _delete_dead(home)
        made = tempfile.TemporaryDirectory(prefix=_PREFIX, dir=home, ignore_cleanup_errors=True)
    except OSError as error:
        raise ExecutorError(
            f"rows on their way cannot be kept in {home}: {error.strerror}; name another directory"
        ) from error
    with made as directory, _locked_new(Path(directory) / _LOCK):
        yield directory


@contextmanager
def _locked_new(path: Path) -> Iterator[None]:
    """Context manager: a file of this name, locked before it has the name."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        Path(file.name).rename(path)
        yield


def _delete_dead(parent: Path) -> None:
    for directory in parent.glob(f"{_PREFIX}*"):
        try:
            with (directory / _LOCK).open("rb") as file:
                if os.fstat(file.fileno()).st_uid == os.getuid() and _is_free(file):
                    shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue  # it is new, or somebody else's, or gone meanwhile


def _is_free(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
