"""Cluster TPC-H lineitem: generated data in, rewritten on Spark, read back by other engines.

Everything happens below `.demo`. Commands that a user would type are shown as typed; the tables
that compare before and after come from the Python API.
"""

import json
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from rich.console import Console
from rich.markup import escape
from rich.table import Table as Grid

from liquidlog import Table

HOME: Final = Path(".demo")
GENERATED: Final = HOME / "generated"
TABLE: Final = HOME / "lineitem"
RANGES: Final = HOME / "ranges.json"

SCALE_FACTOR: Final = "1"
PARTS: Final = 24
APPENDS: Final = 6
COLUMNS: Final = "l_shipdate,l_partkey"
MAX_FILE_SIZE: Final = "8MiB"

BOX: Final = {
    "min": {"l_shipdate": "1997-01-01", "l_partkey": 40000},
    "max": {"l_shipdate": "1997-06-30", "l_partkey": 60000},
}
PREDICATES: Final = (
    "l_shipdate BETWEEN DATE '1995-03-01' AND DATE '1995-03-31'",
    "l_partkey = 155190",
    (
        "l_shipdate BETWEEN DATE '1997-01-01' AND DATE '1997-06-30'"
        " AND l_partkey BETWEEN 40000 AND 60000"
    ),  # BOX, in SQL
)
MEASURES: Final = "count(*), sum(l_quantity), sum(l_extendedprice)"

console: Final = Console(highlight=False)


def main() -> int:
    """Run the demo; return 1 if two engines disagree about the data."""
    started = time.perf_counter()
    shutil.rmtree(HOME, ignore_errors=True)

    _say("Generate TPC-H lineitem, about six million rows")
    generated = _generate()

    _say("Make a Delta table of its schema and append it in steps")
    _liquidlog("create", TABLE, "--schema-from", generated[0])
    for step in range(APPENDS):
        _append(generated, step)

    _say("Cluster it: this changes the log, and rewrites nothing yet")
    _liquidlog("cluster-by", TABLE, COLUMNS, "--yes")
    _liquidlog("health", TABLE)
    before = _to_read()
    ranges_before = _ranges()

    _say("Look at what an OPTIMIZE would rewrite, then do it on Spark")
    _liquidlog("plan", TABLE, "--max-file-size", MAX_FILE_SIZE)
    _liquidlog("optimize", TABLE, "--max-file-size", MAX_FILE_SIZE)
    _liquidlog("health", TABLE, "--cubes")
    _liquidlog("health", TABLE)
    recording = {"query": BOX, "before": ranges_before, "after": _ranges()}
    RANGES.write_text(json.dumps(recording, indent=1) + "\n", encoding="utf-8")

    _say("What a reader must open for three queries, before and after")
    _compare(before, _to_read())

    _say("Other engines read the result")
    agree = _engines_agree(generated)
    console.print(f"\n[dim]{time.perf_counter() - started:.0f} seconds in all[/]")
    return 0 if agree else 1


def _generate() -> list[Path]:
    options = ["parquet", "-s", SCALE_FACTOR, "--tables", "lineitem", "--parts", str(PARTS)]
    options += ["--output-dir", str(GENERATED)]
    _show("tpchgen-cli", *options)
    subprocess.run([_script("tpchgen-cli"), *options], check=True)
    return [GENERATED / "lineitem" / f"lineitem.{part}.parquet" for part in range(1, PARTS + 1)]


def _append(generated: Sequence[Path], step: int) -> None:
    size = len(generated) // APPENDS
    parts = generated[step * size : (step + 1) * size]
    braces = f"{{{step * size + 1}..{(step + 1) * size}}}"
    _show("liquidlog", "append", str(TABLE), str(parts[0].with_name(f"lineitem.{braces}.parquet")))
    _run("append", TABLE, *parts)


def _to_read() -> Mapping[str, tuple[int, int]]:
    """Return for each predicate the files that may hold a match, and their bytes."""
    table = Table.open(str(TABLE))
    scans = {predicate: table.scan(predicate).files for predicate in PREDICATES}
    return {
        predicate: (files.num_rows, pc.sum(files["size_bytes"]).as_py() or 0)
        for predicate, files in scans.items()
    }


def _ranges() -> list[Mapping[str, Any]]:
    """Return the smallest and largest clustering values of every live file."""
    files = json.loads(_output("files", TABLE, "--json"))["files"]
    return [{"min": file["min"], "max": file["max"], "state": file["state"]} for file in files]


def _compare(before: Mapping[str, tuple[int, int]], after: Mapping[str, tuple[int, int]]) -> None:
    grid = Grid("predicate", title=f"to read, clustered by {COLUMNS}", title_justify="left")
    for heading in ("files before", "after", "MiB before", "after", "of the table"):
        grid.add_column(heading, justify="right", no_wrap=True)
    size_bytes = Table.open(str(TABLE)).detail()["sizeInBytes"]
    for predicate in PREDICATES:
        (files, read_bytes), (files_after, bytes_after) = before[predicate], after[predicate]
        numbers = (str(files), str(files_after), _mib(read_bytes), _mib(bytes_after))
        grid.add_row(escape(predicate), *numbers, f"{bytes_after / size_bytes:.1%}")
    console.print(grid)


def _engines_agree(generated: Sequence[Path]) -> bool:
    live = [
        str(TABLE / file["path"]) for file in json.loads(_output("files", TABLE, "--json"))["files"]
    ]
    answers = {
        "DuckDB over the generated files": _duckdb([str(path) for path in generated]),
        "DuckDB over the live files": _duckdb(live),
        f"delta-rs scan() at version {DeltaTable(TABLE).version()}": _delta_rs(),
    }
    grid = Grid("engine")
    for heading in ("rows", "sum(l_quantity)", "sum(l_extendedprice)"):
        grid.add_column(heading, justify="right")
    for engine, answer in answers.items():
        grid.add_row(engine, *(f"{value:,}" for value in answer))
    console.print(grid)
    agree = len(set(answers.values())) == 1
    console.print("[green]All three agree.[/]" if agree else "[red]They differ.[/]")
    return agree


def _duckdb(paths: list[str]) -> tuple[Any, ...]:
    query = f"select {MEASURES} from read_parquet(?)"  # noqa: S608 - a constant of this module
    return duckdb.connect().execute(query, [paths]).fetchall()[0]


def _delta_rs() -> tuple[int, Decimal, Decimal]:
    """Sum delta-rs's stream batch by batch."""
    rows, quantity, price = 0, Decimal(0), Decimal(0)
    stream = DeltaTable(TABLE).scan(columns=["l_quantity", "l_extendedprice"])
    for batch in pa.RecordBatchReader.from_stream(stream):
        rows += batch.num_rows
        quantity += pc.sum(batch["l_quantity"]).as_py()
        price += pc.sum(batch["l_extendedprice"]).as_py()
    return rows, quantity, price


def _liquidlog(*arguments: str | Path) -> None:
    """Show a command as typed and run it on this terminal."""
    _show("liquidlog", *(str(argument) for argument in arguments))
    _run(*arguments)


def _run(*arguments: str | Path) -> None:
    subprocess.run([_script("liquidlog"), *arguments], check=True)


def _output(*arguments: str | Path) -> str:
    command = [_script("liquidlog"), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _script(name: str) -> str:
    return str(Path(sysconfig.get_path("scripts")) / name)


def _say(headline: str) -> None:
    console.rule(f"[bold]{headline}", align="left")


def _show(*words: str) -> None:
    console.print(f"[bold green]$[/] {escape(' '.join(words))}", soft_wrap=True)


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f}"


if __name__ == "__main__":
    sys.exit(main())
