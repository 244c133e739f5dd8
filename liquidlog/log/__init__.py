"""Read log files into a Snapshot; nothing else reads the log on storage.

- `loader` the read path: the files of a version, its commits, the Snapshot: begin here
- `checkpoints` reads checkpoints; the bounds and statistics of live files; adds as written
- `history` past commits, their times, removed files, and every file that some version names
- `checkpointing` writes a checkpoint and proves it; asks delta-rs about the live files
- `managed` a table whose versions a catalog ratifies
"""
