"""A program: rewrite a table through Spark Connect, and cancel its first group while it sleeps.

Arguments: the table, the server's address, a directory that workers can write. Prints what became
of the first two groups.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from liquidlog.table import Table
from liquidspark import execute_groups
from support.pausing import first_task_pauses


def main(uri: str, address: str, directory: str) -> None:
    """Print a JSON list of (group, class of its outcome)."""
    spark = SparkSession.builder.remote(address).getOrCreate()
    plan = Table.open(uri).plan(min_cube_size=1, target_cube_size=1)
    with first_task_pauses(Path(directory)) as pause:

        def cancelled() -> dict[int, str]:
            return {} if pause.exists() else {0: "enough"}

        found = [
            (one.group_id, type(one).__name__)
            for group_id in (0, 1)
            for one in execute_groups(spark, plan, groups=[group_id], cancelled=cancelled)
        ]
    sys.stdout.write(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
