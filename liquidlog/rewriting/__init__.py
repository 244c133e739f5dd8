"""The tasks that rewrite a group of files, wherever they run: no Spark, no log, no planning.

- `groups` groups of a plan: what is taken of them or refused, their runs in the table; how many at
  a time, and which are cancelled
- `passes` one group pass by pass, on whatever runs tasks; small groups without a shuffle
- `process` what runs tasks prepares, and access to the table, tried first
- `source` how work is divided, what tasks know of a group, or of rows from outside, and are sent;
  reading a group: a sample, then all
- `layout` boundaries, cuts, the way of the rows
- `shuffle`, `sink` move, write, prove; rows from outside, to files of their partitions
"""
