"""Operations on a table: each combines the store, rules and commits.

- `writes` new tables, changes of their definition, appends and overwrites
- `inspect` DESCRIBE DETAIL, files, health, and the files that a query must read
- `advise` workloads from files, logs and SQL, and the best layout for them
- `planning` plans of OPTIMIZE and of migrations, their explanation, and the verdict on a table
- `executors` found by entry point; `optimize` plan to commit in one call, also in rounds; commits
  of groups, and the watch
- `batches` several groups in one version
- `doctor` findings, repairs, and what a report shows
- `vacuum` runs and their files in the storage, processes at work, orphans, vacuum
"""
