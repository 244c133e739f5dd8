"""The executor without Spark: the tasks of a rewrite in a few processes of one machine.

- `executor` plan to outcomes on this machine, for small plans; pieces on disk between tasks
- `workers` their processes
"""
