"""Clustering columns, cubes, plans, outcomes and health. Rules without I/O.

- `columns` what can be clustered by and have Bloom filters, and where that is kept
- `settings` of a rewrite: their names and values, what a table remembers of them, who decides
- `zcubes` cubes and their states
- `row_tracking` row ids, kept and fresh
- `migration` partitioned tables that become clustered
- `keyspace` where files lie among all keys, how they overlap, and which of them readers open
- `choice` the files chosen, as a plan; their partitions
- `kept` which of them lie well and keep their bytes, by a model of what readers read
- `reference` the choice of the reference engine, `overlap` the one file by file
- `planner` the strategies by name; plans fitted to a workload, the part that a budget pays for
- `staleness` where a group's files are now, and whether they are still what was planned
- `change` plan and result to actions, without rows that others deleted, and to numbers
- `health` how good a clustering is, cube by cube, what to know about it, and limits to keep
- `maps` pictures of it: files now and after a rewrite, with values beside the axes
"""
