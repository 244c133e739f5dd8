"""The tasks that rewrite a group of files, on any executor: no Spark, no log, no planning.

- `groups` rewrites groups of a plan, some at a time: passes, runs, outcomes, cancellation
- `source` what a task knows of its group, and how it reads rows: a sample, then all
- `shuffle` the layout of a group, and how rows move to the tasks that write them
- `sink` writes output files and proves their rows, also for rows from outside
"""
