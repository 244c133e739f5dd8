"""Rows as Arrow IPC streams, as they travel between processes."""

import pyarrow as pa


def encode_table(table: pa.Table, options: pa.ipc.IpcWriteOptions | None = None) -> pa.Buffer:
    """Return rows as an Arrow IPC stream; inverse: decode_table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    return sink.getvalue()


def decode_table(content: bytes | pa.Buffer) -> pa.Table:
    """Return the rows in an Arrow IPC stream, without copying what is not compressed."""
    return pa.ipc.open_stream(content).read_all()
