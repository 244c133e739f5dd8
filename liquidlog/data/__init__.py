"""Data files to Arrow and back: reading, writing, file statistics, checksums.

- `reader`, `parquet_file`, `exact`, `encodings` reading exactly or refusing
- `logical_file` live rows and their ids
- `append` a user's data
- `partitioned` parted by partition values
- `table_rows` rows as readers of the table get them
- `writer` writing a file
- `file_encoding` how columns are encoded: pages, dictionaries, codecs, Bloom filters
- `row_group_bounds` what footers say of row groups
- `runs` whose a file is until it is committed, and who began them
- `evidence` a footer held against a result
- `statistics` its statistics, as it is written or read
- `checksum` the multiset checksum, and rows compared bit by bit
- `vectors` deletion vectors located, read and written
- `deleted_rows` rows that others deleted meanwhile, found in what was written: `wanted_rows` the
  multiset and where they may be, `output_rows` looking into one file, `read_budget` who reads how
  much, `deletion_proof` what the rows there are, and outputs without them
- `narrow` columns in the fewest bytes, to be moved as bytes
- `buffers` Arrow's memory as numpy arrays
"""
