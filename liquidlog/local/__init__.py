"""The executor without Spark: the tasks of a rewrite in a few processes of one machine.

- `executor` plan to outcomes on this machine, for small plans
- `engine` the tasks of a group on workers
- `workers` their processes, `worker` what one does
"""
