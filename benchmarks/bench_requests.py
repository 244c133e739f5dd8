"""Requests that plans, rewrites and vacuums send to S3, and what they cost at a price list.

An emulator of S3 (moto) counts them behind a proxy. The table has files of one size with random
numbers, which no codec shrinks; the executor is `local`. DELETE requests cost nothing on S3.

    PYTHONPATH=tests python benchmarks/bench_requests.py --files 24 --file-mib 8 --max-file-mib 64
"""

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from liquidlog.table import Table
from support.emulators import Emulator, Request, s3

MIB: Final = 1 << 20
COLUMNS: Final = 16
"""Numbers of 8 bytes in a row."""
PRICE_PER_REQUEST: Final[Mapping[str, float]] = {
    # USD in us-east-1, S3 Standard: docs/how-to/costs.md has the source and its date.
    "LIST": 0.005 / 1000,
    "PUT": 0.005 / 1000,
    "POST": 0.005 / 1000,
    "GET": 0.0004 / 1000,
    "HEAD": 0.0004 / 1000,
    "DELETE": 0.0,
}


def main() -> None:
    arguments = parse_arguments()
    with s3() as emulator, tempfile.TemporaryDirectory() as home:
        uri = emulator.new_table()
        table = made(uri, emulator, Path(home), arguments)
        max_file_bytes = arguments.max_file_mib * MIB
        steps: Mapping[str, Callable[[], object]] = {
            "health": lambda: opened(uri, emulator).health(),
            "plan": lambda: opened(uri, emulator).plan(max_file_size=max_file_bytes),
            "judge": lambda: opened(uri, emulator).judge(),
            "optimize": lambda: opened(uri, emulator).optimize(
                executor="local", max_file_size=max_file_bytes
            ),
            "vacuum": lambda: opened(uri, emulator).vacuum(retain="0s", allow_short_retention=True),
        }
        print(f"{arguments.files} files of {table.detail()['sizeInBytes'] / MIB:.0f} MiB in all\n")
        print("| step | " + " | ".join(PRICE_PER_REQUEST) + " | USD |")
        print("|---" * (len(PRICE_PER_REQUEST) + 2) + "|")
        for name, step in steps.items():
            emulator.proxy.clear()
            step()
            print(line(name, Counter(map(kind, emulator.proxy.requests))))
        print(f"\n{opened(uri, emulator).detail()['numFiles']} files afterwards")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=24)
    parser.add_argument("--file-mib", type=int, default=8)
    parser.add_argument("--max-file-mib", type=int, default=64)
    return parser.parse_args()


def opened(uri: str, emulator: Emulator) -> Table:
    return Table.open(uri, storage_options=emulator.options)


def made(uri: str, emulator: Emulator, home: Path, arguments: argparse.Namespace) -> Table:
    random = np.random.default_rng(seed=1)
    names = [f"c{number}" for number in range(COLUMNS)]
    rows = arguments.file_mib * MIB // (COLUMNS * 8)
    paths = []
    for number in range(arguments.files):
        columns = [random.integers(0, 1 << 62, rows) for _ in names]
        paths.append(home / f"{number}.parquet")
        pq.write_table(pa.table(columns, names=names), paths[-1], compression="none")
    schema = pq.read_schema(paths[0])
    options = emulator.options
    table = Table.create(uri, schema=schema, cluster_by=["c0", "c1"], storage_options=options)
    table.append(paths)
    return table


def kind(request: Request) -> str:
    """Return the name under which S3 bills a request."""
    is_list = request.method == "GET" and "list-type=" in request.target
    return "LIST" if is_list else request.method


def line(name: str, counts: Mapping[str, int]) -> str:
    """Return the requests and the price of a step, as a row of a table."""
    usd = sum(count * PRICE_PER_REQUEST[method] for method, count in counts.items())
    numbers = [str(counts.get(method, 0)) for method in PRICE_PER_REQUEST]
    return f"| {name} | {' | '.join(numbers)} | {usd:.6f} |"


if __name__ == "__main__":
    main()
