"""Read every recorded version of the reference engine's tables and compare all that it says.

python tests/interop/golden_tables.py DIRECTORY [--verbose]

DIRECTORY holds one per case: the table, `expected.json` with what Delta Spark says of every
version, and beside them `canon.py`, which defines the hash of a version's rows. Compared are files,
tags, providers, deletion vectors, row ids, domains, protocol, metadata, schema, clustering columns,
transactions and the rows themselves through our data reader. Exits with 1 at any difference that is
not among those listed here with their reason.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from liquidlog.commit import require_writable
from liquidlog.errors import LiquidlogError, UnsupportedFeatureError
from liquidlog.log.loader import load_snapshot, open_store
from liquidlog.snapshot import Snapshot
from liquidlog.spec.schema import StructType

sys.path.insert(0, str(Path(__file__).parents[1]))  # run as a script

from support.recordings import differences, recorded_facts, snapshot_facts
from support.repository import load_script
from support.table_rows import live_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The engine believes a compacted file that lost clusteringProvider; we read the commits it covers.
COMPACTED = "19_log_compaction"

# What DESCRIBE DETAIL and OPTIMIZE of the engine say of these is not what it recorded as columns.
DETAIL_DECIDES = {
    "32_domain_unknown_column": "its DESCRIBE DETAIL fails on a column that is gone, ours names it",
    "32_domain_without_feature": "its DESCRIBE DETAIL has no columns without the feature, nor ours",
}

# It takes 7.json for a commit, and fails on a name of 21 digits; the protocol knows neither name.
JUNK_NAMES = {"32_junk_short_number", "32_junk_long_number"}

# It needs the sidecar that is missing; all commits are there, and say the same.
COMMITS_SUFFICE = {"32_sidecar_missing"}

WRITTEN_BELOW = "file:/golden/dev/"
"""Where clones say that the engine wrote their source."""

Outcome = tuple[str, str]
"""What came of a comparison, in words to count, and its detail."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--verbose", action="store_true", help="also list what agrees")
    options = parser.parse_args()
    canon = load_script(options.directory / "canon.py")
    found = (
        (f"{case.name} {name}", outcome)
        for case in cases(options.directory)
        for name, outcome in compare_case(case, canon)
    )
    return tally(found, verbose=options.verbose)


def compare_with_engine(
    about: str | None, compare: Callable[["SparkSession", Path], Iterator[tuple[str, Outcome]]]
) -> int:
    """Compare the cases that the command line names, or all; return 1 if some differ."""
    from support.spark_servers import open_reference

    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("directory", type=Path)
    parser.add_argument("cases", nargs="*", help="names of cases; all if none")
    options = parser.parse_args()
    spark = open_reference(os.environ["LIQUID_REFERENCE_JARS"], quiet=True)
    found = (
        (f"{case.name} {step}", outcome)
        for case in cases(options.directory)
        if not options.cases or case.name in options.cases
        for step, outcome in compare(spark, case)
    )
    return tally(found, verbose=True)


def cases(directory: Path) -> list[Path]:
    return sorted(path.parent for path in directory.glob("*/expected.json"))


def tally(found: Iterable[tuple[str, Outcome]], *, verbose: bool) -> int:
    """Print outcomes and how many there are of each; return 1 if some differ."""
    counts: Counter[str] = Counter()
    for where, (outcome, detail) in found:
        counts[outcome] += 1
        if verbose or "DIFFER" in outcome or "explained" in outcome:
            sys.stdout.write(f"{outcome}: {where}: {detail}\n")
            sys.stdout.flush()
    for outcome, number in sorted(counts.items()):
        sys.stdout.write(f"{number:5} {outcome}\n")
    return 1 if any("DIFFER" in outcome for outcome in counts) else 0


def compare_case(case: Path, canon: Any) -> Iterator[tuple[str, Outcome]]:
    expected = json.loads((case / "expected.json").read_text())
    if not expected.get("table") or not (case / expected["table"]).is_dir():
        yield "", ("cases without a table", expected["about"])
        return
    with tempfile.TemporaryDirectory() as directory:
        uri = case / expected["table"]
        if "clone" in case.name:
            uri = moved_clone(case.parent, case.name, Path(directory))
        for version, recorded in (expected.get("versions") or {}).items():
            yield version, compare_state(uri, recorded)
            if "error" not in recorded:
                yield version, compare_rows(uri, recorded, canon)
        yield from compare_observed(case.name, uri, expected, canon)


def moved_clone(golden: Path, name: str, directory: Path) -> Path:
    """Copy a clone and its source, and let the clone find the source where it is now."""
    for case in (name, "27_shallow_clone_source"):
        shutil.copytree(golden / case, directory / case, dirs_exist_ok=True)
    for log in directory.glob("*/table/_delta_log/*.json"):
        log.chmod(0o644)
        moved = f"file:{quote(str(directory))}/"
        log.write_text(log.read_text().replace(WRITTEN_BELOW, moved))
    return directory / name / "table"


def snapshot_of(uri: Path, version: int | None) -> Snapshot:
    return load_snapshot(open_store(str(uri)), version)


def compare_state(uri: Path, recorded: Mapping[str, Any]) -> Outcome:
    try:
        snapshot = snapshot_of(uri, int(recorded["version"]))
    except LiquidlogError as error:
        both = "error" in recorded
        return ("versions refused by both" if both else "versions DIFFER"), error.message
    if "error" in recorded:
        return "versions that only we read (explained)", str(recorded["error"])[:200]
    ours, theirs = snapshot_facts(snapshot), recorded_facts(recorded)
    if COMPACTED in str(uri):
        for file in [*ours["files"], *theirs["files"]]:
            file.pop("clusteringProvider")
    found = [text.replace(str(uri.parents[1]), "/golden/dev") for text in differences(ours, theirs)]
    if "27_shallow_clone" in str(uri):
        found = [text for text in found if not same_but_moved(text, uri)]
    return ("versions DIFFER", " | ".join(found)) if found else ("versions agree", "")


def same_but_moved(text: str, uri: Path) -> bool:
    """Return whether a difference is only where the source of a clone is."""
    ours, _, theirs = text.replace(quote(str(uri.parents[1])), "/golden/dev").partition(" != ")
    return "path: " in ours and ours.endswith(theirs)


def compare_rows(uri: Path, recorded: Mapping[str, Any], canon: Any) -> Outcome:
    store = open_store(str(uri))
    snapshot = load_snapshot(store, int(recorded["version"]))
    try:
        rows = padded(live_rows(store, snapshot), snapshot.schema)
    except LiquidlogError as error:
        missing = "does not exist" in error.message
        return ("rows whose files are gone" if missing else "rows DIFFER"), error.message
    found = canon.content(rows)
    if (found["content_hash"], found["row_count"]) == (
        recorded["content_hash"],
        recorded["row_count"],
    ):
        return "rows agree", f"{rows.num_rows}"
    wrong = {n for n, c in found["columns"].items() if c != recorded["columns"].get(n)}
    variants = {f["name"] for f in recorded["schema"]["fields"] if f["type"] == "variant"}
    if wrong <= variants:
        # It shows variants as JSON; to us they are bytes that are never looked into.
        return "rows agree but for variants, not compared (explained)", ", ".join(wrong)
    return "rows DIFFER", f"in {', '.join(sorted(wrong))}"


def padded(rows: pa.Table, schema: StructType) -> pa.Table:
    """Fill CHAR columns with blanks: the engine does when it reads, and we keep what is there."""
    for index, field in enumerate(schema.fields):
        declared = str(field.metadata.get("__CHAR_VARCHAR_TYPE_STRING", ""))
        if declared.startswith("char("):
            column = pc.utf8_rpad(rows.column(index), int(declared[5:-1]))
            rows = rows.set_column(index, field.name, column)
    return rows


def compare_observed(
    name: str, uri: Path, expected: Mapping[str, Any], canon: Any
) -> Iterator[tuple[str, Outcome]]:
    """Compare what the engine was seen to do with tables that are damaged or ask for too much."""
    if "observed" not in expected:
        return
    if expected.get("must_refuse_read") or expected.get("must_refuse_write"):
        yield "refusal", compare_refusal(uri, reading=bool(expected.get("must_refuse_read")))
    read = expected["observed"]["read"]
    try:
        snapshot = snapshot_of(uri, None)
    except LiquidlogError as error:
        stricter = read["ok"] and not isinstance(error, UnsupportedFeatureError)
        outcome = "damaged tables DIFFER" if stricter else "damaged tables refused by both"
        yield "read", (outcome, error.message)
        return
    if expected.get("snapshot"):
        found = list(differences(*without_rows(snapshot, expected["snapshot"])))
        yield "snapshot", judged(name, found)
    if read["ok"]:
        recorded = {**read, "schema": json.loads(snapshot.metadata.schema_string or "{}")}
        yield "read", compare_rows(uri, {"columns": {}, **recorded}, canon)
    elif name in JUNK_NAMES | COMMITS_SUFFICE or expected.get("snapshot"):
        yield "read", ("damaged tables that only we read (explained)", expected["about"])
    elif "cause" in read["error"] and "FILE_NOT_EXIST" in read["error"]["cause"]:
        yield "read", compare_missing(uri)
    else:
        yield "read", ("damaged tables DIFFER", f"we read it; {read['error']['message'][:150]}")


def judged(name: str, found: list[str]) -> Outcome:
    if name in DETAIL_DECIDES and all(text.startswith("clustering:") for text in found):
        return "damaged tables agree but for clustering columns (explained)", DETAIL_DECIDES[name]
    return "damaged tables DIFFER" if found else "damaged tables agree", " | ".join(found)


def without_rows(snapshot: Snapshot, recorded: Mapping[str, Any]) -> tuple[Any, Any]:
    ours, theirs = snapshot_facts(snapshot), recorded_facts(recorded)
    return {**ours, "rows": None}, {**theirs, "rows": None}


def compare_refusal(uri: Path, *, reading: bool) -> Outcome:
    try:
        snapshot = snapshot_of(uri, None)
        if not reading:
            require_writable(snapshot)
    except UnsupportedFeatureError as error:
        return "must-refuse tables refused", error.message
    return "must-refuse tables DIFFER", "not refused"


def compare_missing(uri: Path) -> Outcome:
    store = open_store(str(uri))
    try:
        live_rows(store, load_snapshot(store))
    except LiquidlogError as error:
        return "damaged tables refused by both", error.message
    return "damaged tables DIFFER", "we read rows of a file that is not there"


if __name__ == "__main__":
    sys.exit(main())
