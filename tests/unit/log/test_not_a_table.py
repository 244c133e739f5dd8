"""What is found where a table was expected."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from liquidlog.errors import TableNotFoundError, UsageError
from liquidlog.log.store import what_is_there
from liquidlog.table import Table


@pytest.fixture
def home(tmp_path: Path) -> Path:
    rows = pa.table({"x": [1]})
    Table.create(tmp_path / "orders", schema=rows.schema)
    (tmp_path / "lake" / "day=1").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    pq.write_table(rows, tmp_path / "lake" / "day=1" / "part.parquet")
    for place in ("plain", "ice/data", "hudi/day=1"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, tmp_path / place / "part.parquet")
    (tmp_path / "ice" / "metadata").mkdir()
    (tmp_path / "ice" / "metadata" / "00000-c0ffee.metadata.json").write_text("{}")
    (tmp_path / "hudi" / ".hoodie").mkdir()
    pq.write_table(rows, tmp_path / "rows.parquet")
    (tmp_path / "notes").write_text("buy milk", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rows.parquet", "it is a Parquet file"),
        ("lake", "values like day=1 are not in the files; convert it"),
        ("plain", "it is a folder of Parquet files without a _delta_log; make a table"),
        ("ice", "it is an Iceberg table; only Delta tables"),
        ("ice/data", "ice, an Iceberg table"),
        ("ice/data/part.parquet", "ice, an Iceberg table"),
        ("hudi", "it is a Hudi table; only Delta tables"),
        ("hudi/day=1", "hudi, a Hudi table"),
        ("notes", "it is a file, and a table is a directory"),
        ("order", "did you mean"),
        ("orders/_delta_log", "it is a part of the table"),
        ("orders/_delta_log/00000000000000000000.json", "it is a part of the table"),
        ("prod.sales.orders", "name of a table in a catalog"),
        ("no/such/place", "there is no directory"),
        ("zzz", "nothing is there"),
        ("empty", "it has no _delta_log directory"),
        ("notes/below", "there is no directory"),
    ],
)
def test_it_is_said_what_is_there(name: str, said: str, home: Path) -> None:
    assert said in what_is_there(str(home / name))
    with pytest.raises(TableNotFoundError) as caught:
        Table.open(home / name)
    assert caught.value.uri == str(home / name)


def test_other_storages_are_not_looked_at() -> None:
    assert what_is_there("s3://bucket/prod.sales.orders") == "it has no _delta_log directory"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("dbfs:/mnt/orders", "/dbfs/mnt/orders"),
        ("s3:/lake/orders", "write s3://lake/orders"),
        ("what:/lake", "write ./what:/lake"),
        ("delta.`/lake/orders`", "give /lake/orders alone"),
        ("https://host/lake/orders", "there is no storage https://"),
        ("s4://lake/orders", "there is no storage s4://"),
    ],
)
def test_an_address_of_another_kind_is_refused_with_the_right_one(address: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        Table.open(address)
    assert said in caught.value.message


def test_a_colon_in_a_name_is_no_scheme(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    schema = pa.schema([("x", pa.int64())])
    for name in ("./a:b", "day:1", "c:d/e", "./ab:/e"):
        Table.create(name, schema=schema)
        assert Table.open(name).snapshot().version == 0
