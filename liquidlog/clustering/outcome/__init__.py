"""From plan and result of a rewrite to actions; checks and metrics of both.

- `staleness` where a group's files are now, and whether they are still what was planned
- `partitioning` whether they are still in its partition
- `deletions` what others deleted of them
- `reconciled` outputs without it, and the proof
- `whole` migrations, all of them or nothing
- `change` plan and result to actions
- `metrics` what was rewritten, in numbers
"""
