"""Log files to Snapshot: the only reader of the log on storage."""
