"""Import a Spark event log of a given size: MB per second, and the most memory that it takes.

The log is a recorded one, repeated with other accumulators and constants, between events of tasks
as every log has them; `--share` says which share of the bytes are events of queries.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from liquidlog.operations.advise import import_workload
from liquidlog.workload.sources import chunks

RECORDED: Final = (
    Path(__file__).parents[1] / "fixtures" / "workload" / "recorded" / "local-recorded.zstd"
)
MEGABYTE: Final = 1_000_000
TASK: Final = (
    b'{"Event":"SparkListenerTaskEnd","Stage ID":1,"Task Info":{"Accumulables":['
    + b",".join(
        b'{"ID":%d,"Name":"internal.metrics","Update":"1","Value":"9"}' % n for n in range(40)
    )
    + b"]}}\n"
)


def main() -> None:
    """Write a log, import it in a process of its own, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--log", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.log is not None:
        _measure(Path(given.log))
        return
    with tempfile.TemporaryDirectory() as home:
        log = Path(home) / "application_1"
        _write(log, given.megabytes * MEGABYTE, given.share)
        subprocess.run([sys.executable, __file__, "--log", str(log)], check=True)


def _write(log: Path, size_bytes: int, share: float) -> None:
    with RECORDED.open("rb") as file:
        recorded = b"".join(chunks(file)).splitlines(keepends=True)
    whole = sum(map(len, recorded))
    tasks = TASK * round(whole * (1 - share) / share / len(TASK) / len(recorded))
    written = turn = 0
    with log.open("wb") as out:
        while written < size_bytes:
            turn += 1
            number = b"%d" % turn
            for line in recorded:
                changed = line.replace(b'"accumulatorId":', b'"accumulatorId":' + number)
                changed = changed.replace(b"[[", b"[[" + number).replace(b",[", b",[" + number)
                changed = changed.replace(b"user_id,386", b"user_id,386" + number)
                written += out.write(changed) + out.write(tasks)


def _measure(log: Path) -> None:
    began, cpu = time.perf_counter(), time.process_time()
    found = import_workload([str(log)])
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    size = log.stat().st_size / MEGABYTE
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(f"{size:.0f} MB, {found.scans} scans, {len(found.queries)} queries")
    rates = f"{size / seconds:.0f} MB per second, {size / cpu:.0f} MB per CPU second"
    print(f"{rates}, peak {peak:.0f} MB")


if __name__ == "__main__":
    main()
