"""Operations on a table, one module each; an operation combines the store, rules and commits.

- `define` CREATE, CLUSTER BY, DROP FEATURE, columns and properties: changes without a rewrite
- `writes` what a table asks of rows from outside, and the commit of their files; `append` of Arrow
  data
- `detail`, `inspect`, `explain`, `scan`, `reads` what only looks
- `planned` a plan from arguments, properties and defaults
- `judge` whether a rewrite is worth it
- `doctor`, `backfill` finding and mending
- `overview` what a report shows
- `rewrite` committing groups, their results, and which can no longer be; `batches` several in one
  version
- `at_work` other processes that rewrite, and a claim of a table for one of them
- `reconcile` deleting from outputs what others deleted from inputs
- `redacted` values in place of constants, `asked_columns` by which a workload's readers are
  measured
- `opened` what every operation starts from
- `migrate` partitioned tables, `optimize` plan to commit in one call, in rounds where asked
- `executors` found by entry point
- `workloads` what readers ask
- `outputs` what only the storage tells of them, and how much of others' deletions is followed
- `advise` layouts, `table_readers` what is read now, `layout_search` what would be, `backtests`
  what was observed
- `old_dates` which files are refused for dates
- `vacuum` files that no version needs any more, and what dead and forgotten runs left
"""
