"""Recorded logs, damaged: what a fuzzer makes of a `_delta_log`.

A log is a mapping of file names to bytes. Mutations work on that mapping, so that any number of
them add up; only `write_log` touches the disk.
"""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

LOGS: Final = Path(__file__).parents[2] / "fixtures" / "logs"

Log = dict[str, bytes]
Mutation = Callable[[st.DrawFn, Log], str]
"""Changes a log in place and says what it did."""

_MARK: Final = "@@mark@@"

# Raw JSON texts, each wrong almost everywhere; some of them no encoder would write.
CONFUSED: Final = (
    *("null", "true", "0", "-1", "1", "1.5", "-0.0", "1e2", "1e400", "-1e400", "NaN", "Infinity"),
    *("2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("-9223372036854775809", "18446744073709551616", "1" + "0" * 400, "0.1" + "0" * 400, "007"),
    *("253402300800000", "-62135596800001", "8640000000000001", "20", "99999999999"),
    *('""', '"x"', '"1"', '"-1"', '"99999999999999999999"', '"NaN"', '"true"', '"none"', '"id"'),
    *(
        '"\\u0000"',
        '"\\ud800"',
        '"a\\ud800b"',
        '"\\udc00\\ud800"',
        '"\ufeff"',
        '"\u202e"',
        '"\xe9"',
    ),
    *('"../../../etc/passwd"', '"/etc/passwd"', '"file:///etc/passwd"', '"s3://bucket/key"'),
    *('"file://host/x"', '"file:relative"', '"//host/share"', '"%2e%2e%2f%2e%2e%2fx"', '"a%00b"'),
    *('"%"', '"%zz"', '"%ff"', '"a/../../b"', '"."', '"_delta_log/00000000000000000000.json"'),
    *("[]", "{}", "[null]", '[""]', '["x","x"]', "[[]]", '[["x"]]', '{"":""}', '{"x":null}'),
    *('{"x":{"x":{}}}', '{"x":1,"x":2}', '[1,"a",null,{}]', '{"type":"struct"}'),
    *('"decimal(99,99)"', '"decimal(0,-5)"', '"decimal(99999999999999999999,1)"', '"integer"'),
    *('"timestamp"', '"0001-01-01T00:00:00.000Z"', '"99999-12-31T23:59:59.999Z"', '"2024-02-30"'),
    *(
        '"[]"',
        '"{}"',
        '"null"',
        '"[\\"x\\"]"',
        '"{\\"numRecords\\":1e99}"',
        '"{\\"numRecords\\":-1}"',
    ),
    '"{\\"numRecords\\":99999999999999999999}"',
    '"{\\"type\\":\\"struct\\",\\"fields\\":[]}"',
    '"{\\"type\\":\\"struct\\",\\"fields\\":[null]}"',
    '"' + "a" * 70_000 + '"',
    "[" * 50_000,
    "[" * 2_000 + "]" * 2_000,
    "[" * 900 + "]" * 900,
    "[" * 50 + "]" * 50,
    '{"x":' * 2_000 + "1" + "}" * 2_000,
)

_DEEP_SCHEMA: Final = (
    '{"type":"struct","fields":[{"name":"x","nullable":true,"metadata":{},"type":' * 1200
    + '"integer"'
    + "}]}" * 1200
)

LINES: Final = (
    b"",
    b"null",
    b"[]",
    b"{}",
    b'"x"',
    b"\xff\xfe",
    b"\x00",
    b"{" * 100_000,
    b'{"add":null,"remove":null}',
    b'{"add":{}}',
    b'{"unknown":{"x":1}}',
    b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}',
    b'{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["x"]}}',
    b'{"add":{"path":"x","size":-1,"modificationTime":-1,"dataChange":true}}',
    (
        b'{"add":{"path":"x","size":9223372036854775807,"modificationTime":9223372036854775807,'
        b'"dataChange":true,"tags":{"ZCUBE_ID":"\\u0000","ZCUBE_ZORDER_BY":"[[]]"}}}'
    ),
    (
        b'{"add":{"path":"y","size":9223372036854775807,"modificationTime":0,"dataChange":true,'
        b'"stats":"{\\"numRecords\\":9223372036854775807}",'
        b'"deletionVector":{"storageType":"z","pathOrInlineDv":"","offset":-1,"sizeInBytes":-1,'
        b'"cardinality":-9223372036854775808}}}'
    ),
    b'{"add":{"path":"","size":0,"modificationTime":0,"dataChange":true}}',
    b'{"remove":{"path":"","dataChange":true}}',
    b'{"domainMetadata":{"domain":"delta.clustering","configuration":"","removed":false}}',
    (
        b'{"domainMetadata":{"domain":"delta.clustering","configuration":'
        b'"{\\"clusteringColumns\\":[[\\"x\\"],[\\"x\\"]]}","removed":false}}'
    ),
    b'{"commitInfo":{"timestamp":9223372036854775807,"inCommitTimestamp":-9223372036854775808}}',
    b'{"commitInfo":{"operationParameters":{"a":[[[]]],"b":1e300},"operationMetrics":{"x":"y"}}}',
    json.dumps(
        {
            "metaData": {
                "id": "x",
                "format": {"provider": "parquet"},
                "schemaString": _DEEP_SCHEMA,
                "partitionColumns": [],
                "configuration": {},
            }
        }
    ).encode(),
)


@functools.cache
def recorded_log(name: str) -> Log:
    """Return the files of a recorded log by their name below `_delta_log`."""
    root = LOGS / name / "table" / "_delta_log"
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


RECORDED: Final = tuple(sorted(path.parent.name for path in LOGS.glob("*/expected.json")))


def write_log(log: Log, table: Path) -> None:
    """Write a log below `table`; a name that ends with a slash becomes a directory."""
    directory = table / "_delta_log"
    directory.mkdir(parents=True)
    for name, content in log.items():
        target = directory / name.rstrip("/")
        if name.endswith("/"):
            target.mkdir(parents=True, exist_ok=True)
        elif not target.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


@st.composite
def hostile_logs(draw: st.DrawFn) -> tuple[str, Log]:
    """Return (what was done, log): a recorded log after one to four mutations."""
    name = draw(st.sampled_from(RECORDED))
    log = dict(recorded_log(name))
    done = [name]
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3, 4)))):
        mutation = draw(st.sampled_from(_MUTATIONS))
        done.append(mutation(draw, log))
    return "; ".join(done), log


def _file(draw: st.DrawFn, log: Log, *, suffix: str = "") -> str | None:
    names = sorted(name for name in log if name.endswith(suffix) and not name.endswith("/"))
    return draw(st.sampled_from(names)) if names else None


def _place(draw: st.DrawFn, length: int) -> int:
    return draw(st.integers(0, max(length - 1, 0)))


def _flip_bytes(draw: st.DrawFn, log: Log) -> str:
    name = _file(draw, log)
    if name is None or not log[name]:
        return "nothing"
    content = bytearray(log[name])
    places = [_place(draw, len(content)) for _ in range(draw(st.integers(1, 4)))]
    for place in places:
        content[place] ^= draw(st.integers(1, 255))
    log[name] = bytes(content)
    return f"flip {name} at {places}"


def _truncate(draw: st.DrawFn, log: Log) -> str:
    name = _file(draw, log)
    if name is None:
        return "nothing"
    length = _place(draw, len(log[name]))
    log[name] = log[name][:length]
    return f"truncate {name} to {length}"


def _change_lines(draw: st.DrawFn, log: Log) -> str:
    name = _file(draw, log, suffix=".json")
    if name is None:
        return "nothing"
    lines = log[name].split(b"\n")
    kind = draw(st.sampled_from(("delete", "double", "swap", "insert", "move")))
    place, other = _place(draw, len(lines)), _place(draw, len(lines))
    if kind == "delete":
        del lines[place]
    elif kind == "double":
        lines.insert(place, lines[place])
    elif kind == "swap":
        lines[place], lines[other] = lines[other], lines[place]
    elif kind == "insert":
        lines.insert(place, draw(st.sampled_from(LINES)))
    else:
        target = _file(draw, log, suffix=".json") or name
        log[target] += b"\n" + lines[place] + b"\n"
    log[name] = b"\n".join(lines) if kind != "move" else log[name]
    return f"{kind} line {place} of {name}"


def _confuse_value(draw: st.DrawFn, log: Log) -> str:
    """Replace one value, or one key, of one action, also inside JSON that is a string."""
    name = _file(draw, log, suffix=".json")
    if name is None:
        return "nothing"
    lines = log[name].split(b"\n")
    place = _place(draw, len(lines))
    lines[place], where = confuse(draw, lines[place])
    log[name] = b"\n".join(lines)
    return f"{name} line {place} {where}"


def confuse(draw: st.DrawFn, text: bytes) -> tuple[bytes, str]:
    """Return a JSON text with one value replaced by a confused one, and what was done."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return text, "nothing"
    value = draw(st.sampled_from(CONFUSED))
    marked, where = _mark(draw, document)
    confused = json.dumps(marked, ensure_ascii=False)
    for depth in range(3):
        quote = "\\" * (2**depth - 1) + '"'
        escaped = value
        for _ in range(depth):
            escaped = json.dumps(escaped, ensure_ascii=False)[1:-1]
        confused = confused.replace(quote + _MARK + quote, escaped)
    return confused.encode("utf-8", "surrogatepass"), f"{where} = {value[:40]}"


def _mark(draw: st.DrawFn, value: Any) -> tuple[Any, str]:
    """Return `value` with a mark in the place of one of its values, and where that is."""
    if isinstance(value, str) and value[:1] in {"{", "["} and draw(st.booleans()):
        try:
            marked, where = _mark(draw, json.loads(value))
        except (ValueError, RecursionError):
            return _MARK, ""
        return json.dumps(marked, ensure_ascii=False), f"~{where}"
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        key = draw(st.sampled_from(sorted(value)))
        if not draw(st.integers(0, 9)):
            return {k: v for k, v in value.items() if k != key}, f".{key} gone"
        marked, where = _mark(draw, value[key])
        return {**value, key: marked}, f".{key}{where}"
    if isinstance(value, list) and value and draw(st.integers(0, 5)):
        index = _place(draw, len(value))
        marked, where = _mark(draw, value[index])
        return [*value[:index], marked, *value[index + 1 :]], f"[{index}]{where}"
    return _MARK, ""


def _double_key(draw: st.DrawFn, log: Log) -> str:
    name = _file(draw, log, suffix=".json")
    if name is None:
        return "nothing"
    key = draw(st.sampled_from((b"path", b"size", b"stats", b"tags", b"schemaString", b"domain")))
    value = draw(st.sampled_from(CONFUSED)).encode("utf-8", "surrogatepass")
    log[name] = log[name].replace(b'"%s":' % key, b'"%s":%s,"%s":' % (key, value, key), 1)
    return f"double {key.decode()} in {name}"


def _remove_file(draw: st.DrawFn, log: Log) -> str:
    name = _file(draw, log)
    if name is None:
        return "nothing"
    del log[name]
    return f"remove {name}"


def _rename_file(draw: st.DrawFn, log: Log) -> str:
    name = _file(draw, log)
    if name is None:
        return "nothing"
    version = draw(st.sampled_from((0, 1, 2, 3, 10, 10**18, 2**63, 10**20 - 1)))
    suffix = draw(
        st.sampled_from(
            (
                ".json",
                ".checkpoint.parquet",
                ".checkpoint.0000000001.0000000001.parquet",
                ".checkpoint.0000000001.9999999999.parquet",
                ".checkpoint.0000000000.0000000000.parquet",
                ".checkpoint.00000000-0000-0000-0000-000000000000.json",
                ".checkpoint.00000000-0000-0000-0000-000000000000.parquet",
                ".json.tmp",
            )
        )
    )
    target = f"{version:020d}{suffix}"
    content = log.pop(name) if draw(st.booleans()) else log[name]
    log[target] = content
    return f"{name} becomes {target}"


def _replace_file(draw: st.DrawFn, log: Log) -> str:
    name, other = _file(draw, log), _file(draw, log)
    if name is None or other is None:
        return "nothing"
    kind = draw(st.sampled_from(("other", "empty", "directory", "zeros", "twice")))
    if kind == "directory":
        del log[name]
        log[f"{name}/"] = b""
    else:
        log[name] = {
            "other": log[other],
            "empty": b"",
            "zeros": bytes(5000),
            "twice": log[name] * 2,
        }[kind]
    return f"{kind} in place of {name}"


def _last_checkpoint(draw: st.DrawFn, log: Log) -> str:
    value = draw(st.sampled_from(CONFUSED))
    text = draw(st.sampled_from((value, f'{{"version":{value},"size":{value},"parts":{value}}}')))
    log["_last_checkpoint"] = text.encode("utf-8", "surrogatepass")
    return f"_last_checkpoint {text[:40]}"


def _rewrite_checkpoint(draw: st.DrawFn, log: Log) -> str:
    """Write a checkpoint anew, a column or a field of it lost, nulled or of another type."""
    name = _file(draw, log, suffix=".parquet")
    if name is None:
        return "nothing"
    try:
        table = pq.read_table(pa.BufferReader(log[name]))
        index = _place(draw, table.num_columns)
        column = table.column(index).combine_chunks()
        array, where = _changed(draw, column)
        if array is None:
            table = table.remove_column(index)
        else:
            table = table.set_column(index, table.column_names[index], array)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
    except (pa.ArrowException, OSError, IndexError):
        return "nothing"
    log[name] = sink.getvalue().to_pybytes()
    return f"{name} column {index}{where}"


def _changed(draw: st.DrawFn, array: pa.Array) -> tuple[pa.Array | None, str]:
    if isinstance(array, pa.StructArray) and array.type.num_fields and draw(st.integers(0, 5)):
        fields = list(array.type)
        index = _place(draw, len(fields))
        children = [array.field(i) for i in range(len(fields))]
        child, where = _changed(draw, children[index])
        names = [field.name for field in fields]
        if child is None:
            del children[index], names[index]
        else:
            children[index] = child
        if not children:
            return None, f".{fields[index].name}{where}"
        rebuilt = pa.StructArray.from_arrays(children, names=names, mask=array.is_null())
        return rebuilt, f".{fields[index].name}{where}"
    length = len(array)
    replacements: dict[str, pa.Array | None] = {
        "gone": None,
        "null": pa.nulls(length, array.type),
        "bool": pa.array([True] * length),
        "negative": pa.array([-1] * length, pa.int64()),
        "huge": pa.array([2**63 - 1] * length, pa.int64()),
        "double": pa.array([float("nan")] * length),
        "text": pa.array(["\0x"] * length),
        "dots": pa.array(["../../x"] * length),
        "binary": pa.array([b"\xff\xfe"] * length),
        "list": pa.array([[1]] * length),
        "struct": pa.array([{"x": 1}] * length),
        "map": pa.array([[("x", None)]] * length, pa.map_(pa.string(), pa.string())),
        "doubled map": pa.array([[("x", "y")] * 2] * length, pa.map_(pa.string(), pa.string())),
    }
    kind = draw(st.sampled_from(sorted(replacements)))
    return replacements[kind], f" {kind}"


_MUTATIONS: Final[tuple[Mutation, ...]] = (
    _confuse_value,
    _confuse_value,
    _confuse_value,
    _confuse_value,
    _flip_bytes,
    _flip_bytes,
    _truncate,
    _change_lines,
    _change_lines,
    _double_key,
    _remove_file,
    _rename_file,
    _replace_file,
    _last_checkpoint,
    _rewrite_checkpoint,
    _rewrite_checkpoint,
    _rewrite_checkpoint,
)
