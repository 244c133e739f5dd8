"""A survey of a fleet: 500 tables of 1,000 files, with a page for each; time, memory, processes.

    python benchmarks/bench_fleet.py --tables 500 --files 1000

The logs are those of imagined_fleet.py. The command runs as a program of its own; its processes are
looked at ten times a second.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from imagined_fleet import write_fleet

MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=500)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--no-pages", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        lake = Path(home, "lake")
        write_fleet(lake, arguments.tables, arguments.files)
        pages = [] if arguments.no_pages else ["-o", str(Path(home, "pages"))]
        out = Path(home, "out.json")
        command = [
            str(Path(sys.executable).parent / "liquidlog"),
            "fleet",
            str(lake),
            "--json",
            *pages,
        ]
        began, before = time.monotonic(), os.times()
        with out.open("wb") as file:
            process = subprocess.Popen(command, stdout=file)
            watched = watch(process)
        seconds, after = time.monotonic() - began, os.times()
        if process.returncode:
            raise SystemExit(process.returncode)
        cpu = sum(
            getattr(after, name) - getattr(before, name)
            for name in ("children_user", "children_system")
        )
        tables = json.loads(out.read_bytes())["tables"]
        written = sum(path.stat().st_size for path in Path(home).glob("pages/*"))
    actions = Counter(table["action"] for table in tables)
    told = ", ".join(f"{count} {action}" for action, count in sorted(actions.items()))
    row = (
        arguments.tables,
        arguments.files,
        "no" if arguments.no_pages else f"{written / MIB:.0f} MiB",
        told,
        f"{seconds:.0f}",
        f"{cpu:.0f}",
        watched["processes"],
        f"{watched['each'] / MIB:.0f}",
        f"{watched['all'] / MIB:.0f}",
        f"{os.getloadavg()[1]:.1f}",
    )
    heads = "tables | files each | pages | found | s | CPU s | processes | MiB, largest | MiB, all"
    print(f"| {heads} | load |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    print(f"| {' | '.join(map(str, row))} |")
    tell_kinds(tables)


def tell_kinds(tables: list[dict[str, Any]]) -> None:
    """Print how long tables of each kind took."""
    kinds = defaultdict(list)
    for table in tables:
        kinds[Path(table["table"]).name.partition("-")[0]].append(table["seconds"])
    for kind, found in kinds.items():
        print(f"{kind}: {sum(found) / len(found):.2f} s per table, at most {max(found):.2f}")


def watch(process: "subprocess.Popen[bytes]") -> dict[str, int]:
    """Wait for a program; return the most processes of it, and the peaks of resident bytes."""
    most = {"processes": 0, "each": 0, "all": 0}
    while process.poll() is None:
        found = [resident(pid) for pid in (process.pid, *children(process.pid))]
        most["processes"] = max(most["processes"], len(found))
        most["each"] = max(most["each"], *found)
        most["all"] = max(most["all"], sum(found))
        time.sleep(0.1)
    return most


def children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except OSError:
            continue
    return found


def resident(pid: int) -> int:
    """Return the resident bytes of a process; pages that it shares with others count in each."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
