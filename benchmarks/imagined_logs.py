"""A log of many files of a clustered table, which nobody wrote: a checkpoint and ten commits."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FILES_IN_A_CUBE = 500
GROUP_FILES = 40_000
COMMITS = 10
COMMIT_FILES = 1_000
COLUMNS = {"a": "long", "b": "timestamp", "c": "string", "d": "double"}
SCHEMA_STRING = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in COLUMNS.items()
        ],
    }
)
DOMAIN = '{"clusteringColumns":[["a"],["b"]],"domainName":"delta.clustering"}'
FEATURES = ["domainMetadata", "clustering", "invariants", "appendOnly"]
MAP = pa.map_(pa.string(), pa.string())
ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", MAP),
        ("clusteringProvider", pa.string()),
    ]
)
SCHEMA = pa.schema(
    [
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", MAP)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", MAP),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "domainMetadata",
            pa.struct(
                [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]
            ),
        ),
        ("add", ADD),
    ]
)
HEAD = {
    "protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": FEATURES},
    "metaData": {
        "id": "bench",
        "format": {"provider": "parquet", "options": []},
        "schemaString": SCHEMA_STRING,
        "partitionColumns": [],
        "configuration": [],
        "createdTime": 0,
    },
    "domainMetadata": {"domain": "delta.clustering", "configuration": DOMAIN, "removed": False},
}


def write_table(directory: Path, files: int) -> None:
    """Write a log: a checkpoint of version 20, ten commits after it; `files` files are live."""
    log = directory / "_delta_log"
    log.mkdir(parents=True)
    in_checkpoint = files - COMMITS * COMMIT_FILES
    with pq.ParquetWriter(log / f"{20:020d}.checkpoint.parquet", SCHEMA) as writer:
        head = pa.Table.from_pylist([{name: row} for name, row in HEAD.items()], SCHEMA)
        writer.write_table(head)
        for first in range(0, in_checkpoint, GROUP_FILES):
            adds = _adds(first, min(GROUP_FILES, in_checkpoint - first))
            columns = [
                adds if field.name == "add" else pa.nulls(len(adds), field.type) for field in SCHEMA
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=SCHEMA))
    (log / "_last_checkpoint").write_text(json.dumps({"version": 20, "size": files}))
    (log / f"{20:020d}.json").write_text('{"commitInfo":{}}\n')
    for number in range(COMMITS):
        adds = _adds(in_checkpoint + number * COMMIT_FILES, COMMIT_FILES).to_pylist()
        lines = (json.dumps({"add": _json_add(add)}) for add in adds)
        (log / f"{21 + number:020d}.json").write_text("\n".join(lines) + "\n")


def _json_add(add: dict[str, object]) -> dict[str, object]:
    maps = {name: dict(add[name] or ()) for name in ("partitionValues", "tags")}  # type: ignore[call-overload]
    return {name: value for name, value in {**add, **maps}.items() if value is not None}


def _adds(first: int, files: int) -> pa.StructArray:
    random = np.random.default_rng(first)
    number = np.arange(first, first + files)
    tagged = pa.array(number % 2 == 0)
    cube = pc.binary_join_element_wise(
        _text(number // FILES_IN_A_CUBE, 8), "0000-4000-8000-000000000000", "-"
    )
    path = pc.binary_join_element_wise(
        "part-", _text(number % 200, 5), "-", _ids(random, files), "-c000.zstd.parquet", ""
    )
    low = random.integers(0, 10**9, (4, files))
    stats = pc.binary_join_element_wise(
        '{"numRecords":1000,"minValues":', _bounds(low), ',"maxValues":', _bounds(low + 10**6),
        ',"nullCount":{"a":0,"b":0,"c":0,"d":0}}', "",
    )  # fmt: skip
    keys = pa.array(["ZCUBE_ID", "ZCUBE_ZORDER_BY"] * files)
    order = pa.array(['["a","b"]'] * files)
    values = pa.concat_arrays([cube, order]).take(
        pa.array(np.arange(2 * files).reshape(2, files).T.ravel())
    )
    offsets = pa.array(np.arange(0, 2 * files + 1, 2, dtype=np.int32))
    tags = pa.MapArray.from_arrays(offsets, keys, values)
    return pa.StructArray.from_arrays(
        [
            path,
            pa.MapArray.from_arrays(pa.array(np.zeros(files + 1, np.int32)), keys[:0], keys[:0]),
            pa.array(random.integers(10**6, 10**9, files)),
            pa.array(np.full(files, 10**12)),
            pa.array(np.full(files, fill_value=False)),
            stats,
            pc.if_else(tagged, tags, pa.scalar(None, MAP)),
            pc.if_else(tagged, "liquid", pa.scalar(None, pa.string())),
        ],
        fields=list(ADD),
    )


def _text(numbers: np.ndarray, width: int) -> pa.Array:
    return pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), width, "0")


def _ids(random: np.random.Generator, count: int) -> pa.Array:
    """Return random ids of 32 hexadecimal digits."""
    digits = random.bytes(16 * count).hex().encode()
    offsets = np.arange(0, 32 * count + 1, 32, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(digits))


def _bounds(values: np.ndarray) -> pa.Array:
    moments = pa.array(values[1] * 1000).cast(pa.timestamp("ms"))
    parts = [
        '{"a":', pc.cast(pa.array(values[0]), pa.string()),
        ',"b":"', pc.strftime(moments, "%Y-%m-%dT%H:%M:%SZ"),
        '","c":"customer-', _text(values[2], 10),
        '","d":', pc.cast(pa.array(values[3] / 100), pa.string()),
    ]  # fmt: skip
    return pc.binary_join_element_wise(*parts, "}", "")
