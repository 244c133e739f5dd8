"""The executor without Spark: the tasks of a rewrite in a few processes of one machine.

- `executor` plan to outcomes on this machine, for small plans, and the directory of its pieces
- `engine` the tasks of a group on workers, and pieces on disk between them
- `workers` their processes, `worker` what one does
"""
