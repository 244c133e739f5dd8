"""From plan and result of a rewrite to actions; checks and metrics of both.

- `staleness` where a group's files are now, and whether they are still what was planned
- `change` plan and result to actions, without rows that others deleted, and to numbers
"""
