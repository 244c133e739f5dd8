"""Opening and planning a table of many files, beside delta-rs opening the same table.

python benchmarks/bench_log.py --files 1000000
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA_STRING = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": "long", "nullable": True, "metadata": {}} for name in "abcd"
        ],
    }
)
DOMAIN = '{"clusteringColumns":[["a"],["b"]],"domainName":"delta.clustering"}'
FILES_IN_A_CUBE = 500
PROTOCOL = {
    "minReaderVersion": 1,
    "minWriterVersion": 7,
    "writerFeatures": ["domainMetadata", "clustering", "invariants", "appendOnly"],
}
PROTOCOL_TYPE = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
MAP = pa.map_(pa.string(), pa.string())

STEPS = {
    "liquidlog, snapshot": """
from liquidlog.table import Table
rows = Table.open(uri).snapshot().files.num_rows
""",
    "liquidlog, plan": """
from liquidlog.table import Table
plan = Table.open(uri).plan(min_cube_size=1, target_cube_size="1TiB")
rows = len(plan.skipped) + sum(len(group.inputs) for group in plan.groups)
""",
    "liquidlog, health": """
from liquidlog.table import Table
rows = Table.open(uri).health().total_file_count
""",
    "delta-rs, open and list": """
from deltalake import DeltaTable
import pyarrow as pa
rows = pa.table(DeltaTable(uri).get_add_actions(flatten=True)).num_rows
""",
}


def write_table(directory: Path, files: int) -> None:
    log = directory / "_delta_log"
    log.mkdir(parents=True)
    random = np.random.default_rng(0)
    low = random.integers(0, 10**9, (files, 4))
    high = low + 10**6
    stats = [
        f'{{"numRecords":1000,"minValues":{{"a":{a},"b":{b},"c":{c},"d":{d}}},'
        f'"maxValues":{{"a":{e},"b":{f},"c":{g},"d":{h}}},"nullCount":{{"a":0,"b":0,"c":0,"d":0}}}}'
        for (a, b, c, d), (e, f, g, h) in zip(low.tolist(), high.tolist(), strict=True)
    ]
    tagged = np.arange(files) % 2 == 0
    cubes = [
        f"{number // FILES_IN_A_CUBE:08d}-0000-4000-8000-000000000000" for number in range(files)
    ]
    tags = [
        [("ZCUBE_ID", cube), ("ZCUBE_ZORDER_BY", '["a","b"]')] if tag else None
        for cube, tag in zip(cubes, tagged, strict=True)
    ]
    add = pa.StructArray.from_arrays(
        [
            pa.array([f"part-{number:08d}.zstd.parquet" for number in range(files)]),
            pa.array([[]] * files, MAP),
            pa.array(random.integers(10**6, 10**9, files)),
            pa.array(np.full(files, 10**12)),
            pa.array(np.full(files, fill_value=False)),
            pa.array(stats),
            pa.array(tags, MAP),
            pa.array(["liquid" if tag else None for tag in tagged]),
        ],
        names=[
            "path",
            "partitionValues",
            "size",
            "modificationTime",
            "dataChange",
            "stats",
            "tags",
            "clusteringProvider",
        ],
    )
    head = pa.table(
        {
            "protocol": pa.array([PROTOCOL], PROTOCOL_TYPE),
            "metaData": pa.array(
                [
                    {
                        "id": "bench",
                        "format": {"provider": "parquet", "options": []},
                        "schemaString": SCHEMA_STRING,
                        "partitionColumns": [],
                        "configuration": [],
                        "createdTime": 0,
                    }
                ],
                pa.struct(
                    [
                        ("id", pa.string()),
                        (
                            "format",
                            pa.struct([("provider", pa.string()), ("options", MAP)]),
                        ),
                        ("schemaString", pa.string()),
                        ("partitionColumns", pa.list_(pa.string())),
                        ("configuration", MAP),
                        ("createdTime", pa.int64()),
                    ]
                ),
            ),
            "domainMetadata": [
                {"domain": "delta.clustering", "configuration": DOMAIN, "removed": False}
            ],
        }
    )
    checkpoint = pa.concat_tables([head, pa.table({"add": add})], promote_options="default")
    pq.write_table(checkpoint, log / f"{0:020d}.checkpoint.parquet", row_group_size=50_000)
    hint = {"version": 0, "size": files + 3}
    (log / "_last_checkpoint").write_text(json.dumps(hint))
    (log / f"{0:020d}.json").write_text('{"commitInfo":{}}\n')


def measure(step: str, uri: Path) -> dict[str, float]:
    code = f"""
import time, resource, json
uri = {str(uri)!r}
started = time.perf_counter()
{STEPS[step]}
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps(dict(seconds=time.perf_counter() - started, rows=rows,
    cpu_seconds=used.ru_utime + used.ru_stime, peak_mib=used.ru_maxrss / 1024)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        uri = Path(directory) / "table"
        write_table(uri, options.files)
        found: dict[str, list[dict[str, float]]] = {step: [] for step in STEPS}
        for _ in range(options.rounds):
            for step, rounds in found.items():
                rounds.append(measure(step, uri))
    print(f"{options.files} files, median of {options.rounds} alternating rounds")
    print("| step | seconds | CPU seconds | peak MiB |\n|---|---|---|---|")
    for step, rounds in found.items():
        assert all(one["rows"] == options.files for one in rounds), step  # noqa: S101
        middle = {key: sorted(one[key] for one in rounds)[len(rounds) // 2] for key in rounds[0]}
        print(
            f"| {step} | {middle['seconds']:.1f} | {middle['cpu_seconds']:.1f}"
            f" | {middle['peak_mib']:.0f} |"
        )


if __name__ == "__main__":
    started = time.perf_counter()
    main()
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        f"{time.perf_counter() - started:.0f} s in all, {used.ru_maxrss // 1024} MiB",
        file=sys.stderr,
    )
