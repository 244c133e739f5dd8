"""What the Delta protocol says, as types and codecs. No I/O.

- `actions` a commit's lines, a change without a version, what became of a file
- `schema` types, names, column mapping, and walks over them
- `features` what is read, written, refused
- `evolution` changes of a schema, what features ask of it, and what written files outlast
- `iceberg` what files and definition need to make an Iceberg table too
- `bounds` file statistics and their typed ends, parsed from JSON
- `deletion_vectors` which rows a vector deletes
- `paths` data files' paths in one form, names of log files, and what may be data
- `partitions` partition values, their types and directories
- `arrow` table types as Arrow's, lengths of char and varchar, JSON objects as columns of texts
- `calendars` in which files count their dates
- `arguments` what callers give, codecs among it
- `text` sizes, times, names and rows as people, pages and shells read them; no character that
  hides or acts, no credentials
"""
