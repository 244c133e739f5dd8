"""Read log files into a Snapshot; nothing else reads the log on storage.

- `store` the storage contract
- `local_store`, `object_store` who meets it
- `segment` which files make a version, and what its commits say
- `not_a_table` what is there instead
- `footers` what no checkpoint can claim
- `checkpoints`, `adds`, `file_actions` decoding
- `statistics`, `raw_statistics` the bounds of live files, or their text
- `originals` adds as written
- `replay` reconciliation, and paths in order
- `loader` the read path, from an address on
- `history`, `time_travel`, `definitions` past commits
- `second_opinion` delta-rs must agree, whole once, then on what came since
- `named` which files any version names, or still needs
- `checkpointing`, `checkpoint_check`, `tombstones` checkpoints made and compared
"""
