"""The tasks that rewrite a group of files, wherever they run: no Spark, no log, no planning.

- `groups` one group of a plan, and its run in the table
- `passes` pass by pass, on whatever runs tasks
- `flight` how many groups at a time, and which are cancelled, `jobs` how far they are
- `options` how work is divided
- `access` to the table, tried first
- `process` what runs tasks prepares
- `planned` what is taken from a plan, or refused
- `assignment` what each task is sent of a group, and surveys as they come back
- `source` what tasks know of a group; reading it: a sample, then all, `sampled` how many rows and
  which
- `layout` boundaries, cuts, the way of the rows
- `pieces` what a shuffle moves, `spilled` the same on disk, `scratch` the directory where
- `shuffle`, `sink` move, write, prove
- `whole` small groups without a shuffle
"""
