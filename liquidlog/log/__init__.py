"""Read log files into a Snapshot; nothing else reads the log on storage.

- `loader` the read path: the files of a version, its commits, the Snapshot: begin here; bounds and
  statistics of live files; adds as written
- `checkpoints` reads checkpoints
- `history` past commits, their times and removed files; writes a checkpoint and proves it
"""
