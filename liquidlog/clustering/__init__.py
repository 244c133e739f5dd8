"""Clustering columns, cubes, plans, outcomes and health. Rules without I/O.

- `columns` what can be clustered by and have Bloom filters, where that is kept, and partitioned
  tables that become clustered; row ids, kept and fresh; cubes and their states
- `settings` of a rewrite: their names and values, what a table remembers of them, who decides
- `keyspace` where files lie among all keys, how they overlap, which of them readers open, and
  pictures: files now and after a rewrite, with values beside the axes
- `choice` the files chosen, as a plan; their partitions; which of them lie well and keep their
  bytes, by a model of what readers read
- `planner` the choice of the reference engine and the one file by file; the plan of a choice,
  fitted to a workload, and the part of it that a budget pays for
- `staleness` where a group's files are now, and whether they are still what was planned
- `change` plan and result to actions, without rows that others deleted, and to numbers
- `health` how good a clustering is, cube by cube, what to know about it, and limits to keep
"""
