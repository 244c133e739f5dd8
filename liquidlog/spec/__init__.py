"""What the Delta protocol says, as types and codecs. No I/O.

- `schema` types, names, column mapping, and walks over them
- `actions` a commit's lines, the paths of data files, and which rows a deletion vector deletes
- `features` table features: what is read, written and refused, and what each asks of schemas and
  files: begin here to accept a new one
- `arrow` table types as Arrow's, partition values and directories, calendars of dates
- `bounds` file statistics and their typed ends, parsed from JSON
- `text` sizes, times, names and rows as people, pages and shells read them, without credentials;
  checks of arguments
"""
