"""Data files to Arrow and back: reading, writing, file statistics, checksums."""
