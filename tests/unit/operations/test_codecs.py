"""Every codec that a table may ask for is written by appends and rewrites, and read by others."""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from liquidlog.errors import SchemaChangeError, SchemaProblemKind, UsageError
from liquidlog.spec.arguments import CODEC_NAMES, CODEC_PROPERTY
from liquidlog.table import Table
from support.arrow_executor import execute

ROWS = pa.table({"a": range(3000), "b": [f"text {row % 40}" for row in range(3000)]})
FOOTER_NAMES = {"none": "UNCOMPRESSED", "lz4_raw": "LZ4"}


def codecs_of(table: Table) -> set[str]:
    """Return the codecs in the footers of the live files, as Arrow calls them."""
    found = set()
    for path in table.snapshot().files["path"].to_pylist():
        group = pq.read_metadata(f"{table.uri}/{path}").row_group(0)
        found |= {group.column(number).compression for number in range(group.num_columns)}
    return found


def made(path: Path, **properties: str) -> Table:
    return Table.create(str(path), schema=ROWS.schema, cluster_by=["a"], properties=properties)


@pytest.mark.parametrize("spelling", [str.lower, str.upper])
@pytest.mark.parametrize("name", CODEC_NAMES)
def test_files_have_the_codec_that_the_table_asks_for(
    tmp_path: Path, name: str, spelling: Any
) -> None:
    created = made(tmp_path / "created", **{CODEC_PROPERTY: spelling(name)})
    changed = made(tmp_path / "changed")
    changed.set_properties({CODEC_PROPERTY: spelling(name)})
    for table in (created, changed):
        assert table.snapshot().metadata.configuration[CODEC_PROPERTY] == spelling(name)
        for start in (0, 1500):
            table.append(ROWS.slice(start, 1500))
        expected = {FOOTER_NAMES.get(name, name.upper())}
        assert codecs_of(table) == expected
        plan = table.plan(full=True)
        assert plan.groups
        table.commit(plan, execute(plan))
        assert codecs_of(table) == expected
        theirs = pa.RecordBatchReader.from_stream(DeltaTable(table.uri).scan()).read_all()
        assert sorted(theirs.to_pylist(), key=lambda row: row["a"]) == ROWS.to_pylist()
        files = [f"{table.uri}/{path}" for path in table.snapshot().files["path"].to_pylist()]
        found = duckdb.execute("select * from read_parquet(?) order by a", [files]).fetchall()
        assert found == [tuple(row.values()) for row in ROWS.to_pylist()]


@pytest.mark.parametrize("name", ["brotli", "lzo", "rar", "", " zstd", "zstd:3"])
def test_a_codec_that_is_not_written_is_refused_when_it_is_asked_for(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(UsageError):
        made(tmp_path / "t", **{CODEC_PROPERTY: name})
    assert not (tmp_path / "t").exists()
    table = made(tmp_path / "t")
    with pytest.raises(SchemaChangeError) as caught:
        table.set_properties({CODEC_PROPERTY: name})
    (reason,) = caught.value.reasons
    assert (reason.kind, reason.property) == (SchemaProblemKind.PROPERTY_VALUE, CODEC_PROPERTY)
    assert table.snapshot().version == 0


def test_a_table_that_asks_for_another_codec_is_not_written(tmp_path: Path) -> None:
    table = made(tmp_path / "t", **{CODEC_PROPERTY: "gzip"})
    log = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace('"gzip"', '"brotli"'))
    table = Table.open(str(tmp_path / "t"))
    with pytest.raises(UsageError) as caught:
        table.append(ROWS)
    assert caught.value.fields["compression"] == "brotli"
    assert not list((tmp_path / "t").glob("*.parquet"))
