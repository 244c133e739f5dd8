"""Code blocks of the documents, run in the order of their page, in a directory of its own.

A block in `python` is executed, in one namespace per page; a block in `text` after it is what it
prints. One in `pycon` is an expression after `>>> ` and the error that it raises. A block in
`console` holds commands after `$ ` and what they print; its last line may be `[exit status N]`. A
block with a title is a file of that name. In what is printed, `…` stands for any words of a line
and, alone on a line, for any lines. Ids, times and durations may differ.

A comment before a block says what else there is to it: `<!-- not run: why -->`, or
`<!-- spark -->` for a block that needs a Spark session, or what one above it did.

Every page starts with the table of the tutorial, as it is before its rewrite, but for the tutorial,
and for the page about mistakes, which has tables of its own.

    PYTHONPATH=tests python -m support.examples [--spark] [PAGE…]

writes anew what commands print, where it is not what the page shows.
"""

import gzip
import re
import shlex
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from liquidlog.errors import LiquidlogError
from liquidlog.plan import encode_plan, encode_rewritten_group
from liquidlog.table import Table
from support.arrow_executor import execute
from support.commands import said
from support.logs import change_actions
from support.repository import ROOT

_BLOCK: Final = re.compile(
    r"(?:^<!-- (?P<note>spark|not run: .+?) -->\n+)?"
    r"^```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_COMMAND: Final = re.compile(
    r"^\$ (?P<line>(?:.*\\\n)*.*)\n?(?P<printed>(?:(?!\$ ).*\n?)*)", re.MULTILINE
)
_ANY_LINES: Final = "…"
_VARYING: Final = (
    # Longest first: the end of a data file's name may look like an id.
    (re.compile(r"part-[0-9a-f-]+\.c000"), "part-<id>.c000"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "<id>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "<time>"),
    (re.compile(r"\b\d+\.\d{1,3} s\b"), "<seconds> s"),
    (re.compile(r" +"), " "),
)

RUN: Final = frozenset({"python", "pycon", "console"})
TUTORIAL: Final = ROOT / "docs" / "tutorial.md"
MISTAKES: Final = ROOT / "docs" / "mistakes.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page: `code` between `start` and `end`, without its fences."""

    language: str
    code: str
    title: str | None
    note: str | None
    start: int
    end: int


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page's text, in order."""
    return [
        Block(
            language=found["language"],
            code=found["code"],
            title=found["title"],
            note=found["note"],
            start=found.start("code"),
            end=found.end("code"),
        )
        for found in _BLOCK.finditer(page)
    ]


def pages() -> list[Path]:
    """Return the documents with blocks to run, with or without Spark."""
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in documents if _has_blocks(path)]


def spark_pages() -> list[Path]:
    """Return the documents with blocks that need Spark."""
    return [path for path in pages() if any(block.note == "spark" for block in _of(path))]


def _has_blocks(path: Path) -> bool:
    return any(_is_run(block, spark=True) or _is_run(block, spark=False) for block in _of(path))


def _of(path: Path) -> list[Block]:
    return blocks(path.read_text(encoding="utf-8"))


def _is_run(block: Block, *, spark: bool) -> bool:
    if block.language not in RUN:
        return False
    return block.note == "spark" if spark else block.note is None


def prepare(page: Path, home: Path, template: Path) -> None:
    """Make what a page starts with; the template is the tutorial's table."""
    if page == MISTAKES:
        make_mistakes(home)
    elif page != TUTORIAL:
        shutil.copytree(template, home, dirs_exist_ok=True)


def run_page(page: str, home: Path, *, spark: object = None) -> int:
    """Run a page's blocks in the directory `home`; return how many were run.

    Raises:
        AssertionError: If a command or a program prints something else than the page says.
    """
    done = 0
    with chdir(home):
        for _, block, printed, shown in _executed(page, {"spark": spark}):
            assert matches(printed, shown), f"{block.code}\nprinted:\n{printed}"
            done += 1
    return done


def rewritten(page: str, home: Path, *, spark: object = None) -> str:
    """Return a page's text with what its commands print now, where it does not match."""
    changes = []
    with chdir(home):
        for (start, end), _, printed, shown in _executed(page, {"spark": spark}):
            if not matches(printed, shown):
                changes.append((start, end, printed + "\n" if printed else ""))
    for start, end, printed in reversed(changes):
        page = page[:start] + printed + page[end:]
    return page


def matches(printed: str, shown: str) -> bool:
    """Return whether what was printed is what a page shows, `…` and varying parts aside."""
    lines = []
    for line in _steady(shown):
        words = re.escape(line).replace(re.escape(_ANY_LINES), ".*")
        lines.append(r"(?:.*\n)*?" if line.strip() == _ANY_LINES else f"{words}\n")
    return (
        re.fullmatch("".join(lines), "".join(f"{line}\n" for line in _steady(printed))) is not None
    )


def _steady(text: str) -> list[str]:
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    return [line.rstrip() for line in text.strip().splitlines()]


Ran = tuple[tuple[int, int], Block, str, str]
"""Where in the page it stands, the block, what was printed, what the page shows."""


def _executed(page: str, names: dict[str, Any]) -> Iterator[Ran]:
    found = blocks(page)
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.title is not None:
            Path(block.title).write_text(block.code, encoding="utf-8")
        if _is_run(block, spark=False) or (names["spark"] and _is_run(block, spark=True)):
            yield from _RUNNERS[block.language](block, after, names)


def _python(block: Block, after: Block | None, names: dict[str, Any]) -> Iterator[Ran]:
    with redirect_stdout(StringIO()) as out:
        exec(compile(block.code, "<page>", "exec"), names)  # noqa: S102  our own examples
    if after is not None and after.language == "text":
        yield (after.start, after.end), block, out.getvalue().rstrip(), after.code
    else:
        yield (block.end, block.end), block, out.getvalue(), _ANY_LINES


def _pycon(block: Block, _: Block | None, names: dict[str, Any]) -> Iterator[Ran]:
    line, shown = block.code.removeprefix(">>> ").split("\n", 1)
    try:
        printed = repr(eval(line, names))  # noqa: S307  our own examples
    except LiquidlogError as error:
        printed = f"{type(error).__name__}: {error}".replace(str(Path.cwd()), "/data")
    yield (block.end - len(shown), block.end), block, printed, shown


def _console(block: Block, _: Block | None, names: dict[str, Any]) -> Iterator[Ran]:
    del names
    for command in _COMMAND.finditer(block.code):
        place = (block.start + command.start("printed"), block.start + command.end("printed"))
        yield place, block, _said(command["line"].replace("\\\n", " ")), command["printed"]


_RUNNERS: Final[Mapping[str, Callable[[Block, Block | None, dict[str, Any]], Iterator[Ran]]]] = {
    "python": _python,
    "pycon": _pycon,
    "console": _console,
}


def _said(line: str) -> str:
    words = shlex.split(line, comments=True)
    assert words[0] in {"liquidlog", "cat"}, f"not a command that pages run: {line}"
    if words[0] == "cat":
        return Path(words[1]).read_text(encoding="utf-8").rstrip()
    status, out, err = said(*words[1:])
    text = (out + err).rstrip().replace(str(Path.cwd()), "/data")
    return f"{text}\n[exit status {status}]".lstrip() if status else text


@contextmanager
def _session(*, wanted: bool) -> Iterator[object]:
    if not wanted:
        yield None
        return
    from liquidspark.session import open_session

    with open_session({"spark.master": "local[2]"}) as spark:
        yield spark


def main(arguments: list[str]) -> None:
    """Write pages anew, all if none is named, with what their commands print now."""
    named = [(ROOT / name).resolve() for name in arguments if not name.startswith("--")]
    with tempfile.TemporaryDirectory() as scratch, _session(wanted="--spark" in arguments) as spark:
        template = Path(scratch).resolve() / "template"
        template.mkdir()
        rewritten(TUTORIAL.read_text(encoding="utf-8"), template)
        for number, page in enumerate(named or pages()):
            home = Path(scratch).resolve() / str(number)
            home.mkdir()
            prepare(page, home, template)
            text = rewritten(page.read_text(encoding="utf-8"), home, spark=spark)
            page.write_text(text, encoding="utf-8")


# The tables and files that docs/mistakes.md is about


def make_mistakes(home: Path) -> None:
    """Make them in an empty directory."""
    rows = pa.table(
        {
            "order_id": list(range(40)),
            "customer": [f"c{number % 7}" for number in range(40)],
            "day": pa.array([19_700 + number // 4 for number in range(40)], pa.date32()),
            "amount": [number * 1.5 for number in range(40)],
            "lines": [[{"sku": "a", "count": 1}]] * 40,
            "ship": [{"city": "Rome", "zip": 1}] * 40,
            "notes": [[("a", "b")]] * 40,
        },
        schema=_ORDERS,
    )
    pq.write_table(rows, home / "orders.parquet")
    pq.write_table(rows.drop_columns(["amount"]), home / "no_amount.parquet")
    pq.write_table(rows.rename_columns(_RENAMED), home / "other_names.parquet")
    orders = Table.create(home / "orders", schema=_ORDERS, cluster_by=["day", "customer"])
    for _ in range(3):
        orders.append(rows)
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("kind", pa.string())])
    mapped = {"delta.columnMapping.mode": "name"}
    events = Table.create(home / "events", schema=schema, properties=mapped)
    events.append(pa.table({"at": [0, 1], "kind": ["a", "b"]}, schema=schema))
    Table.create(home / "sensors", schema=pa.schema([("at", pa.int64())]), cluster_by="at")
    empty = pa.schema([("region", pa.string()), ("name", pa.string())]).empty_table()
    write_deltalake(home / "parts", empty, partition_by=["region"])
    write_deltalake(home / "shared", empty)
    change_actions(home / "shared", 0, _unsupported)
    _documents(home, orders, events)
    (home / "lake").mkdir()
    for number in range(2):
        pq.write_table(rows, home / "lake" / f"part-{number}.parquet")
    (home / "empty").mkdir()
    (home / "empty.parquet").touch()
    (home / "notes.txt").write_text("buy milk\n", encoding="utf-8")
    (home / "config.json").write_text('{"my": "only copy"}', encoding="utf-8")
    with gzip.open(home / "orders.csv.gz", "wb") as file:
        file.write(b"order_id,customer\n1,a\n")
    with zipfile.ZipFile(home / "archive.zip", "w") as archive:
        archive.writestr("a", "b")
    broken = home / "orders.parquet.part"
    broken.write_bytes((home / "orders.parquet").read_bytes()[:-9])


_ORDERS: Final = pa.schema(
    [
        ("order_id", pa.int64()),
        ("customer", pa.string()),
        ("day", pa.date32()),
        ("amount", pa.float64()),
        ("lines", pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int32())]))),
        ("ship", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ("notes", pa.map_(pa.string(), pa.string())),
    ]
)
_RENAMED: Final = ["id", "customer", "day", "amount", "lines", "ship", "notes"]


def _unsupported(action: dict[str, Any]) -> None:
    features = ["catalogManaged", "inCommitTimestamp"]
    if "protocol" in action:
        action["protocol"] = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features[:1],
            "writerFeatures": features,
        }


def _documents(home: Path, orders: Table, events: Table) -> None:
    plan = orders.plan()
    (home / "plan.json").write_bytes(encode_plan(plan))
    (home / "events.json").write_bytes(encode_plan(events.plan()))
    (home / "later.json").write_bytes(
        encode_plan(plan).replace(b'"format_version": 1', b'"format_version": 9')
    )
    (home / "result.jsonl").write_bytes(
        b"".join(encode_rewritten_group(group) for group in execute(plan).groups)
    )
    (home / "queries.jsonl").write_text('{"where": "day > "}\n', encoding="utf-8")
    (home / "queries.sql").write_text("DROP TABLE orders;\n", encoding="utf-8")
    (home / "none.sql").write_text("-- nothing yet\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
