"""Read log files into a Snapshot; nothing else reads the log on storage.

- `managed` a table whose versions a catalog ratifies, behind the same contract
- `checkpoints` decoding them, and what none can claim; the bounds of live files, their text, and
  adds as written
- `loader` the read path: which files make a version, what its commits say, the Snapshot: begin here
- `history` past commits, times and removed files, and every file that some version names
- `checkpointing` writing a checkpoint, proved to say what the log says; delta-rs' view of the live
  files
"""
