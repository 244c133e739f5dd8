"""The tasks that rewrite a group of files, wherever they run: no Spark, no log, no planning.

- `groups` one group of a plan: what is taken of it or refused, and its run in the table
- `passes` pass by pass, on whatever runs tasks; small groups without a shuffle
- `flight` how many groups at a time, and which are cancelled, and how far they are
- `process` what runs tasks prepares, and access to the table, tried first
- `source` how work is divided, what tasks know of a group, or of rows from outside, and are sent;
  reading a group: a sample, then all
- `layout` boundaries, cuts, the way of the rows
- `shuffle`, `sink` move, write, prove
- `arriving` rows from outside, to files of their partitions
"""
