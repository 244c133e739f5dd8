"""The tasks that rewrite a group of files, wherever they run: no Spark, no log, no planning.

- `groups` groups of a plan: what is taken of them or refused, their runs in the table; how many at
  a time, and which are cancelled; one group pass by pass, small ones without a shuffle
- `source` what runs tasks prepares, and access to the table, tried first; how work is divided, what
  tasks know of a group and are sent; reading a group: a sample, then all
- `shuffle`, `sink` boundaries, cuts, the way of the rows; move, write, prove; rows from outside, to
  files of their partitions
"""
