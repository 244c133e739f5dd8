"""Clustered tables of random rows, and the command that optimizes one in a process of its own."""

import sys
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from liquidlog.table import Table

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.int32()), ("s", pa.string())])


def appended_table(uri: str, *, appends: int, rows: int) -> Table:
    """Create a table clustered by x and s; ids count through all appends."""
    made = Table.create(uri, schema=SCHEMA, cluster_by=["x", "s"])
    random = np.random.default_rng(1)
    for number in range(appends):
        ids = pa.array(np.arange(number * rows, (number + 1) * rows))
        x = pa.array(random.integers(0, 10_000, rows), pa.int32())
        s = pa.array(random.integers(0, 10**9, rows)).cast(pa.string())
        made.append(pa.table([ids, x, s], schema=SCHEMA))
    return made


def optimize_command(uri: str, conf: Mapping[str, str], **policy: int) -> list[str]:
    """Return the words of a command line; the policy's are options named with underscores."""
    options = [("--set", f"{name}={value}") for name, value in policy.items()]
    options += [("--spark-conf", "=".join(pair)) for pair in conf.items()]
    command = [sys.executable, "-c", "from liquidlog.cli import main; main()", "optimize", uri]
    return [*command, *(word for option in options for word in option), "--json"]
