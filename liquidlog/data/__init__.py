"""Data files to Arrow and back: reading, writing, file statistics, checksums.

- `reader`, `parquet_file`, `exact` reading exactly or refusing
- `encodings` columns in dictionaries, in the fewest bytes, and as numpy arrays
- `logical_file` live rows and their ids, also as readers of the table get them; deletion vectors
  located, read and written
- `append` a user's data, parted by partition values
- `writer` writing a file
- `file_encoding` how columns are encoded: pages, dictionaries, codecs, Bloom filters
- `row_group_bounds` what footers say of row groups, and a footer held against a result
- `runs` whose a file is until it is committed, and who began them
- `statistics` its statistics, as it is written or read
- `checksum` the multiset checksum, and rows compared bit by bit
- `deleted_rows` rows that others deleted meanwhile, found in what was written and proved to be
  these; `output_rows` looking into one file for a multiset of rows
"""
