"""Write amplification and bytes read of each strategy over the three append workloads.

python benchmarks/bench_rounds.py --rounds 100

Prints the tables of RESULTS.md and, with --plots DIRECTORY, saves one picture per workload.
"""

import argparse
from pathlib import Path

from courses import plot
from rounds import EVERYTHING, SCENARIOS, Contender, Course, Setting, empty_table, simulate

from liquidlog.plan import ClusteringPolicy

MIB = 1 << 20
GIB = 1 << 30


def contenders(max_file_bytes: int) -> tuple[Contender, ...]:
    def policy(min_cube_bytes: int, *, skip_clustered: bool = False) -> ClusteringPolicy:
        return ClusteringPolicy(
            skip_clustered=skip_clustered,
            min_cube_bytes=min_cube_bytes,
            target_cube_bytes=EVERYTHING if min_cube_bytes == 1 else min_cube_bytes * 3 // 2,
            max_file_bytes=max_file_bytes,
        )

    return (
        Contender(name="all (option 1)", strategy="cube", policy=policy(EVERYTHING)),
        Contender(name="new (option 2)", strategy="cube", policy=policy(1)),
        Contender(name="cube, 4 GiB (option 3)", strategy="cube", policy=policy(4 * GIB)),
        Contender(name="cube, 100 GiB (option 3)", strategy="cube", policy=policy(100 * GIB)),
        Contender(
            name="cube, 100 GiB, --skip-clustered",
            strategy="cube",
            policy=policy(100 * GIB, skip_clustered=True),
        ),
        Contender(name="overlap, 100 GiB", strategy="overlap", policy=policy(100 * GIB)),
    )


def line(course: Course) -> str:
    reads = [row.reads for row in course.rounds]
    narrow = [row.narrow_bytes_read / row.full_narrow_bytes_read for row in course.rounds]
    last = course.rounds[-1]
    return (
        f"| {course.contender.name} | {course.write_amplification:.2f}"
        f" | {sum(reads) / len(reads):.2f} | {max(reads):.3f} | {max(narrow):.2f}"
        f" | {last.files} / {last.full_files} | {last.files_read:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--append-mib", type=int, default=256)
    parser.add_argument("--plots", type=Path)
    arguments = parser.parse_args()
    print(
        "| workload, files | strategy | written / appended | reads, mean | max | all columns, max"
    )
    for max_file_bytes in (GIB, 128 * MIB):
        for scenario in SCENARIOS:
            setting = Setting(
                scenario=scenario,
                rounds=arguments.rounds,
                append_bytes=arguments.append_mib * MIB,
                max_file_bytes=max_file_bytes,
            )
            courses = simulate(setting, contenders(max_file_bytes), empty_table(2))
            name = f"{scenario}, {max_file_bytes // MIB} MiB"
            for course in courses:
                print(f"| {name} {line(course)}", flush=True)
            if arguments.plots is not None:
                title = f"{name} files, {arguments.rounds} rounds of {arguments.append_mib} MiB"
                target = arguments.plots / f"simulation-{scenario}-{max_file_bytes // MIB}.svg"
                target.write_text(plot(courses, title), encoding="utf-8")


if __name__ == "__main__":
    main()
