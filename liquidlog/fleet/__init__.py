"""Many tables: found, looked at, ranked, and kept in shape one after the other.

- `finding` them by globs and in catalogs
- `policy` what is asked of them, from a file of TOML
- `deciding` what is seen of one, and what follows
- `survey` of all in a few processes, without acting
- `tick` on all in order, within a budget
"""
