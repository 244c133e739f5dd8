"""From snapshot and policy to a plan: which files a rewrite takes.

- `planner` the strategies by name; plans fitted to a workload, the part that a budget pays for
- `cube` the reference's choice
- `overlap` file by file, `read_model` by what readers read
- `compaction` tables without columns, partition by partition
- `choice` the files chosen, as a plan; their partitions
- `kept` which of them lie well and keep their bytes
"""
