"""Data files to Arrow and back: reading, writing, file statistics, checksums.

- `reader` reading exactly or refusing
- `encodings` columns in dictionaries, in the fewest bytes, as numpy arrays, as other types exactly
- `logical_file` live rows and their ids, also as readers of the table get them; deletion vectors
  located, read and written
- `append` a user's data, parted by partition values
- `writer` writing a file; how columns are encoded: pages, dictionaries, codecs, Bloom filters
- `runs` whose a file is until it is committed, and who began them
- `statistics` its statistics, as it is written or read; what footers say, held against a result
- `checksum` the multiset checksum, and rows compared bit by bit
- `deleted_rows` rows that others deleted meanwhile, found in what was written and proved to be
  these
"""
