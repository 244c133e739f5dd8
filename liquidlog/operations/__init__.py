"""Operations on a table: each combines the store, rules and commits.

- `define` CREATE, CLUSTER BY, DROP FEATURE, columns and properties: changes without a rewrite
- `writes` rows from outside: what a table asks of them, the commit of their files, and appends
- `inspect` DESCRIBE DETAIL, files and health, and which files a condition opens
- `workloads` what readers ask, from files, logs and SQL, with values for redacted constants
- `advise` what readers open now, what was observed, and which layout serves them
- `planned` plans from arguments, properties and defaults, also of migrations, why they are so, and
  whether a rewrite is worth it
- `doctor` findings, repairs, and what a report shows
- `executors` found by entry point; `optimize` plan to commit in one call, in rounds where asked
- `rewrite` commits of groups, their results, and which can no longer be; `batches` several groups
  in one version, and deletes from outputs what others deleted from inputs
- `outputs` what only the storage tells of runs and their files, who is at work on a table, and
  files that no version needs any more
"""
