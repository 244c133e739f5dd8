"""Compare predictions of plans, and their ranges, with what readers open after the rewrite.

Tables of TPC-H are appended in 24 files, and the tables of a recorded workload file by file. Each
case clusters one of them, is planned, predicted, rewritten on a local Spark, and asked again.
Predicates are points and ranges of 1 % of the values of each column of the case, drawn from the
data with a fixed seed, alone and in pairs; readers of single values are asked too. Rewritten tables
are kept in --home; a second run only predicts.

A range should contain nine of ten true numbers. Model errors were fitted to the cases of some
tables; those of others judge the errors in `foresee/plans.py`: see TABLES.

python benchmarks/bench_prediction.py --scale 0.3
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import liquidspark
from liquidlog import Table
from liquidlog.foresee.verdict import Prediction, Range
from liquidlog.plan import decode_plan, encode_plan
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.spec.schema import leaves
from liquidspark.session import open_session

SEED = 20261121
PREDICATES = 20
PARTS = 24
OUTPUTS = 24
PLAIN = {"string_view": pa.string(), "timestamp[ns]": pa.timestamp("us", "UTC")}


@dataclass(frozen=True)
class Case:
    """A table, its clustering columns, other columns that are asked for, and a plan's policy."""

    table: str
    columns: str
    policy: Mapping[str, Any] = field(default_factory=dict)
    others: str = ""

    def __str__(self) -> str:
        asked = ", ".join(f"{name} {value}" for name, value in self.policy.items())
        also = f"; asked for {self.others}" if self.others else ""
        return f"{self.columns}{f' ({asked})' if asked else ''}{also}"

    @property
    def asked(self) -> list[str]:
        """The columns that readers ask for."""
        return (self.others or self.columns).split(",")


CASES = (
    Case("lineitem", "l_shipdate,l_partkey"),
    Case("lineitem", "l_shipdate,l_partkey", {"curve": "kd"}),
    Case("lineitem", "l_shipdate,l_partkey,l_shipmode"),
    Case("lineitem", "l_extendedprice"),
    Case("lineitem", "l_comment"),
    Case("lineitem", "l_shipdate,l_partkey", {"strategy": "overlap", "budget": "third"}),
    Case("lineitem", "l_shipdate,l_partkey", others="l_receiptdate,l_orderkey,l_suppkey"),
    Case("lineitem", "l_shipmode,l_suppkey", {"prefix": "l_shipmode"}),
    Case("orders", "o_orderdate,o_custkey"),
    Case("orders", "o_orderdate,o_custkey,o_totalprice", {"curve": "kd"}),
    Case("orders", "o_clerk"),
    Case("orders", "o_orderpriority,o_orderdate"),
    Case("orders", "o_orderdate,o_custkey", others="o_orderkey,o_totalprice"),
    Case("orders", "o_orderdate,o_custkey", {"strategy": "overlap", "budget": "third"}),
    Case("events", "day,user_id"),
    Case("events", "user_id,country"),
    Case("events", "ts"),
    Case("events", "day,user_id,country", {"curve": "kd"}),
    Case("events", "day,user_id", others="ts,amount,url"),
    Case("users", "signup"),
    Case("users", "segment,signup"),
    Case("users", "signup", others="user_id,segment"),
    Case("customer", "c_mktsegment,c_acctbal"),
    Case("customer", "c_nationkey,c_acctbal", others="c_custkey,c_phone"),
    Case("customer", "c_phone"),
    Case("part", "p_size,p_retailprice"),
    Case("part", "p_brand,p_type"),
    Case("part", "p_retailprice", others="p_partkey,p_brand"),
)

TABLES = {"fitted to": ("lineitem", "events", "users"), "judged by": ("orders", "customer", "part")}
"""The tables to whose cases model errors were fitted, and others."""


def main() -> None:
    """Rewrite every case that is not there yet, and print tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench"))
    parser.add_argument("--scale", default="0.3")
    parser.add_argument("--workload", type=Path, default=Path("fixtures/workload"))
    parser.add_argument("--case", default="", help="Only cases that have this in their names.")
    arguments = parser.parse_args()
    home = arguments.home / f"prediction {arguments.scale}"
    sources = dict(inputs(home, arguments.scale, arguments.workload))
    cases = [case for case in CASES if case.table in sources and arguments.case in str(case)]
    for table in sorted({case.table for case in CASES} - sources.keys()):
        print(f"no files of {table}: left out", file=sys.stderr)
    missing = [case for case in cases if not plan_path(home, case).exists()]
    if missing:
        with open_session({"spark.driver.memory": "4g"}) as spark:
            for case in missing:
                rewrite(spark, case, sources[case.table], home)
    report([one for case in cases for one in measured(case, sources[case.table], home)])


def inputs(home: Path, scale: str, workload: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the tables that there are, with their Parquet files; TPC-H is generated once."""
    for table in ("lineitem", "orders", "customer", "part"):
        directory = home / table
        if not directory.exists():
            tool = Path(sys.executable).parent / "tpchgen-cli"
            options = ["--scale-factor", scale, "--tables", table, "--parts", str(PARTS)]
            command = [tool, "parquet", *options, "--output-dir", directory]
            subprocess.run(command, check=True)
        yield table, sorted(map(str, directory.rglob("*.parquet")))
    for table in ("events", "users"):
        files = sorted(map(str, (workload / "tables" / table).glob("*.parquet")))
        if files:
            yield table, files


def table_path(home: Path, case: Case) -> Path:
    """Return where the table of a case is."""
    policy = "".join(f" {name}={value}" for name, value in case.policy.items())
    return home / f"{case.table} {case.columns}{policy}"


def plan_path(home: Path, case: Case) -> Path:
    """Return where the plan of a case is saved once its table is rewritten."""
    return Path(f"{table_path(home, case)} plan.json")


def rewrite(spark: SparkSession, case: Case, files: Sequence[str], home: Path) -> None:
    """Make the table of a case, rewrite it and save the plan."""
    if plan_path(home, case).exists():
        return
    path = table_path(home, case)
    shutil.rmtree(path, ignore_errors=True)
    rows = [plain(pq.read_table(file)) for file in files]
    table = Table.create(
        str(path.resolve()), schema=rows[0].schema, cluster_by=case.columns.split(",")
    )
    for part in rows:
        table.append([part])
    size_bytes = int(table.detail()["sizeInBytes"])
    policy = dict(case.policy)
    if "budget" in policy:
        policy["budget"] = size_bytes // 3
    if "prefix" in policy:
        policy["prefix"] = [policy["prefix"]]
    plan = table.plan(max_file_size=size_bytes // OUTPUTS, **policy)
    table.commit(plan, liquidspark.execute(spark, plan))
    plan_path(home, case).write_bytes(encode_plan(plan))
    print(f"rewrote {case.table} by {case}", file=sys.stderr, flush=True)


def plain(rows: pa.Table) -> pa.Table:
    """Return rows with types that tables have."""
    fields = [pa.field(field.name, PLAIN.get(str(field.type), field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields))


@dataclass(frozen=True)
class Measured:
    """What was predicted of a case, from statistics or rows, and what came true.

    `ones` has per predicate whether its bytes lie in their range, the width of the range as a
    multiple of the prediction, and true / predicted bytes.
    """

    case: Case
    is_sampled: bool
    found: Prediction
    narrow: Prediction
    true_bytes: float
    true_narrow_bytes: float
    ones: tuple[tuple[bool, float, float], ...]


def measured(case: Case, files: Sequence[str], home: Path) -> Iterator[Measured]:
    """Yield what was predicted of a rewritten table, from statistics and from rows."""
    table = Table.open(str(table_path(home, case)))
    plan = decode_plan(plan_path(home, case).read_bytes(), where=str(case))
    asked = tuple(workload(files, case.asked))
    true = table.scan(workload=asked)
    for is_sampled in (False, True):
        found = table.predict(plan, asked, sample=is_sampled)
        ones = tuple(
            (
                holds(one.bytes_after_range, is_read.bytes),
                width(one.bytes_after_range, one.bytes_after),
                is_read.bytes / one.bytes_after,
            )
            for one, is_read in zip(found.predicates, true.predicates, strict=True)
            if one.bytes_after
        )
        narrow = table.predict(plan, sample=is_sampled)
        narrow_bytes = read_by_narrow(table, files, case.columns.split(","))
        yield Measured(case, is_sampled, found, narrow, true.bytes_read, narrow_bytes, ones)


def read_by_narrow(table: Table, files: Sequence[str], columns: Sequence[str]) -> float:
    """Return the bytes that readers of one value of a column open, by the values of all rows."""
    rows = pa.concat_tables([plain(pq.read_table(file, columns=list(columns))) for file in files])
    snapshot = table.snapshot()
    known = {leaf.logical: leaf for leaf in leaves(snapshot.schema)}
    bounds = table.bounds_of(snapshot)([known[(name,)] for name in columns])
    size_bytes = snapshot.files["size"].to_numpy()
    opened = []
    for number, name in enumerate(columns):
        values = rows[name].combine_chunks().drop_null()
        numbers = pc.rank(
            pa.concat_arrays([values, bounds.low(number), bounds.high(number)]), tiebreaker="dense"
        ).to_numpy()
        low, high = np.split(numbers[len(values) :], 2)
        by_low, by_high = np.argsort(low), np.argsort(high)
        begun = np.append(0, np.cumsum(size_bytes[by_low]))
        ended = np.append(0, np.cumsum(size_bytes[by_high]))
        asked = numbers[: len(values)]
        first = begun[np.searchsorted(low[by_low], asked, side="right")]
        opened.append((first - ended[np.searchsorted(high[by_high], asked)]).mean())
    return float(np.mean(opened))


def holds(found: Range, number: float) -> bool:
    """Return whether a range has a number."""
    return found.low <= number <= found.high


def width(found: Range, likely: float) -> float:
    """Return the width of a range as a multiple of the prediction."""
    return (found.high - found.low) / likely


def report(found: Sequence[Measured]) -> None:
    """Print a row per case, and how often ranges hold, per table and kind of prediction."""
    print("| table | case | from | before | predicted | range | true | in range | predicates in |")
    print("|---|---|---|---|---|---|---|---|---|")
    for one in found:
        ends = one.found.bytes_after_range
        inside = np.mean([is_in for is_in, *_ in one.ones])
        cells = (
            one.case.table,
            str(one.case),
            "rows" if one.is_sampled else "statistics",
            mib(one.found.bytes_before),
            mib(one.found.bytes_after),
            f"{mib(ends.low)} to {mib(ends.high)}",
            mib(one.true_bytes),
            "yes" if holds(ends, one.true_bytes) else "no",
            f"{inside:.0%}",
        )
        print(f"| {' | '.join(cells)} |")
    print()
    print(
        "| tables | from | predicates in range | median width | means in range | median width"
        " | narrow readers in range | median width |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for use, tables in TABLES.items():
        some = [one for one in found if one.case.table in tables]
        for is_sampled in (False, True):
            summed(f"{use}: {', '.join(tables)}", some, is_sampled=is_sampled)


def summed(tables: str, found: Sequence[Measured], *, is_sampled: bool) -> None:
    """Print how often the ranges of some tables hold, and how wide they are."""
    some = [one for one in found if one.is_sampled == is_sampled]
    if not some:
        return
    ones = [each for one in some for each in one.ones]
    means = [(one.found, one.true_bytes) for one in some]
    narrow = [(one.narrow, one.true_narrow_bytes) for one in some]
    cells = [tables, "rows" if is_sampled else "statistics"]
    cells += [f"{np.mean([is_in for is_in, *_ in ones]):.0%} of {len(ones)}"]
    cells += [f"{np.median([across for _, across, _ in ones]):.2f}"]
    for pairs in (means, narrow):
        inside = [holds(one.bytes_after_range, true) for one, true in pairs]
        cells += [f"{sum(inside)} of {len(inside)}"]
        across = [width(one.bytes_after_range, one.bytes_after) for one, _ in pairs]
        cells += [f"{np.median(across):.2f}"]
    print(f"| {' | '.join(cells)} |")


def mib(size_bytes: float) -> str:
    """Return bytes in MiB."""
    return f"{size_bytes / 2**20:.2f} MiB"


def workload(files: Sequence[str], columns: Sequence[str]) -> Iterator[WeightedPredicate]:
    """Yield points and ranges of 1 % of the values of each column, and pairs of ranges."""
    random = np.random.default_rng(SEED)
    rows = pa.concat_tables([plain(pq.read_table(file, columns=list(columns))) for file in files])
    share = rows.num_rows // 100
    wide = []
    for column in columns:
        values = rows[column].combine_chunks().drop_null()
        ordered = values.take(pc.sort_indices(values))
        points, starts = random.integers(0, len(ordered) - share, (2, PREDICATES))
        for point, start in zip(points.tolist(), starts.tolist(), strict=True):
            low, high = (literal(ordered[place]) for place in (start, start + share))
            wide.append(f"{column} BETWEEN {low} AND {high}")
            yield WeightedPredicate(f"{column} = {literal(ordered[point])}")
            yield WeightedPredicate(wide[-1])
    if len(columns) > 1:
        for first, second in enumerate(random.integers(PREDICATES, 2 * PREDICATES, PREDICATES)):
            yield WeightedPredicate(f"{wide[first]} AND {wide[second]}")


def literal(value: pa.Scalar) -> str:
    """Return a value in SQL."""
    text = str(value.as_py())
    quoted = "'" + text.replace("'", "''") + "'"
    if pa.types.is_date(value.type):
        return f"DATE {quoted}"
    if pa.types.is_timestamp(value.type):
        return f"TIMESTAMP {quoted}"
    return quoted if pa.types.is_string(value.type) else text


if __name__ == "__main__":
    main()
