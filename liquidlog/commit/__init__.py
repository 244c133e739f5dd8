"""Commit actions as a new version of a table; this package knows nothing of clustering.

- `conflicts` read set and winners to conflicts
- `transaction` attempt, re-check, put, retry; the clock and ids; a checkpoint when one is due
"""
