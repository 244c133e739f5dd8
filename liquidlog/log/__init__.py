"""Read log files into a Snapshot; nothing else reads the log on storage."""
