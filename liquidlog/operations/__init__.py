"""Operations on a table: each combines the store, rules and commits.

- `define` CREATE, CLUSTER BY, DROP FEATURE, columns and properties: changes without a rewrite
- `writes` appends and overwrites: plans, checks and commits of new rows
- `inspect` DESCRIBE DETAIL, files, health, and the files that a query must read
- `workloads` queries from files, logs and SQL, with stand-ins for redacted constants
- `advise` the best layout for a workload
- `planned` plans of OPTIMIZE and of migrations, their explanation, and the verdict on a table
- `doctor` findings, repairs, and what a report shows
- `executors` found by entry point; `optimize` plan to commit in one call, also in rounds
- `rewrite` commits of groups, their results, and the watch; `batches` several groups in one version
- `outputs` runs and their files in the storage, processes at work, orphans, vacuum
"""
