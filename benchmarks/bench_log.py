"""Opening, measuring, planning and committing to a table of many files, beside delta-rs.

python benchmarks/bench_log.py --files 100000,1000000,10000000
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from imagined_logs import write_table

BIG_COMMIT_FILES = 100_000
RUN_GROUPS = 41
RUN_GROUP_FILES = 1_500


# Each step is a program: it gets `uri` and leaves in `rows` what it counted. It may start the
# clocks, `started` and `cpu_started`, anew: then what came before it is not measured.
STEPS = {
    "liquidlog, import": """
rows = None
""",
    "liquidlog, open": """
rows = Table.open(uri).snapshot().files.num_rows
""",
    "liquidlog, open and plan": """
plan = Table.open(uri).plan(min_cube_size=1, target_cube_size="1TiB")
rows = len(plan.skipped) + sum(len(group.inputs) for group in plan.groups)
""",
    "liquidlog, statistics of two columns, once open": """
from liquidlog.clustering.columns import clustering_state
from liquidlog.log.loader import load_bounds
from liquidlog.spec.schema import leaves
table = Table.open(uri)
snapshot = table.snapshot()
chosen = [leaf for leaf in leaves(snapshot.schema) if leaf.logical in {("a",), ("b",)}]
started, cpu_started = time.perf_counter(), time.process_time()
rows = len(load_bounds(table.opened.store, snapshot, chosen))
""",
    "liquidlog, health": """
rows = Table.open(uri).health().total_file_count
""",
    "liquidlog, doctor": """
from liquidlog.table import Table
table = Table.open(uri)
table.doctor()
rows = None
""",
    "liquidlog, report": """
from liquidlog.report.page import page
from liquidlog.table import Table
overview = Table.open(uri).overview()
assert len(page(overview)) < 5 << 20
rows = overview.health.total_file_count
""",
    "liquidlog, scan": """
from liquidlog.table import Table
found = Table.open(uri).scan("a BETWEEN 1000000 AND 2000000 AND b < '1970-01-06' OR c = 'x'")
rows = found.total_files
""",
    "liquidlog, overlap": """
from liquidlog.table import Table
plan = Table.open(uri).plan(strategy="overlap", budget="1TiB")
rows = len(plan.skipped) + sum(len(group.inputs) for group in plan.groups)
""",
    "liquidlog, overlap of the widest": """
from liquidlog.table import Table
plan = Table.open(uri).plan(strategy="overlap", tolerance=1.0, max_file_size="50MiB")
rows = len(plan.skipped) + sum(len(group.inputs) for group in plan.groups)
""",
    "liquidlog, explain --file": """
from liquidlog.table import Table
table = Table.open(uri)
path = table.snapshot().files["path"][0].as_py()
plan = table.plan(strategy="overlap")
assert len(table.explain(plan, path=path)) == 1
rows = None
""",
    "delta-rs, open": """
from deltalake import DeltaTable
table = DeltaTable(uri)
rows = None
""",
    "delta-rs, open and list": """
from deltalake import DeltaTable
import pyarrow as pa
rows = pa.table(DeltaTable(uri).get_add_actions(flatten=True)).num_rows
""",
}

# A program that changes its table: each round gets a copy. It removes and adds {files} files.
_REWRITE = """
from liquidlog.table import system_clock
from liquidlog.plan import RewrittenGroup, WrittenFile
from liquidlog.clustering.change import rewrite_change
from liquidlog.clustering.planner import staleness_of
from liquidlog.commit import Proposal, land
from liquidlog.operations.batches import read_set_of
table = Table.open(uri)
plan = table.plan(min_cube_size=1, target_cube_size="10000TiB", max_file_size="1TiB")
group = plan.groups[0]
inputs = group.inputs[:{files}]
assert len(inputs) == {files}
group = type(group)(group_id=0, zcube_id=group.zcube_id, inputs=inputs,
    expected_outputs=len(inputs))
plan = type(plan)(**{{name: getattr(plan, name) for name in plan.__struct_fields__}} |
    {{"groups": (group,)}})
stats = ('{{"numRecords":1000,"minValues":{{"a":1}},"maxValues":{{"a":2}},'
    '"nullCount":{{"a":0,"b":0}}}}')
done = RewrittenGroup(plan_id=plan.plan_id, group_id=0, run="0" * 12, rows_read=1000 * len(inputs),
    rows_written=1000 * len(inputs), checksum_read="x", checksum_written="x", seconds=1.0,
    outputs=tuple(WrittenFile(path=f"new-{{number:08d}}.parquet", size_bytes=10**6,
        num_records=1000, modification_time_ms=0, stats=stats) for number in range(len(inputs))))
def derive(snapshot):
    {lost_race}
    return rewrite_change(snapshot, plan, done, now_ms=10**12)
proposal = Proposal(read_set=read_set_of(plan, group), base=table.snapshot(), derive=derive,
    problems=lambda snapshot: staleness_of(snapshot, plan, [group])[0].reasons)
def other_writer(snapshot):
    version = snapshot.version + 1
    if version > plan.read_version + 1:
        return
    log = os.path.join(uri, "_delta_log")
    with open(os.path.join(log, f"{{plan.read_version:020d}}.json")) as last:
        lines = last.read().replace("part-", "other-")
    with open(os.path.join(log, f"{{version:020d}}.json"), "w") as winner:
        winner.write(lines)
"""
_COMMIT = """
started, cpu_started = time.perf_counter(), time.process_time()
landed = land(table.opened.store, proposal, system_clock())
assert landed.version - plan.read_version == {attempts}
rows = None
"""
# What `Table.commit` asks of the log: delta-rs agrees before each put, and all groups share a run.
_RUN = """
from msgspec import structs
from liquidlog.log.history import SecondOpinion
from liquidlog.operations.batches import LandedGroups
read_logs = type(table.opened.store).read_logs
reads = 0
def counted(store, names):
    global reads
    reads += len(names)
    return read_logs(store, names)
type(table.opened.store).read_logs = counted
whole = table.plan(min_cube_size=1, target_cube_size="10000TiB",
    max_file_size="1TiB").groups[0].inputs
parts = [whole[n * {files}:(n + 1) * {files}] for n in range({groups})]
plan = structs.replace(plan, groups=tuple(
    type(group)(group_id=n, zcube_id=group.zcube_id, inputs=part, expected_outputs=len(part))
    for n, part in enumerate(parts)))
store, base = table.opened.store, None
opinion, landed_groups = SecondOpinion(store), LandedGroups(store, plan)
{agreed}
reads = 0
started, cpu_started = time.perf_counter(), time.process_time()
for number, group in enumerate(plan.groups):
    assert number not in landed_groups.update()
    outputs = tuple(structs.replace(file, path=f"group-{{number}}-{{file.path}}")
        for file in done.outputs)
    result = structs.replace(done, plan_id=plan.plan_id, group_id=number, outputs=outputs)
    proposal = Proposal(read_set=read_set_of(plan, group), base=base or table.snapshot(),
        derive=lambda snapshot: rewrite_change(snapshot, plan, result, now_ms=10**12),
        problems=lambda snapshot: staleness_of(snapshot, plan, [group])[0].reasons,
        before_put=opinion.require, winners=landed_groups.winners)
    base = land(table.opened.store, proposal, system_clock()).base
rows = None
"""
_NEXT = """
other_writer(table.snapshot())
started, cpu_started = time.perf_counter(), time.process_time()
rows = table.snapshot().files.num_rows - 1000
"""


def changing_steps(files: int) -> dict[str, str]:
    """Return the programs that change the table; `files` are removed and added in one commit."""
    small = min(RUN_GROUP_FILES, files // 10)
    clean = _REWRITE.format(files=files, lost_race="pass")
    racing = _REWRITE.format(files=files, lost_race="other_writer(snapshot)")
    return {
        "liquidlog, next version (1000 adds)": clean + _NEXT,
        f"liquidlog, commit of {files} removes and adds": clean + _COMMIT.format(attempts=1),
        "liquidlog, the same after a lost race": racing + _COMMIT.format(attempts=2),
        f"liquidlog, that commit with the second opinion of delta-rs, {files} files": clean
        + _RUN.format(files=files, groups=1, agreed=""),
        "liquidlog, the same where delta-rs agreed to the plan": clean
        + _RUN.format(files=files, groups=1, agreed="opinion.require(table.snapshot())"),
        f"liquidlog, {RUN_GROUPS} groups of {small} files, with it": _REWRITE.format(
            files=small, lost_race="pass"
        )
        + _RUN.format(files=small, groups=RUN_GROUPS, agreed=""),
        "liquidlog, checkpoint": """
table = Table.open(uri)
started, cpu_started = time.perf_counter(), time.process_time()
assert table.checkpoint().created
rows = None
""",
    }


def measure(step: str, code: str, uri: Path) -> dict[str, float]:
    """Run a step in a process of its own and return seconds, CPU seconds, peak MiB and rows.

    `reads` are the commits that it read from the log, 0 if it does not count them.
    """
    # As the command line begins: pandas, where there is one, takes longer to import than a table.
    ours = """
from liquidlog.startup import do_without_pandas
do_without_pandas()
from liquidlog.table import Table
"""
    program = f"""
import os, time, json
uri = {str(uri)!r}
reads = 0
started, cpu_started = time.perf_counter(), time.process_time()
{ours if step.startswith("liquidlog") else ""}
{code}
seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
# Of this process alone; ru_maxrss begins with what its parent had.
(peak,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps(dict(seconds=seconds, rows=rows, cpu_seconds=cpu_seconds,
    peak_mib=int(peak.split()[1]) / 1024, reads=reads)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(json.loads(done.stdout))


def _rows(found: dict[str, list[dict[str, float]]]) -> Iterator[str]:
    for step, rounds in found.items():
        middle = {
            key: sorted(one[key] for one in rounds)[len(rounds) // 2]
            for key in ("seconds", "cpu_seconds", "peak_mib", "reads")
        }
        yield (
            f"| {step} | {middle['seconds']:.1f} | {middle['cpu_seconds']:.1f}"
            f" | {middle['peak_mib']:.0f} | {middle['reads'] or ''} |"
        )


def bench(table: Path, files: int, rounds: int, only: str) -> dict[str, list[dict[str, float]]]:
    """Run the steps whose name contains `only`, in turns; return what each round measured."""
    changing = changing_steps(min(BIG_COMMIT_FILES, files // 10))
    steps = {step: code for step, code in {**STEPS, **changing}.items() if only in step}
    found: dict[str, list[dict[str, float]]] = {step: [] for step in steps}
    for _ in range(rounds):
        for step, measured in found.items():
            with tempfile.TemporaryDirectory(dir=table.parent) as directory:
                uri = table
                if step in changing:
                    uri = Path(directory) / "copy"
                    shutil.copytree(table, uri)
                measured.append(measure(step, steps[step], uri))
            assert measured[-1]["rows"] in {None, files}, step  # noqa: S101
    return found


def main() -> None:
    """Write a table of each size, run every step, print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", default="1000000", help="Live files; several as 100000,1000000.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="Write the tables here, once, and keep them.")
    parser.add_argument("--only", default="", help="Only steps whose name contains this.")
    options = parser.parse_args()
    for files in map(int, options.files.split(",")):
        with tempfile.TemporaryDirectory() as directory:
            table = (options.keep or Path(directory)) / f"files-{files}"
            if not table.exists():
                write_table(table, files)
            found = bench(table, files, options.rounds, options.only)
            size = sum(file.stat().st_size for file in (table / "_delta_log").iterdir())
        print(f"\n{files} files, {size >> 20} MiB of log, median of {options.rounds} turns\n")
        print("| step | seconds | CPU seconds | peak MiB | commits read |\n|---|---|---|---|---|")
        print("\n".join(_rows(found)), flush=True)


if __name__ == "__main__":
    started = time.perf_counter()
    main()
    print(f"{time.perf_counter() - started:.0f} s in all", file=sys.stderr)
