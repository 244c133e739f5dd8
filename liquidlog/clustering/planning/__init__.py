"""From snapshot and policy to a plan: which files a rewrite takes.

- `planner` the strategies by name,
- `cube` the reference's choice
- `overlap` file by file, `read_model` by what readers read
- `readers` plans fitted to a workload
- `compaction` tables without columns, partition by partition (`partitions`)
- `affordable` the part that a budget pays for
- `choice` the files chosen, as a plan
- `kept` which of them lie well and keep their bytes
"""
