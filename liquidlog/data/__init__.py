"""Data files to Arrow and back: reading, writing, file statistics, checksums.

- `reader` reads a Parquet file exactly, or refuses it; its live rows and their ids
- `writer` writes a data file and collects its statistics
- `encodings` Arrow columns with dictionaries, as numpy arrays, as other types; the checksum of rows
  and the encodings of files: dictionaries, codecs, pages, Bloom filters
- `runs` who writes files that no version names yet
- `deleted_rows` finds rows that other commits deleted in the files that were written, with proof
"""
