"""What the Delta protocol says, as types and codecs. No I/O.

- `schema` types and names
- `fields` walking them
- `mapping` column mapping
- `widening` type changes
- `growth` schema changes, `terms` all changes that written files outlast
- `actions` a commit's lines
- `change` a change without a version
- `courses` what became of a file over commits
- `features` what is read, written, refused
- `obligations` what features ask of a schema
- `stats` file statistics as written
- `bounds` their typed ends and what writers state wrongly, `floats` around doubles,
  `bounds_json`, `bounds_exact` parsing them
- `deletion_vectors` which rows a vector deletes
- `file_paths` data files' paths in one form
- `partitions` partition values and directories, `partition_values` as values of columns
- `log_files` names of log files, `data_names` of what may be data
- `char_types` lengths of char and varchar
- `arguments`, `near` what callers give, and may have meant
- `arrow` table types as Arrow's, `calendars` in which files count their dates
- `commands` for a shell, that change a table by SQL
- `codecs` how files are compressed
- `visible` no character that hides or acts
- `masking` no credentials
- `sizes`, `times`, `scalars`, `json_texts`, `rows`, `markup` as people and documents write them
"""
