"""Data files to Arrow and back: reading, writing, file statistics, checksums.

- `reader` reads a Parquet file exactly, or refuses it
- `logical_file` live rows of a data file and their ids; deletion vectors
- `writer` writes a data file: pages, dictionaries, codecs, Bloom filters
- `encodings` Arrow columns with dictionaries, in few bytes, as numpy arrays, as other types
- `statistics` of files, while they are written and from footers; compares footers with a result
- `append` a user's data as rows of a table, divided by partition values
- `runs` who writes files that no version names yet
- `checksum` the multiset checksum of rows, and a comparison of rows bit by bit
- `deleted_rows` finds rows that other commits deleted in the files that were written, with proof
"""
