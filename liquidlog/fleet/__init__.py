"""Many tables: found, looked at, ranked, and kept in shape one after the other.

- `finding` tables by globs and in catalogs
- `policy` what to do with which tables, from a file of TOML, and what follows from a table's log
- `upkeep` looking at all tables without acting, and acting on them in order, within a budget
"""
