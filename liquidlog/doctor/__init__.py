"""Findings about a table, and the actions that repair it. Rules without I/O.

- `findings` the facts, and what is wrong: with removes that removed nothing, for a workload, with
  files and columns, with the clustering
- `repairs` the actions that mend it
"""
