"""Compare advised layouts with every candidate, really laid out over all rows.

A table and a workload are advised. Then every candidate that the advice measured is laid out by the
executor's own layout over all rows; a file's bounds are those of all its rows, and its bytes are
its share of the rows. On these bounds, predicates are evaluated: those of the workload, and others
of the same kinds that are asked later. With --spark, advised layouts are rewritten by Spark, too,
and read as `scan` does.

python benchmarks/bench_advice.py --lineitem DIRECTORY --events TABLE
"""

import argparse
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench_fitted import layout_of
from bench_layout import group_work

from liquidlog import Table
from liquidlog.advice import Advice, Candidate
from liquidlog.commit import system_clock
from liquidlog.foresee.sample import Laid
from liquidlog.foresee.verdict import opened_of_laid
from liquidlog.log.loader import open_store
from liquidlog.operations.advise import TableReaders, read_workload, table_readers
from liquidlog.predicates.workload import Recorded, WeightedPredicate, Workload
from liquidlog.spec.bounds import Bounds, ColumnBounds

SEED = 20261122
QUERIES = 60
LATER_QUERIES = 400
DAY_MS = 86_400_000

Random = np.random.Generator
Predicate = Callable[[Random, "Data"], str]


@dataclass(frozen=True)
class Data:
    """A table's rows in memory: leaves by their names, as predicates name them."""

    table: Table
    rows: pa.Table
    inputs: tuple[Path, ...]
    known: dict[str, tuple[pa.Array, npt.NDArray[np.int64]]] = field(default_factory=dict)

    def ranks(self, column: str) -> tuple[pa.Array, npt.NDArray[np.int64]]:
        """Return the sorted values of a column, and the rank of each row's; -1 is null."""
        if column not in self.known:
            encoded = self.rows[column].combine_chunks()
            if not pa.types.is_dictionary(encoded.type):
                encoded = encoded.dictionary_encode()
            order = pc.sort_indices(encoded.dictionary)
            rank = np.empty(len(order) + 1, np.int64)
            rank[np.asarray(order)], rank[-1] = np.arange(len(order)), -1
            rows = np.asarray(pc.fill_null(encoded.indices.cast(pa.int64()), -1))
            self.known[column] = encoded.dictionary.take(order), rank[rows]
        return self.known[column]

    def one(self, random: Random, column: str) -> str:
        """Return a value of a random row in SQL."""
        return literal(self.rows[column][int(random.integers(len(self.rows)))].as_py())

    def often(self, random: Random, column: str) -> str:
        """Return one of 20 values, the first of them far more often than the last."""
        place = min(int(random.zipf(1.5)), 20) * 7919 % len(self.rows)
        return literal(self.rows[column][place].as_py())


def literal(value: object) -> str:
    text = str(value).replace("'", "''")
    if hasattr(value, "hour"):
        return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S}Z'"
    if hasattr(value, "year"):
        return f"DATE '{text}'"
    return f"'{text}'" if isinstance(value, str) else text


def equal(column: str) -> Predicate:
    return lambda random, data: f"{column} = {data.one(random, column)}"


def skewed(column: str) -> Predicate:
    return lambda random, data: f"{column} = {data.often(random, column)}"


def span(column: str, length: str) -> Predicate:
    def where(random: Random, data: Data) -> str:
        first = data.one(random, column)
        return f"{column} >= {first} AND {column} < {first} + {length}"

    return where


def both(*some: Predicate) -> Predicate:
    return lambda random, data: " AND ".join(one(random, data) for one in some)


def text(where: str) -> Predicate:
    return lambda _random, _data: where


@dataclass(frozen=True)
class Mix:
    """Kinds of queries with shares, and those of the newest third if they are others."""

    name: str
    asked: tuple[tuple[float, Predicate], ...]
    later: tuple[tuple[float, Predicate], ...] = ()
    columns: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)

    def asks(self, data: Data) -> "Asks":
        """Return the workload, and queries of the newest kinds that are asked later."""
        random = np.random.default_rng(SEED)
        found = tuple(self._queries(random, data, QUERIES + LATER_QUERIES))
        return Asks(name=self.name, workload=found[:QUERIES], later=found[QUERIES:])

    def _queries(self, random: Random, data: Data, count: int) -> Iterator[WeightedPredicate]:
        for number in range(count):
            kinds = self.later if self.later and number >= QUERIES * 2 // 3 else self.asked
            shares = np.array([share for share, _ in kinds])
            kind = kinds[int(random.choice(len(kinds), p=shares / shares.sum()))][1]
            when = Recorded(first_ms=number * DAY_MS, last_ms=number * DAY_MS)
            yield WeightedPredicate(kind(random, data), recorded=when)


@dataclass(frozen=True, kw_only=True)
class Asks:
    """What was asked before, and what is asked later."""

    name: str
    workload: Workload
    later: Workload


DAY, PART, MODE = equal("l_shipdate"), equal("l_partkey"), equal("l_shipmode")
DAYS = span("l_shipdate", "INTERVAL 30 DAYS")
RECEIPT = span("l_receiptdate", "INTERVAL 7 DAYS")
COMMIT = span("l_commitdate", "INTERVAL 14 DAYS")
PRICE = span("l_extendedprice", "500")
SUPPLIER = equal("l_suppkey")
LINEITEM = (
    Mix("days", ((1, DAY),)),
    Mix("days and parts", ((0.5, DAY), (0.5, PART))),
    Mix("skewed: 95 % parts", ((0.95, PART), (0.05, DAY))),
    Mix(
        "skewed values of parts and days", ((0.5, skewed("l_partkey")), (0.5, skewed("l_shipdate")))
    ),
    Mix("modes, days and parts", ((0.4, MODE), (0.4, DAY), (0.2, PART))),
    Mix("mode and 30 days together", ((1, both(MODE, DAYS)),)),
    Mix("correlated: ship and receipt dates", ((0.5, DAYS), (0.5, RECEIPT))),
    Mix(
        "correlated: three dates, and parts",
        ((0.3, DAYS), (0.2, RECEIPT), (0.2, COMMIT), (0.3, PART)),
    ),
    Mix("days and parts together", ((1, both(DAYS, span("l_partkey", "20000"))),)),
    Mix("prices, days, suppliers", ((0.4, PRICE), (0.3, DAYS), (0.3, SUPPLIER))),
    Mix("drifting: days, then parts", ((1, DAY),), later=((1, PART),)),
    Mix("drifting: parts, then texts", ((1, PART),), later=((1, text("l_comment LIKE '%fox%'")),)),
    Mix(
        "nothing that prunes",
        ((1, text("lower(l_comment) = 'x'")), (1, text("l_comment LIKE '%a'"))),
    ),
    Mix("mostly everything", ((0.95, text("l_quantity >= 1")), (0.05, DAY))),
)
EVENTS = (
    Mix("days", ((1, equal("day")),)),
    Mix("days and users", ((0.5, equal("day")), (0.5, equal("user_id")))),
    Mix("countries and days", ((1, both(equal("country"), equal("day"))),)),
    Mix("correlated: days and times", ((0.5, equal("day")), (0.5, span("ts", "INTERVAL 1 DAY")))),
    Mix("skewed users and urls", ((0.7, skewed("user_id")), (0.3, skewed("url")))),
)
JOINS = """
SELECT sum(l.l_quantity) FROM `{uri}` l JOIN orders o ON l.l_orderkey = o.o_orderkey
WHERE l.l_shipdate >= {day} AND l.l_shipdate < {day} + INTERVAL 30 DAYS AND o.o_totalprice > 1000;
SELECT count(*) FROM part p JOIN `{uri}` l ON l.l_partkey = p.p_partkey
WHERE l.l_partkey = {part} AND p.p_size = 3;
"""


def joined(data: Data, home: Path) -> Asks:
    """Return what SQL with joins asks of lineitem."""
    random = np.random.default_rng(SEED)
    found = []
    for name, count in (("joins", QUERIES // 2), ("later joins", LATER_QUERIES // 2)):
        statements = [
            JOINS.format(
                uri=data.table.uri,
                day=data.one(random, "l_shipdate"),
                part=data.one(random, "l_partkey"),
            )
            for _ in range(count)
        ]
        path = home / f"{name}.sql"
        path.write_text("".join(statements))
        found.append(read_workload(str(path), table=data.table.uri))
    return Asks(name="joins", workload=found[0], later=found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench"))
    parser.add_argument("--lineitem", type=Path, help="a directory of Parquet files")
    parser.add_argument("--events", type=Path, help="a Delta table")
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--spark", type=int, default=0, help="rewrite so many advised layouts")
    arguments = parser.parse_args()
    arguments.home.mkdir(exist_ok=True)
    print(
        "| workload | advice | predicted | all rows | best of all | cost apart | bytes apart |"
        " later: all rows | later: best of all | later: cost apart | later: best gain | s |\n"
        f"|---|---|{'---:|' * 10}"
    )
    if arguments.lineitem:
        data = lineitem(arguments.lineitem, arguments.home / "advice lineitem")
        asked = [*(mix.asks(data) for mix in LINEITEM), joined(data, arguments.home)]
        compare("lineitem", data, asked, arguments.files, arguments.spark)
    if arguments.events:
        data = events(arguments.events, arguments.home / "advice events")
        asked = [mix.asks(data) for mix in EVENTS]
        compare("events", data, asked, arguments.files, 0)


def lineitem(directory: Path, home: Path) -> Data:
    files = sorted(directory.rglob("*.parquet"))
    shutil.rmtree(home, ignore_errors=True)
    table = Table.create(str(home.resolve()), schema=pq.read_schema(files[0]))
    for file in files:
        table.append([str(file)])
    return of_table(table)


def events(source: Path, home: Path) -> Data:
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(source, home)
    home.chmod(0o755)
    return of_table(Table.open(str(home.resolve())))


def of_table(table: Table) -> Data:
    # Names of files are drawn; their order of arrival is not.
    names = [
        path
        for version in range(table.snapshot().version + 1)
        for path in sorted(table.snapshot(version).paths().to_pylist())
    ]
    inputs = tuple(Path(table.uri) / path for path in dict.fromkeys(names))
    # INT96 is read in the unit of the table's timestamps.
    read = [
        pq.read_table(path, partitioning=None, coerce_int96_timestamp_unit="us") for path in inputs
    ]
    rows = pa.concat_tables(read)
    while any(pa.types.is_struct(one.type) for one in rows.schema):
        rows = rows.flatten()
    return Data(table=table, rows=rows.unify_dictionaries(), inputs=inputs)


def compare(name: str, data: Data, asked: Sequence[Asks], files: int, spark: int) -> None:
    size = data.table.snapshot().size_bytes // files
    truths: dict[Candidate, Laid] = {}
    worst: list[tuple[float, float]] = []
    for number, asks in enumerate(asked):
        began = time.monotonic()
        advice = data.table.advise(asks.workload, max_file_size=size)
        seconds = time.monotonic() - began
        line, apart = row(data, advice, asks, truths)
        worst += [] if apart is None else [apart]
        print(f"| {name}: {asks.name} | {line} | {seconds:.1f} |", flush=True)
        if number < spark and advice.recommended is not None:
            print(rewritten(data, advice, asks), flush=True)
    if worst:
        own, later = map(max, zip(*worst, strict=True))
        print(f"\n{name}: at most {own:.1%} apart, {later:.1%} for later queries\n")


def readers_of(data: Data, workload: Workload) -> TableReaders:
    snapshot = data.table.snapshot()
    store, now_ms = open_store(data.table.uri), system_clock().now_ms()
    return table_readers(store, snapshot, workload, now_ms=now_ms)


def row(
    data: Data, advice: Advice, asks: Asks, truths: dict[Candidate, Laid]
) -> tuple[str, tuple[float, float] | None]:
    if advice.best is None:
        return f"{advice.reason} | | | | | | | | |", None
    readers, later = readers_of(data, asks.workload), readers_of(data, asks.later)
    candidates = [one.candidate for one in advice.candidates]
    laid = [truth(data, readers, one, truths) for one in candidates]
    chosen = candidates.index(advice.best.candidate)
    own, own_best, _ = opened(data, readers, laid, chosen)
    then, then_best, gain = opened(data, later, laid, chosen)
    text = shown(advice.best.candidate) if advice.recommended else f"leave ({advice.reason[:48]})"
    cells = (
        f"{text} | {predicted_share(advice, readers):.2%} | {own.share:.2%} |"
        f" {own_best.share:.2%} {shown(candidates[own_best.number])} |"
        f" {own.cost / own_best.cost - 1:+.1%} | {own.share / own_best.least_share - 1:+.1%} |"
        f" {then.share:.2%} | {then_best.share:.2%} {shown(candidates[then_best.number])} |"
        f" {then.cost / then_best.cost - 1:+.1%} | {gain:+.0%}"
    )
    if advice.recommended is None:
        return cells, None
    return cells, (own.cost / own_best.cost - 1, then.cost / then_best.cost - 1)


@dataclass(frozen=True)
class Opened:
    """What the mean reading costs and reads with a layout, by its number among all."""

    number: int
    cost: float
    share: float
    least_share: float


def opened(
    data: Data, readers: TableReaders, laid: Sequence[Laid], chosen: int
) -> tuple[Opened, Opened, float]:
    """Return what is opened with the chosen layout and with the best, and the gain of the best."""
    leaves = readers.named.leaves
    # Columns in their order in the table: see `laid_out`.
    places = [data.rows.column_names.index(".".join(leaf.logical)) for leaf in leaves]
    some = [replace(one, bounds=one.bounds.select(places)) for one in laid]
    found = opened_of_laid(
        readers.snapshot, some, leaves, readers.wheres, readers.session, readers.now
    )
    every = np.array([one.weight for one in readers.readers.workload])
    costs = [readers.mean(one.seconds, every) for one in found]
    shares = [readers.mean(one.bytes, every) / readers.total_bytes for one in found]
    best = int(np.argmin(costs))
    gain = 1 - costs[best] / readers.mean(readers.now.seconds, every)
    of_both = [Opened(one, costs[one], shares[one], min(shares)) for one in (chosen, best)]
    return of_both[0], of_both[1], gain


def predicted_share(advice: Advice, readers: TableReaders) -> float:
    """Return the predicted share over all queries; `advice` has a best layout."""
    old, new = readers.halves.older.sum(), readers.halves.newest.sum()
    best = advice.best or advice.candidates[0]
    return float((best.older_read_share * old + best.read_share * new) / (old + new))


def shown(candidate: Candidate) -> str:
    names = "+".join(".".join(path) for path in candidate.columns)
    words = [names, candidate.curve.value]
    words += [f"prefix {'.'.join(path)}" for path in candidate.prefix]
    return " ".join([*words, *(["fitted"] if candidate.is_fitted else [])])


def truth(
    data: Data, readers: TableReaders, candidate: Candidate, truths: dict[Candidate, Laid]
) -> Laid:
    """Return the files of a candidate over all rows, with the bounds of all columns."""
    known = truths.get(candidate)
    if known is None:
        known = laid_out(data, readers, candidate)
        if not candidate.is_fitted:
            truths[candidate] = known
    return known


def laid_out(data: Data, readers: TableReaders, candidate: Candidate) -> Laid:
    total = int(readers.total_bytes)
    work = group_work(
        data.inputs, ["x"], max(1, total // candidate.max_file_bytes), candidate.curve
    )
    fitted = None
    if candidate.is_fitted:
        fitted = readers.fitted_readers(readers.halves.older, candidate.columns)
    layout, _ = layout_of(
        replace(
            work,
            columns=candidate.columns,
            readers=fitted,
            prefix=tuple(candidate.columns.index(path) for path in candidate.prefix),
            schema_string=readers.snapshot.metadata.schema_string,
        )
    )
    rows = np.arange(len(data.rows), dtype=np.uint64)
    keys = layout.keys_of([data.rows[".".join(path)] for path in candidate.columns])
    parts = layout.cuts.parts_of(keys, rows)
    order = np.argsort(parts.astype(np.uint16), kind="stable")
    starts = np.flatnonzero(np.diff(parts[order], prepend=-1))
    counts = np.diff(np.append(starts, len(order)))
    columns = tuple(bounds_of(data, name, order, starts) for name in data.rows.column_names)
    bounds = Bounds(columns=columns, num_records=pa.array(counts))
    return Laid(size_bytes=total * counts / len(order), bounds=bounds, scale=1.0)


def bounds_of(
    data: Data, name: str, order: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]
) -> ColumnBounds:
    """Return the bounds of a column in files that begin at `starts` of the rows in an order."""
    kind = data.rows.schema.field(name).type
    if pa.types.is_boolean(kind) or pa.types.is_nested(kind) or pa.types.is_binary(kind):
        nothing = pa.nulls(len(starts), kind)
        counts = pa.nulls(len(starts), pa.int64())
        return ColumnBounds(low=nothing, high=nothing, null_count=counts)
    values, ranks = data.ranks(name)
    ranks = ranks[order]
    top = np.maximum.reduceat(ranks, starts)
    low = np.minimum.reduceat(np.where(ranks < 0, len(values), ranks), starts)
    empty = top < 0
    return ColumnBounds(
        low=values.take(pa.array(low, mask=empty)),
        high=values.take(pa.array(top, mask=empty)),
        null_count=pa.array(np.add.reduceat((ranks < 0).astype(np.int64), starts)),
    )


def rewritten(data: Data, advice: Advice, asks: Asks) -> str:
    """Return what readers read after Spark has really written the advised layout."""
    import liquidspark
    from liquidlog.advice import decode_advice, encode_advice
    from liquidspark.session import open_session

    home = Path(data.table.uri).with_name("advice rewritten")
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(data.table.uri, home)
    table = Table.open(str(home))
    again = table.advise(
        asks.workload, max_file_size=advice.best.candidate.max_file_bytes if advice.best else None
    )
    table.apply_advice(again)
    plan = table.plan(advice=decode_advice(encode_advice(again), where="the advice"))
    with open_session({"spark.driver.memory": "4g"}) as spark:
        table.commit(plan, liquidspark.execute(spark, plan))
    own, later = (
        Table.open(str(home)).scan(workload=asked) for asked in (asks.workload, asks.later)
    )
    return (
        f"| rewritten by Spark | | | {own.bytes_read / own.total_bytes:.2%} | | | |"
        f" {later.bytes_read / later.total_bytes:.2%} | | | | |"
    )


if __name__ == "__main__":
    main()
