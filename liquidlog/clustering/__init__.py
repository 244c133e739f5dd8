"""Clustering columns, cubes, plans, outcomes and health. Rules without I/O.

- `columns` what can be clustered by, and where that is kept
- `filters` what can have Bloom filters
- `properties` by which a table remembers its layout
- `zcubes` cubes and their states
- `migration` partitioned tables that become clustered
- `row_tracking` row ids, kept and fresh
"""
