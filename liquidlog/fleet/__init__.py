"""Many tables: find them, rank them, and keep them in shape.

- `finding` finds tables by globs and in catalogs
- `policy` reads a policy from TOML and decides what a table needs, by its log
- `upkeep` surveys all tables, or acts on them in order, within a budget
"""
