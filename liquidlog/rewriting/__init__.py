"""The tasks that rewrite a group of files, on any executor: no Spark, no log, no planning.

- `groups` rewrites groups of a plan, some at a time: passes, runs, outcomes, cancellation
- `inputs` how a task reads rows of a group: a sample, then all; a user's data as rows of a table
- `shuffle` the layout of a group, and how rows move to the tasks that write them
- `outputs` writes output files and proves their rows, also for rows from outside
"""
