"""Read log files into a Snapshot; nothing else reads the log on storage.

- `store` the storage contract, who meets it, and what is there where no table is
- `managed` a table whose versions a catalog ratifies, behind the same contract
- `segment` which files make a version, and what its commits say
- `checkpoints` decoding them, and what none can claim; the bounds of live files, their text, and
  adds as written
- `replay` adds and removes reconciled, in the order of paths
- `loader` the read path, from an address on: begin here
- `history` past commits, times and removed files, and every file that some version names
- `checkpointing` writing a checkpoint, proved to say what the log says; delta-rs' view of the live
  files
"""
