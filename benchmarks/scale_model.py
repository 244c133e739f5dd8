"""What clustering a table of any size takes, computed from what was measured on two cores.

Every constant names the table of RESULTS.md, or the command, that it was measured by; every line of
the output names the law by which it grows. `docs/scale.md` shows the output for a petabyte.

    python benchmarks/scale_model.py --terabytes 1000 --files 10000000 --cores 1000
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

GB: Final = 1e9
GIB: Final = 1 << 30
MIB: Final = 1 << 20
HOUR_SECONDS: Final = 3600

# RESULTS, "Log": 1 000 000 and 10 000 000 files.
PLAN_SECONDS_PER_FILE: Final = 27.5 / 10e6
PLAN_BYTES_PER_FILE: Final = 3740 * MIB / 10e6
CHECKPOINT_SECONDS_PER_FILE: Final = 19.2 / 1e6
CHECKPOINT_BYTES_PER_FILE: Final = 2653 * MIB / 1e6
# RESULTS, "A commit with the second opinion": a run of 41 groups; a whole agreement.
COMMIT_CPU_SECONDS_PER_LIVE_FILE: Final = 26.1 / 41 / 1e6
AGREEMENT_CPU_SECONDS_PER_LIVE_FILE: Final = 3.7 / 1e6
# A plan of 741 000 inputs and as many skipped files, encoded: 251 647 139 bytes.
PLAN_DOCUMENT_BYTES_PER_FILE: Final = 170
# RESULTS, "Rewrite": lineitem SF2, 455 MiB, warm, proof included. Rows of groups above 43 GiB take
# a second step: on SF1 that took 31.3 CPU seconds where one step took 27.0.
CPU_SECONDS_PER_GB: Final = 23.0 / (455 * MIB / GB) * (31.3 / 27.0)
# RESULTS, "Memory and scaling": 10.55 GB shuffled of 9.02 GB.
SHUFFLED_SHARE: Final = 10.55 / 9.02
# RESULTS, "Task slots kept busy": clustering, until the last group.
BUSY_SHARE: Final = 0.8
# RESULTS, "What tasks are sent".
ASSIGNMENT_BYTES_PER_INPUT: Final = 31.4
# Requests that an S3 emulator counted for a file of 121 MiB in two row groups.
SURVEY_REQUESTS_PER_INPUT: Final = 5
READ_REQUESTS_PER_GIB: Final = 17 * GIB / (121 * MIB)
UPLOAD_PART_BYTES: Final = 16 * MIB
UPLOAD_REQUESTS: Final = 3
# A commit of 1500 removes and 150 adds with statistics of 16 columns.
COMMIT_BYTES_PER_REMOVE: Final = 240
COMMIT_BYTES_PER_ADD: Final = 1_100


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A table whose files are all unclustered, and what rewrites it."""

    table_bytes: float
    files: int
    cores: int
    cube_bytes: float = 150 * GIB
    file_bytes: float = GIB
    task_bytes: float = 128 * MIB
    groups_per_commit: int = 1
    checkpoint_interval: int = 10
    core_hour_price: float = 0.05
    write_price: float = 0.005 / 1000
    read_price: float = 0.0004 / 1000

    @property
    def groups(self) -> float:
        """Groups of the plan."""
        return max(1.0, self.table_bytes / self.cube_bytes)

    @property
    def outputs(self) -> float:
        """Files written."""
        return max(1.0, self.table_bytes / self.file_bytes)

    @property
    def commits(self) -> float:
        """Versions that the run adds."""
        return self.groups / self.groups_per_commit

    @property
    def mean_live_files(self) -> float:
        """Live files, on average over the run: inputs become outputs group by group."""
        return (self.files + self.outputs) / 2

    @property
    def hours(self) -> float:
        """Hours of the rewrite."""
        core_seconds = CPU_SECONDS_PER_GB * self.table_bytes / GB
        return core_seconds / self.cores / BUSY_SHARE / HOUR_SECONDS


def lines(shape: Shape) -> Iterator[tuple[str, str, str]]:
    """Yield (what, how much, the law) for a shape."""
    inputs, outputs, groups = shape.files, shape.outputs, shape.groups
    yield "plan, seconds", number(inputs * PLAN_SECONDS_PER_FILE), "files"
    yield "plan, GB of memory", number(inputs * PLAN_BYTES_PER_FILE / GB), "files"
    yield "plan document, GB", number(inputs * PLAN_DOCUMENT_BYTES_PER_FILE / GB), "files"
    yield "groups, each a cube", number(groups), "bytes / cube"
    yield "files written", number(outputs), "bytes / file"
    yield "inputs of a group", number(inputs / groups), "files / groups"
    yield (
        "inputs sent to the tasks of a group, MB",
        number(inputs / groups * ASSIGNMENT_BYTES_PER_INPUT / 1e6),
        "inputs of a group",
    )
    sampling = min(inputs / groups, max(4 * shape.cores, inputs / groups / 16), 1000)
    yield "sampling tasks of a group", number(sampling), "cores"
    per_task = max(8 * MIB, min(shape.task_bytes, shape.cube_bytes / (4 * shape.cores)))
    yield "reading tasks of a group", number(shape.cube_bytes / per_task), "cube / cores"
    yield "writing tasks of a group", number(shape.cube_bytes / shape.file_bytes), "cube / file"
    in_flight = min(groups, max(1.0, 2 * shape.cores * shape.file_bytes / shape.cube_bytes))
    yield "groups in flight", number(in_flight), "2 tasks per core"
    yield "shuffled, TB in all", number(shape.table_bytes * SHUFFLED_SHARE / 1e12), "bytes"
    on_disk = in_flight * shape.cube_bytes * SHUFFLED_SHARE
    yield "shuffle files at a time, GB per core", number(on_disk / shape.cores / GB), "flight"
    yield "core hours", number(shape.hours * shape.cores * BUSY_SHARE), "bytes"
    yield "hours", number(shape.hours), "bytes / cores"
    yield from commit_lines(shape)
    yield from money_lines(shape)


def commit_lines(shape: Shape) -> Iterator[tuple[str, str, str]]:
    """Yield what the log takes."""
    live, commits = shape.mean_live_files, shape.commits
    checkpoints = commits / shape.checkpoint_interval
    log_bytes = shape.files * COMMIT_BYTES_PER_REMOVE + shape.outputs * COMMIT_BYTES_PER_ADD
    yield "commits", number(commits), "groups / groups per commit"
    yield "a commit, MB", number(log_bytes / commits / 1e6), "files per commit"
    commit_hours = commits * live * COMMIT_CPU_SECONDS_PER_LIVE_FILE / HOUR_SECONDS
    yield "commits, hours on the driver", number(commit_hours), "commits x live files"
    each = live * (CHECKPOINT_SECONDS_PER_FILE + AGREEMENT_CPU_SECONDS_PER_LIVE_FILE)
    yield "checkpoints", number(checkpoints), "commits / interval"
    yield (
        "checkpoints, hours on the driver",
        number(checkpoints * each / HOUR_SECONDS),
        ("checkpoints x live files"),
    )
    yield (
        "a checkpoint, GB of memory",
        number(shape.files * CHECKPOINT_BYTES_PER_FILE / GB),
        ("live files"),
    )


def money_lines(shape: Shape) -> Iterator[tuple[str, str, str]]:
    """Yield requests, and what they and the cores cost at the prices of the shape."""
    gib = shape.table_bytes / GIB
    reads = shape.files * SURVEY_REQUESTS_PER_INPUT + 2 * gib * READ_REQUESTS_PER_GIB
    writes = shape.table_bytes / UPLOAD_PART_BYTES + shape.outputs * UPLOAD_REQUESTS
    yield "requests that read, millions", number(reads / 1e6), "files, bytes (read twice)"
    yield "requests that write, millions", number(writes / 1e6), "bytes / part"
    cores = shape.hours * shape.cores * shape.core_hour_price
    yield "cores, USD", number(cores), "core hours"
    requests = reads * shape.read_price + writes * shape.write_price
    yield "requests, USD", number(requests), "requests"


def number(value: float) -> str:
    """Return a number with two digits that count, for people."""
    if value >= 100:  # noqa: PLR2004  whole hundreds need no digits after the point
        digits = len(str(int(value))) - 3
        return f"{round(value, -max(0, digits)):,.0f}".replace(",", " ")
    return f"{value:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--terabytes", type=float, default=1000.0)
    parser.add_argument("--files", type=int, default=10_000_000)
    parser.add_argument("--cores", type=int, default=1000)
    parser.add_argument("--group-commits", type=int, default=1)
    parser.add_argument("--checkpoint-interval", type=int, default=10)
    given = parser.parse_args()
    shape = Shape(
        table_bytes=given.terabytes * 1e12,
        files=given.files,
        cores=given.cores,
        groups_per_commit=given.group_commits,
        checkpoint_interval=given.checkpoint_interval,
    )
    print("| what | how much | grows with |\n|---|---|---|")
    for line in lines(shape):
        print("| " + " | ".join(line) + " |")


if __name__ == "__main__":
    main()
