"""Many tables: found, looked at, ranked, and kept in shape one after the other.

- `finding` them by globs and in catalogs: `listing` what those say, `glue`, `unity` asking them
- `policies` read from files, `readers` of all tables
- `looking` at one, `acting` on it, `tick` on all in order
- `surveying` one without acting, `survey` of all in a few processes
- `outcomes` what became of each
- `plans` saved, `names` of files
"""
