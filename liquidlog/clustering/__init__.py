"""Clustering columns, cubes, plans, outcomes and health. Rules without I/O.

- `planner` the strategies `cube` and `overlap`, ZORDER BY and compaction: begin here to add one;
  checks of a planned group against the table as it is now
- `building` files chosen by a planner become a plan; files that keep their bytes; the read model
- `columns` clustering columns, columns with Bloom filters, migration, row ids, cubes
- `settings` of a rewrite: their names and values, the table's properties, who decides
- `change` plan and result become the actions and metrics of a commit
- `health` ranges of files, their overlaps, the queries that read them, and measures of a clustering
- `maps` of files, for reports
"""
