"""Clustering columns, cubes, plans, outcomes and health. Rules without I/O.

- `columns` what can be clustered by and have Bloom filters, and where that is kept
- `settings` of a rewrite: their names and values, what a table remembers of them, who decides
- `zcubes` cubes and their states
- `migration` partitioned tables that become clustered
- `row_tracking` row ids, kept and fresh
"""
